"""The Flink dialect of sqlglot: what it reads, and that it writes the same again."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect import Flink
from lakehouse_dagster.sql.statements import split
from tests.sql.samples import DECLARATIONS, INSERTS, SETS, UNPLANNABLE

ALL = [
    *DECLARATIONS,
    *(sql for sql, *_ in INSERTS.values()),
    *(sql for sql, *_ in UNPLANNABLE.values()),
    *SETS,
]


def parse(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect=Flink)


def column_types(declaration: str) -> dict[str, str]:
    tree = parse(f"CREATE TABLE t ({declaration})")
    return {c.name: c.args["kind"].sql(Flink) for c in tree.this.expressions}


@pytest.mark.parametrize("sql", ALL)
def test_what_it_writes_it_reads_again_to_the_same_tree(sql: str) -> None:
    tree = parse(sql)
    written = tree.sql(Flink)
    assert parse(written) == tree
    assert parse(written).sql(Flink) == written


@pytest.mark.parametrize("sql", ALL)
def test_no_statement_is_kept_as_opaque_text(sql: str) -> None:
    assert parse(sql).find(exp.Command) is None


def test_it_is_found_by_name_once_imported() -> None:
    assert sqlglot.parse_one("SET x = 3s", dialect="flink") == nodes.SetOption(
        this=exp.Literal.string("x"), value=exp.Literal.string("3s")
    )


def test_types_are_written_as_in_flinks_documentation() -> None:
    assert column_types(
        "a INTEGER, b DEC(10,2), c DOUBLE PRECISION, d TIMESTAMP(3) WITH LOCAL TIME ZONE, "
        "e timestamp_ltz(3), f TIMESTAMP(3) WITHOUT TIME ZONE, g ROW(x INT, y ARRAY<STRING>), "
        "h ROW<`a b` INT NOT NULL 'c''d'>, i MULTISET<VARCHAR(3)>, j INT ARRAY, k BYTES, "
        "l MAP<STRING,ROW<>>, q VARCHAR(9) CHARACTER SET `UTF-16LE`, "
        "m RAW('a.B', 'x=='), n my.Type, o CHAR, p INTERVAL DAY(3) TO SECOND"
    ) == {
        "a": "INT",
        "b": "DECIMAL(10, 2)",
        "c": "DOUBLE",
        "d": "TIMESTAMP_LTZ(3)",
        "e": "TIMESTAMP_LTZ(3)",
        "f": "TIMESTAMP(3)",
        "g": "ROW<x INT, y ARRAY<STRING>>",
        "h": "ROW<`a b` INT NOT NULL 'c''d'>",
        "i": "MULTISET<VARCHAR(3)>",
        "j": "ARRAY<INT>",
        "k": "BYTES",
        "l": "MAP<STRING, ROW<>>",
        "q": "VARCHAR(9)",
        "m": "RAW('a.B', 'x==')",
        "n": "my.Type",
        "o": "CHAR",
        "p": "INTERVAL DAY(3) TO SECOND",
    }


def test_not_enforced_and_hints_are_kept() -> None:
    sql = "CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED)"
    assert parse(sql).sql(Flink) == sql
    sql = "SELECT /*+ LOOKUP('table' = 'd') */ a FROM t /*+ OPTIONS('k' = 'v') */ AS x"
    assert parse(sql).sql(Flink) == sql


def test_words_that_are_keywords_elsewhere_are_ordinary_names() -> None:
    sql = (
        "SELECT text, list, uuid, format, keep, percent, cache, struct, inet, money, `order` "
        "FROM settings AS qualify"
    )
    tree = parse(sql)
    assert tree.sql(Flink) == sql
    assert [c.name for c in tree.find_all(exp.Column)][:3] == ["text", "list", "uuid"]


def test_functions_are_not_rewritten() -> None:
    sql = "SELECT SPLIT(a), DATE_FORMAT(b, 'yyyy'), IF(c, 1, 2), NVL(a, b), my_udf(DISTINCT x)"
    assert parse(sql).sql(Flink) == sql


def test_a_variable_is_one_word() -> None:
    tree = parse("SELECT * FROM ${DB}.t WHERE a = ${X:-a b}")
    assert tree.find(exp.Table).db == "${DB}"


REFUSED = [
    "CREATE TABLE t (a INT) STORED AS PARQUET",
    "CREATE TABLE t (a)",
    "CREATE TABLE t (a INT,)",
    "CREATE TABLE t (a INT) WITH ('a' = b)",
    "CREATE TABLE t (a INT) WITH ('a' 'b')",
    "CREATE SOMETHING x",
    "CREATE TABLE t (a INT) COMMENT",
    "CREATE TABLE t (a INT METADATA FROM)",
    "USE CATALOG",
    "USE",
    "INSERT t SELECT 1",
    "INSERT INTO t",
    "INSERT INTO t SELECT 1 FROM",
    "INSERT INTO t SELECT a FROM b QUALIFY x = 1 = 2 3",
    "INSERT INTO t SELECT * FROM {{ ref('x') }}",
    "INSERT INTO t SELECT 1 INSERT INTO u SELECT 2",
    'INSERT INTO t SELECT "a" FROM b',
    "SELECT a FROM b ?",
    "SELECT :a FROM b",
    "SELECT a::INT FROM b",
    "SELECT a FROM t SORT BY b",
    "SELECT a FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "BEGIN STATEMENT SET; INSERT INTO a SELECT 1 END",
    "EXECUTE STATEMENT SET INSERT INTO a SELECT 1; END",
    "SELECT a FROM t TABLESAMPLE (10)",
    "SELECT a FROM t LIMIT",
    "SELECT a FROM t OFFSET",
    "SELECT a FROM t AS LIMIT",
    "SELECT a LIMIT FROM t",
    "SELECT a AS WHERE FROM t",
    "SELECT * FROM TABLE t",
    "SELECT DISTINCT ON (a) b FROM t",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_flink_would_refuse_is_an_error_and_no_guess(sql: str) -> None:
    with pytest.raises(ParseError):
        parse(sql)


def test_the_compiled_build_of_sqlglot_is_refused_with_what_to_do() -> None:
    program = (
        "import sqlglot.tokens as t; t.SQLGLOTC_INSTALLED = True\n"
        "from lakehouse_dagster.errors import ConfigurationError\n"
        "try:\n"
        "    from lakehouse_dagster.sql.dialect import Flink\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "compiled build of sqlglot" in output
    assert "pip uninstall sqlglotc" in output


def test_importing_the_room_does_not_import_sqlglot() -> None:
    program = "import sys, lakehouse_dagster.sql; print('sqlglot' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "False"


def test_a_statement_set_is_parsed_with_its_members() -> None:
    tree = parse(split(SETS[0])[0].text)
    assert isinstance(tree, nodes.StatementSet)
    assert [member.this.name for member in tree.expressions] == ["numbers", "texts"]

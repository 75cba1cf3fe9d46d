"""Deep and long statements: read up to a stated size, an error of the right kind beyond."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlglot
from sqlglot import exp

from lakehouse_dagster.sql import split
from lakehouse_dagster.sql.parsing import UnreadableStatementError, parse


def read(sql: str) -> exp.Expr:
    return parse(split(sql)[0])


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {'(' * 200}1{')' * 200}",
        f"SELECT {'f(' * 200}a{')' * 200}",
        f"SELECT {'CASE WHEN a THEN ' * 200}1{' END' * 200}",
        f"SELECT * FROM {'(SELECT * FROM ' * 200}t{')' * 200}",
        f"CREATE TABLE t (a {'ARRAY<' * 200}INT{'>' * 200})",
    ],
)
def test_200_levels_within_one_another_are_read_and_written(sql: str) -> None:
    assert read(read(sql).sql("flink")) == read(sql)


@pytest.mark.parametrize("levels", [1_000, 20_000])
def test_more_levels_than_there_is_room_for_are_an_error_at_their_place(levels: int) -> None:
    with pytest.raises(UnreadableStatementError, match="nested too deeply") as caught:
        read(f"SELECT {'(' * levels}1{')' * levels}")
    assert caught.value.location.line == 1


def test_alone_the_dialect_raises_sqlglots_error_for_what_is_too_deep() -> None:
    program = (
        "import sqlglot\n"
        "try:\n"
        "    sqlglot.parse_one('SELECT ' + '(' * 900 + '1' + ')' * 900, read='flink')\n"
        "except sqlglot.ParseError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "The statement is nested too deeply"


def test_a_thousand_branches_of_a_union_are_read_and_written() -> None:
    sql = " UNION ALL ".join(f"SELECT a{i} FROM t" for i in range(1_000))
    tree = read(sql)
    assert len(list(tree.find_all(exp.Select))) == 1_000
    assert tree.sql("flink") == sql


def test_a_thousand_joins_and_conditions_are_read_and_written() -> None:
    joins = " ".join(f"JOIN t{i} ON t{i}.a = t.a" for i in range(1_000))
    conditions = " AND ".join(f"a{i} = {i}" for i in range(1_000))
    sql = f"SELECT * FROM t {joins} WHERE {conditions}"
    assert read(sql).sql("flink") == sql


def test_a_script_may_be_parsed_at_once() -> None:
    trees = sqlglot.parse(
        """-- a script; with comments
        SET 'x' = 'a;b';
        CREATE TABLE t (a INT /* ; */) WITH ('k' = '--');
        BEGIN STATEMENT SET;
        INSERT INTO t SELECT CASE WHEN a > 1 THEN 1 END FROM u;
        // a comment; of Flink's own kind
        INSERT INTO t SELECT b FROM v;
        END;
        EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1; END;
        INSERT INTO t SELECT 1;
        """,
        read="flink",
    )
    assert [tree.sql("flink", comments=False) for tree in trees if tree] == [
        "SET 'x' = 'a;b'",
        "CREATE TABLE t (a INT) WITH ('k' = '--')",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT CASE WHEN a > 1 THEN 1 END FROM u;"
        " INSERT INTO t SELECT b FROM v; END",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1; END",
        "INSERT INTO t SELECT 1",
    ]

"""What published scripts taught the reader, in small inputs of our own.

Each of these was once read wrongly, or would be by a reader that knows less: a dependency that is
not there, one that is missing though all are said to be known, or a statement taken for another.
"""

from __future__ import annotations

import pytest

from lakehouse_dagster.sql.model import Flow, Script, Severity
from tests.sql.in_process import read_alone

KAFKA = "WITH ('connector' = 'kafka', 'topic' = '{}')"


def read(text: str) -> Script:
    return read_alone(text, "orders.sql")


def flows(script: Script) -> list[Flow]:
    return [flow for job in script.jobs for flow in job.flows]


def edges(script: Script) -> list[tuple[str | None, list[str]]]:
    """Sink and reads of each INSERT, in the order of the text."""
    return [
        (
            str(flow.sink) if flow.sink else "/".join(flow.external_sink or ()) or None,
            sorted([*map(str, flow.reads), *("/".join(key) for key in flow.sources)]),
        )
        for flow in flows(script)
    ]


def warnings(script: Script) -> str:
    return "\n".join(str(p) for p in script.problems if p.severity is Severity.WARNING)


@pytest.mark.parametrize(
    "declaration",
    [
        "CREATE TABLE o (id INT) WITH ('connector' = 'kafka', ${broker}, 'topic' = 'o')",
        "CREATE TABLE o (id INT) WITH ('connector' = 'kafka', 'rows' = 5)",
        "CREATE TABLE o (id INT) PARTITIONED BY (dt STRING) WITH ('connector' = 'filesystem')",
    ],
)
def test_a_connector_table_whose_create_is_not_understood_is_not_taken_for_one_of_the_lake(
    declaration: str,
) -> None:
    text = (
        f"{declaration};\nINSERT INTO app.t SELECT id FROM o;\nINSERT INTO o SELECT id FROM app.u;"
    )
    read_from, written_to = flows(read(text))
    assert not read_from.dependencies_known
    assert read_from.reads == ()
    assert not written_to.dependencies_known
    assert written_to.sink is None


def test_a_catalogs_default_database_is_current_where_the_catalog_is() -> None:
    text = f"""
    CREATE CATALOG h WITH ('type' = 'hive', 'default-database' = 'sales');
    CREATE CATALOG g WITH ('type' = 'hive');
    USE CATALOG h;
    CREATE TABLE o (id INT) {KAFKA.format("o")};
    INSERT INTO totals SELECT id FROM o;
    USE CATALOG g;
    INSERT INTO totals SELECT id FROM h.sales.o;
    """
    assert edges(read(text)) == [
        ("hive/sales/totals", ["kafka/o"]),
        ("hive/default/totals", ["kafka/o"]),
    ]


def test_a_table_argument_may_be_the_alias_of_another_relation_of_the_same_from() -> None:
    text = f"""
    CREATE TEMPORARY TABLE tickets (id INT, words STRING) {KAFKA.format("tickets")};
    INSERT INTO app.vectors SELECT t.id, e.v
    FROM tickets AS t, LATERAL TABLE(embed(TABLE t, DESCRIPTOR(words))) AS e (v);
    """
    assert edges(read(text)) == [("lake.app.vectors", ["kafka/tickets"])]


def test_a_search_function_reads_the_table_that_it_is_given_by_name() -> None:
    text = f"""
    CREATE TEMPORARY TABLE books (q STRING, title STRING) {KAFKA.format("books")};
    CREATE TEMPORARY TABLE wishes (id INT, book STRING) {KAFKA.format("wishes")};
    INSERT INTO app.found SELECT w.id, f.title
    FROM wishes w, LATERAL TABLE(KEY_SEARCH_AGG(books, DESCRIPTOR(book), q)) AS f (title);
    """
    (flow,) = flows(read(text))
    reads = {"/".join(key) for key in flow.sources}
    assert reads == {"kafka/books", "kafka/wishes"} or not flow.dependencies_known


def test_a_name_of_flinks_own_catalog_is_not_guessed_to_be_one_of_the_lake() -> None:
    declared = f"CREATE TABLE default_catalog.default_database.dim (id INT) {KAFKA.format('dim')};"
    insert = "INSERT INTO app.t SELECT id FROM dim;"
    (flow,) = flows(read(f"{declared}\n{insert}"))
    assert not flow.dependencies_known
    (chosen,) = flows(read(f"{declared}\nUSE CATALOG lake;\n{insert}"))
    assert chosen.dependencies_known
    assert [str(name) for name in chosen.reads] == ["lake.default.dim"]


def test_hints_are_no_functions() -> None:
    text = """INSERT INTO app.t SELECT id FROM app.u /*+ OPTIONS('scan.mode' = 'latest') */;
    INSERT INTO app.v SELECT /*+ LOOKUP('table' = 'w') */ id FROM app.u;"""
    assert "no function" not in warnings(read(text))


def test_a_file_without_any_semicolon_is_read_statement_by_statement() -> None:
    text = f"""
    CREATE TEMPORARY TABLE o (id INT, ts TIMESTAMP(3)) {KAFKA.format("o")}

    SELECT id, ts FROM o

    CREATE TEMPORARY TABLE out (id INT) WITH ('connector' = 'print')

    insert into out
    select id from (
      select id from o
    ) a

    INSERT INTO app.t SELECT id FROM o
    """
    assert edges(read(text)) == [("print/out", ["kafka/o"]), ("lake.app.t", ["kafka/o"])]


def test_console_output_after_an_insert_without_semicolon_takes_no_other_statement_along() -> None:
    text = f"""
    CREATE TEMPORARY TABLE o (id INT) {KAFKA.format("o")};
    INSERT INTO app.t SELECT id FROM o
    0: jdbc:hive2://host:10000> show create table t;
    +----------------------------------+
    |          createtab_stmt          |
    +----------------------------------+
    | CREATE EXTERNAL TABLE `t`(       |
    +----------------------------------+
    1 row selected (0.1 seconds);
    INSERT INTO app.u SELECT id FROM o;
    """
    script = read(text)
    assert edges(script)[-1] == ("lake.app.u", ["kafka/o"])
    assert all(f.dependencies_known is (str(f.sink) == "lake.app.u") for f in flows(script))


def test_a_common_table_expression_may_be_the_argument_of_a_window_function() -> None:
    text = f"""
    CREATE TEMPORARY TABLE o (id INT, n INT, ts TIMESTAMP(3)) {KAFKA.format("o")};
    CREATE TABLE app.t (id INT, n INT);
    INSERT INTO app.t
    WITH base AS (SELECT id, n, ts FROM o),
    hours AS (
      SELECT id, window_time AS at, SUM(n) AS n
      FROM TABLE(TUMBLE(TABLE base, DESCRIPTOR(ts), INTERVAL '1' HOUR))
      GROUP BY id, window_start, window_end, window_time)
    SELECT id, SUM(n) AS n
    FROM TABLE(HOP(TABLE hours, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '6' HOUR))
    GROUP BY id, window_start, window_end;
    """
    script = read(text)
    assert edges(script) == [("lake.app.t", ["kafka/o"])]
    columns = {c.column: [str(o) for o in c.origins] for c in flows(script)[0].columns or ()}
    assert columns == {"id": ["kafka/o.id"], "n": ["kafka/o.n"]}


def test_views_with_column_lists_and_views_on_views_lead_to_the_sources() -> None:
    text = f"""
    CREATE TEMPORARY TABLE a (k STRING, n INT) {KAFKA.format("a")};
    CREATE TEMPORARY TABLE b (k STRING, m INT) {KAFKA.format("b")};
    CREATE TABLE app.t (code STRING, total INT, m INT);
    CREATE VIEW one (code, total) AS SELECT k, SUM(n) FROM a GROUP BY k;
    CREATE VIEW two AS SELECT one.code, total, m FROM one JOIN b ON one.code = b.k;
    INSERT INTO app.t SELECT * FROM two;
    """
    script = read(text)
    assert edges(script) == [("lake.app.t", ["kafka/a", "kafka/b"])]
    columns = {c.column: [str(o) for o in c.origins] for c in flows(script)[0].columns or ()}
    assert columns == {"code": ["kafka/a.k"], "total": ["kafka/a.n"], "m": ["kafka/b.m"]}


def test_a_constant_column_of_a_view_is_a_constant_to_a_window_function_too() -> None:
    text = f"""
    CREATE TEMPORARY TABLE o (id INT, n INT, ts TIMESTAMP(3)) {KAFKA.format("o")};
    CREATE TABLE app.t (n INT);
    CREATE VIEW marked AS SELECT id, ts, 'real' AS flag FROM o;
    INSERT INTO app.t
    SELECT SUM(IF(flag = 'fake', 0, 1)) OVER (PARTITION BY id ORDER BY ts) FROM marked;
    """
    (flow,) = flows(read(text))
    assert flow.columns is not None
    assert [str(origin) for origin in flow.columns[0].origins] == ["kafka/o.id", "kafka/o.ts"]


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO app.t ( SELECT id FROM o )",
        "INSERT INTO app.t (SELECT id FROM o) UNION ALL (SELECT id FROM o)",
        "INSERT INTO app.t SELECT o.id FROM o, LATERAL TABLE(f(o.id)) AS x (y)",
        "INSERT INTO app.t SELECT x.a FROM o MATCH_RECOGNIZE (ORDER BY ts MEASURES A.id AS a"
        " ONE ROW PER MATCH PATTERN (A{200}) DEFINE A AS A.id IS NOT NULL) AS x",
        "/***/ INSERT INTO app.t --- three dashes\nSELECT id -- ; no end\nFROM o /* ; */",
    ],
)
def test_shapes_of_inserts(insert: str) -> None:
    declared = f"CREATE TEMPORARY TABLE o (id INT, ts TIMESTAMP(3)) {KAFKA.format('o')};"
    script = read(f"{declared}\n{insert};")
    assert edges(script) == [("lake.app.t", ["kafka/o"])]
    assert all(flow.dependencies_known for flow in flows(script))


def test_names_may_hold_spaces_and_braces() -> None:
    text = """
    CREATE TEMPORARY TABLE `bike positions` (id INT)
      WITH ('connector' = 'kafka', 'topic' = 'bikes');
    CREATE TEMPORARY VIEW `where is it` AS SELECT `bike positions`.`id` FROM `bike positions`;
    INSERT INTO `app`.`{city}` SELECT id FROM `where is it`;
    """
    assert edges(read(text)) == [("lake.app.{city}", ["kafka/bikes"])]

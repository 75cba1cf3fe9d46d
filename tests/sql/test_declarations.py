"""What declarations make of tables: LIKE, AS, ALTER, views; within a script and across scripts."""

from __future__ import annotations

import pytest

from lakehouse_dagster.sql.model import (
    Certainty,
    Project,
    Script,
    Severity,
    TableDefinition,
    TableName,
)
from tests.sql.in_process import read_alone, read_files

AB = "CREATE TABLE ods.a (i INT, s STRING, PRIMARY KEY (i) NOT ENFORCED) WITH ('bucket' = '1');"
KAFKA = (
    "CREATE TEMPORARY TABLE k (i INT, j AS i + 1, m STRING METADATA, PRIMARY KEY (i) NOT ENFORCED)"
    " WITH ('connector' = 'kafka', 'topic' = 't');"
)


def read(text: str) -> Script:
    return read_alone(text, "s.sql")


def table(of: Script | Project, key: str) -> TableDefinition:
    return next(table for table in of.tables if table.name.key == key)


def columns(of: TableDefinition) -> list[str]:
    return [f"{column.name} {column.type}".strip() for column in of.columns]


def lineage(found: Script | Project, number: int = 0) -> dict[str, list[str]] | None:
    flow = found.jobs[number].flows[0]
    if flow.columns is None:
        return None
    return {c.column: [str(origin) for origin in c.origins] for c in flow.columns}


def severities(found: Script) -> list[Severity]:
    return [problem.severity for problem in found.problems]


# LIKE


@pytest.mark.parametrize(
    ("options", "wanted", "key"),
    [
        ("EXCLUDING OPTIONS", ["i INT", "j", "m STRING"], ("i",)),
        ("EXCLUDING ALL", ["i INT"], ()),
        ("EXCLUDING ALL INCLUDING CONSTRAINTS", ["i INT"], ("i",)),
        ("EXCLUDING OPTIONS EXCLUDING GENERATED", ["i INT", "m STRING"], ("i",)),
        ("EXCLUDING OPTIONS EXCLUDING METADATA OVERWRITING GENERATED", ["i INT", "j"], ("i",)),
        ("INCLUDING ALL EXCLUDING OPTIONS EXCLUDING CONSTRAINTS", ["i INT", "j", "m STRING"], ()),
    ],
)
def test_like_takes_what_its_options_say(
    options: str, wanted: list[str], key: tuple[str, ...]
) -> None:
    found = table(
        read(f"{KAFKA} CREATE TABLE ods.x WITH ('bucket' = '2') LIKE k ({options})"), "ods.x"
    )
    assert columns(found) == wanted
    assert found.primary_key == key
    assert found.options == {"bucket": "2"}
    assert found.columns_known


def test_like_of_a_table_of_the_lake_takes_its_options_and_partitions() -> None:
    found = read(
        "CREATE TABLE ods.a (i INT, d STRING) PARTITIONED BY (d) WITH ('bucket' = '1', 'x' = 'y');"
        "CREATE TABLE ods.b (j INT) WITH ('bucket' = '2') LIKE ods.a;"
        "CREATE TABLE ods.c LIKE ods.a (EXCLUDING PARTITIONS);"
        "CREATE TABLE ods.d LIKE nobodys.db.t"
    )
    assert columns(table(found, "ods.b")) == ["i INT", "d STRING", "j INT"]
    assert table(found, "ods.b").options == {"bucket": "2", "x": "y"}
    assert table(found, "ods.b").partition_keys == ("d",)
    assert table(found, "ods.c").partition_keys == ()
    assert not table(found, "ods.d").columns_known


# AS


def test_create_table_as_is_a_table_whose_origin_is_known() -> None:
    found = read(
        AB + "CREATE TABLE ods.c WITH ('bucket' = '2') AS SELECT i AS k, UPPER(s) AS u FROM ods.a "
        "WHERE s <> 'x'; REPLACE TABLE ods.d AS SELECT * FROM ods.c;"
        "CREATE TABLE ods.x (v STRING); INSERT INTO ods.x SELECT u FROM ods.d"
    )
    made = table(found, "ods.c")
    assert columns(made) == ["k", "u"]
    assert made.options == {"bucket": "2"}
    assert made.filled_by is not None
    assert [t.key for t in made.filled_by.reads] == ["ods.a"]
    assert [str(o) for o in made.filled_by.row_filters] == ["lake.ods.a.s"]
    assert made.filled_by.columns is not None
    assert [str(c.origins[0]) for c in made.filled_by.columns] == ["lake.ods.a.i", "lake.ods.a.s"]
    assert columns(table(found, "ods.d")) == ["k", "u"]
    assert lineage(found) == {"v": ["lake.ods.d.u"]}
    assert [job.name for job in found.jobs] == ["s"]
    assert severities(found) == [Severity.WARNING] * 2


def test_create_table_as_in_a_statement_set_is_a_flow_of_its_job() -> None:
    found = read(
        AB + "EXECUTE STATEMENT SET BEGIN CREATE TABLE ods.c AS SELECT i AS k FROM ods.a;"
        "INSERT INTO ods.a SELECT 1, 'x'; END"
    )
    (job,) = found.jobs
    assert [sink.key for sink in job.sinks] == ["ods.c", "ods.a"]
    assert [t.key for t in job.flows[0].reads] == ["ods.a"]
    assert columns(table(found, "ods.c")) == ["k"]


# ALTER


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("ADD k BIGINT", ["i INT", "s STRING", "k BIGINT"]),
        ("ADD (k BIGINT FIRST, l INT AFTER i)", ["k BIGINT", "i INT", "l INT", "s STRING"]),
        ("MODIFY s INT", ["i INT", "s INT"]),
        ("MODIFY (s STRING FIRST)", ["s STRING", "i INT"]),
        ("RENAME s TO t", ["i INT", "t STRING"]),
        ("DROP s", ["i INT"]),
        ("DROP (s)", ["i INT"]),
        ("SET ('bucket' = '3')", ["i INT", "s STRING"]),
    ],
)
def test_alter_table_is_followed(action: str, wanted: list[str]) -> None:
    found = table(read(f"{AB} ALTER TABLE ods.a {action}"), "ods.a")
    assert columns(found) == wanted
    assert found.columns_known


@pytest.mark.parametrize(
    "action", ["DROP nobody", "ADD s INT", "MODIFY n INT", "RENAME n TO m", "ADD (x ROW<a> b)", "%"]
)
def test_a_table_is_unknown_after_what_cannot_be_followed(action: str) -> None:
    found = table(read(f"{AB} ALTER TABLE ods.a {action}"), "ods.a")
    assert (found.columns, found.columns_known) == ((), False)


def test_options_that_are_set_and_reset_show_without_secrets() -> None:
    found = table(
        read(
            AB + "ALTER TABLE ods.a SET ('x.password' = 'hush', 'y' = '${Y}');"
            "ALTER TABLE ods.a RESET ('bucket')"
        ),
        "ods.a",
    )
    assert found.options == {"x.password": "****", "y": "${Y}"}


def test_a_renamed_table_has_its_new_name() -> None:
    found = read(AB + "ALTER TABLE ods.a RENAME TO ods.b; INSERT INTO ods.x SELECT s FROM ods.b")
    assert [t.name.key for t in found.tables] == ["ods.b"]
    assert lineage(read(AB + "ALTER TABLE ods.a RENAME TO b; CREATE TABLE ods.x (v STRING);"
                        "INSERT INTO ods.x SELECT * FROM (SELECT s FROM ods.b)")) == {
        "v": ["lake.ods.b.s"]
    }  # fmt: skip


def test_a_source_whose_topic_is_changed_is_another_source() -> None:
    found = read(
        KAFKA + "ALTER TABLE k SET ('topic' = 'u'); CREATE TABLE ods.x (v INT);"
        "INSERT INTO ods.x SELECT i FROM k"
    )
    assert found.jobs[0].sources == (("kafka", "u"),)
    assert [source.asset_key for source in found.sources] == [("kafka", "u")]


# views


def test_views_are_expanded_to_columns() -> None:
    found = read(
        AB + "CREATE VIEW ods.v (x, y) AS SELECT * FROM ods.a WHERE i > 0;"
        "CREATE TEMPORARY VIEW w AS SELECT y AS z, x FROM ods.v; CREATE TABLE ods.x (p STRING);"
        "INSERT INTO ods.x SELECT z FROM w; ALTER VIEW ods.v AS SELECT s AS x, s AS y FROM ods.a;"
        "CREATE TEMPORARY VIEW w2 AS SELECT ?? FROM a; INSERT INTO ods.x SELECT x FROM ods.v"
    )
    assert lineage(found) == {"p": ["lake.ods.a.s"]}
    assert [str(origin) for origin in found.jobs[0].flows[0].row_filters] == ["lake.ods.a.i"]
    assert lineage(found, 1) == {"p": ["lake.ods.a.s"]}
    assert found.jobs[1].flows[0].row_filters == ()
    assert [view.dependencies_known for view in found.views] == [True, True, True, False]


# columns of sources and of tables behind other names


def test_a_computed_column_is_made_from_the_columns_it_names() -> None:
    found = read(
        KAFKA + "CREATE TABLE ods.x (a INT, b INT, c STRING); INSERT INTO ods.x SELECT * FROM k"
    )
    assert lineage(found) == {"a": ["kafka/t.i"], "b": ["kafka/t.i"], "c": ["kafka/t.m"]}


def test_what_is_computed_in_the_sink_is_not_written() -> None:
    found = read("CREATE TABLE ods.x (a INT, b AS a + 1, c INT); INSERT INTO ods.x SELECT 1, 2")
    assert lineage(found) == {"a": [], "c": []}


def test_system_tables_depend_on_their_table() -> None:
    found = read(
        AB + "CREATE TABLE ods.x (v STRING, w INT);"
        "INSERT INTO ods.x SELECT rowkind, i FROM ods.a$audit_log;"
        "INSERT INTO ods.x SELECT s, i FROM ods.a$ro;"
    )
    assert [[t.key for t in job.reads] for job in found.jobs] == [["ods.a"], ["ods.a"]]
    assert lineage(found) == {"v": [], "w": ["lake.ods.a.i"]}
    flow = found.jobs[1].flows[0]
    assert flow.columns is None or {c.certainty for c in flow.columns} == {Certainty.UNKNOWN}


# across scripts


def test_stars_are_expanded_from_tables_and_views_of_other_scripts() -> None:
    found = read_files(
        {
            "a.sql": "CREATE TABLE dwd.b (p INT, q STRING); INSERT INTO dwd.b SELECT * FROM ods.v",
            "b.sql": "CREATE VIEW ods.v AS SELECT * FROM ods.w WHERE u > ''",
            "c.sql": "CREATE VIEW ods.w AS SELECT i, s AS u FROM ods.a;"
            "CREATE TABLE ods.c LIKE ods.a",
            "d.sql": AB,
        }
    )
    assert lineage(found) == {"p": ["lake.ods.a.i"], "q": ["lake.ods.a.s"]}
    assert [str(origin) for origin in found.jobs[0].flows[0].row_filters] == ["lake.ods.a.s"]
    assert [t.key for t in found.jobs[0].reads] == ["ods.a"]
    assert columns(table(found, "ods.c")) == ["i INT", "s STRING"]
    assert found.problems == ()


def test_views_that_lead_back_to_themselves_are_unknown() -> None:
    found = read_files(
        {
            "a.sql": "CREATE VIEW ods.u AS SELECT * FROM ods.v",
            "b.sql": "CREATE VIEW ods.v AS SELECT * FROM ods.w",
            "c.sql": "CREATE VIEW ods.w AS SELECT * FROM ods.u",
            "d.sql": "CREATE TABLE ods.d (i INT); INSERT INTO ods.d SELECT * FROM ods.u",
        }
    )
    assert found.jobs[0].reads == ()
    assert not found.jobs[0].dependencies_known
    assert found.jobs[0].flows[0].columns is None


def test_a_catalog_that_another_script_creates_is_known_by_name() -> None:
    found = read_files(
        {
            "a.sql": "CREATE TABLE ods.a (i INT); INSERT INTO ods.a SELECT i FROM old.db.t",
            "b.sql": "CREATE CATALOG old WITH ('type' = 'jdbc', 'base-url' = "
            "'jdbc:postgresql://h:5432/'); CREATE TABLE old.db.t (i INT, j INT)",
            "c.sql": "INSERT INTO ods.a SELECT i FROM other.db.t",
        }
    )
    assert found.jobs[0].sources == (("postgres", "db", "public", "t"),)
    assert lineage(found) == {"i": ["postgres/db/public/t.i"]}
    assert not found.jobs[1].dependencies_known


def test_tables_of_other_catalogs_of_the_project_have_their_keys() -> None:
    found = read_files(
        {"a.sql": "CREATE TABLE ods.a (i INT); INSERT INTO ods.a SELECT i FROM arch.db.t$ro;"
                  "INSERT INTO arch.db.u SELECT 1"},
        other_catalogs={"arch": ("cold", "store")},
    )  # fmt: skip
    assert found.jobs[0].sources == (("cold", "store", "db", "t"),)
    assert found.jobs[1].flows[0].external_sink == ("cold", "store", "db", "u")


def test_temporary_tables_and_settings_of_another_script_are_not_seen() -> None:
    found = read_files(
        {
            "a.sql": f"SET 'pipeline.name' = 'n'; USE ods; {KAFKA}",
            "b.sql": "INSERT INTO x SELECT * FROM k",
        }
    )
    assert found.jobs[0].name == "b"
    assert [t.key for t in found.jobs[0].reads] == ["default.k"]
    assert [t.key for t in found.jobs[0].sinks] == ["default.x"]


def test_a_view_that_cannot_be_read_is_unknown_elsewhere_too() -> None:
    found = read_files(
        {
            "a.sql": "CREATE VIEW ods.v AS SELECT ?? FROM ods.a",
            "b.sql": "CREATE TABLE ods.b (i INT); INSERT INTO ods.b SELECT * FROM ods.v",
        }
    )
    assert found.jobs[0].reads == ()
    assert not found.jobs[0].dependencies_known


def test_hostile_names_are_names() -> None:
    name = "t.a\"b\n'c' ${x} " + "n" * 300
    found = read(f"CREATE TABLE ods.`{name}` (i INT); INSERT INTO ods.b SELECT i FROM ods.a")
    assert found.tables == ()
    name = name.replace("${x}", "ü✓")
    found = read(
        f"CREATE TABLE ods.`{name}` (`c;``1` INT); CREATE TABLE ods.b (v INT);"
        f"INSERT INTO ods.b SELECT `c;``1` FROM ods.`{name}`"
    )
    assert found.tables[0].name == TableName("lake", "ods", name)
    assert lineage(found) == {"v": [f"lake.ods.{name}.c;`1"]}

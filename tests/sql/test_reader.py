"""Reading one script: tables, sources, views and jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehouse_dagster.sql import Column, ColumnKind, Script, Severity, TableName, read_script
from lakehouse_dagster.sql.packing import pack, unpack
from lakehouse_dagster.sql.transport import from_data, to_data
from tests.sql.in_process import read_alone
from tests.sql.samples import DECLARATIONS, INSERTS, SETS, UNPLANNABLE

WORK_ORDER = """
-- events of the business database
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.work_order (
  order_id BIGINT COMMENT 'ticket',
  amount DECIMAL(10,2),
  dt STRING NOT NULL,
  day_name AS DATE_FORMAT(ts, 'E'),
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (order_id) NOT ENFORCED
) COMMENT 'newest version' PARTITIONED BY (dt) WITH ('bucket' = '2', 's3.secret-key' = '${S3_KEY}');
CREATE TEMPORARY TABLE events (
  order_id BIGINT, k STRING METADATA FROM 'key' VIRTUAL
) WITH ('connector' = 'kafka', 'topic' = 'orders.v1', 'properties.sasl.password' = '${PW}');
SET 'execution.checkpointing.interval' = '${INTERVAL:-1min}';
SET table.exec.mini-batch.enabled = true;
INSERT INTO ods.work_order SELECT * FROM events;
"""


def read(text: str, path: str = "work_order.sql") -> Script:
    return read_alone(text, path)


def warnings(script: Script) -> list[str]:
    return [p.message for p in script.problems if p.severity is Severity.WARNING]


def errors(script: Script) -> list[str]:
    return [p.message for p in script.problems if p.severity is Severity.ERROR]


def keys(names: tuple[TableName, ...]) -> list[str]:
    return [name.key for name in names]


def test_a_table_is_read_with_columns_keys_options_and_comment() -> None:
    table = read(WORK_ORDER).tables[0]
    assert table.name == TableName("lake", "ods", "work_order")
    assert table.columns == (
        Column("order_id", "BIGINT", nullable=False, comment="ticket"),
        Column("amount", "DECIMAL(10, 2)"),
        Column("dt", "STRING", nullable=False),
        Column("day_name", "", kind=ColumnKind.COMPUTED),
        Column("ts", "TIMESTAMP(3)"),
    )
    assert table.primary_key == ("order_id",)
    assert table.partition_keys == ("dt",)
    assert table.options == {"bucket": "2", "s3.secret-key": "****"}
    assert table.comment == "newest version"
    assert (table.location.line, table.location.column) == (4, 1)


def test_a_source_is_read_and_its_secrets_are_masked() -> None:
    source = read(WORK_ORDER).sources[0]
    assert source.asset_key == ("kafka", "orders.v1")
    assert source.connector == "kafka"
    assert source.columns[1] == Column("k", "STRING", kind=ColumnKind.METADATA)
    assert source.options["properties.sasl.password"] == "****"


def test_a_job_has_what_it_reads_writes_and_needs() -> None:
    job = read(WORK_ORDER).jobs[0]
    assert (job.name, job.name_is_explicit) == ("work_order", False)
    assert keys(job.sinks) == ["ods.work_order"]
    assert (job.reads, job.sources) == ((), (("kafka", "orders.v1"),))
    assert job.dependencies_known
    assert not job.reads_itself
    assert [s.kind.value for s in job.setup] == [
        "create database",
        "create table",
        "create temporary table",
    ]
    assert "'${PW}'" in job.setup[2].text
    assert job.settings == {
        "execution.checkpointing.interval": "${INTERVAL:-1min}",
        "table.exec.mini-batch.enabled": "true",
    }
    assert job.statement.text == "INSERT INTO ods.work_order SELECT * FROM events"


def test_an_ordinary_script_has_no_problems() -> None:
    assert read(WORK_ORDER).problems == ()


@pytest.mark.parametrize("name", [*INSERTS, *UNPLANNABLE])
def test_what_an_insert_reads(name: str) -> None:
    statement, tables, sources = (INSERTS | UNPLANNABLE)[name]
    script = read(";\n".join([*DECLARATIONS, statement]))
    job = script.jobs[0]
    own = keys(job.sinks) if job.reads_itself else []
    names = {source.asset_key: source.name.table for source in script.sources}
    assert {*keys(job.reads), *own} == tables
    assert {names[source] for source in job.sources} == sources
    assert job.dependencies_known
    assert errors(script) == []


def test_the_flows_of_a_statement_set_are_told_apart() -> None:
    script = read(";\n".join([*DECLARATIONS, SETS[1]]), "app.sql")
    (job,) = script.jobs
    assert job.name == "app"
    assert keys(job.sinks) == ["app.texts"]
    assert keys(job.reads) == ["ods.agent"]
    assert [flow.external_sink for flow in job.flows] == [("blackhole", "hole"), None]
    assert [keys(flow.reads) for flow in job.flows] == [[], ["ods.agent"]]


def test_in_a_statement_set_one_unknown_insert_leaves_the_others_known() -> None:
    script = read(
        "EXECUTE STATEMENT SET BEGIN\nINSERT INTO a.x SELECT * FROM b.y;\n"
        "INSERT INTO a.z SELECT ?? FROM c.z;\nEND"
    )
    (job,) = script.jobs
    assert keys(job.sinks) == ["a.x", "a.z"]
    assert [flow.dependencies_known for flow in job.flows] == [True, False]
    assert not job.dependencies_known
    assert [p.location.line for p in script.problems] == [3]


# jobs and their names


def test_pipeline_name_in_force_names_each_job() -> None:
    script = read(
        "SET 'pipeline.name' = 'one'; INSERT INTO a.x SELECT 1;"
        "SET pipeline.name = two; INSERT INTO a.y SELECT 1"
    )
    assert [(job.name, job.name_is_explicit) for job in script.jobs] == [
        ("one", True),
        ("two", True),
    ]


def names_of(text: str, path: str = "app.sql") -> list[str]:
    return [job.name for job in read(text, path).jobs]


def test_the_first_job_without_a_name_keeps_the_files_when_others_are_added() -> None:
    first, second = "INSERT INTO a.x SELECT 1;", "INSERT INTO a.y SELECT 1;"
    assert names_of(first) == ["app"]
    assert names_of(first + second) == ["app", "app_y"]
    assert names_of(first + second + second) == ["app", "app_y", "app_y_2"]
    assert names_of(first + second + "INSERT INTO a.z SELECT 1") == ["app", "app_y", "app_z"]


@pytest.mark.parametrize("path", ["y.sql", "a.y.sql", "a_y.sql"])
def test_the_job_of_the_table_that_the_file_is_named_after_keeps_its_name(path: str) -> None:
    stem = path.removesuffix(".sql")
    second = "INSERT INTO a.y SELECT 1;"
    assert names_of(second, path) == [stem]
    assert names_of("INSERT INTO a.x SELECT 1;" + second, path) == [f"{stem}_x", stem]


def test_a_name_that_a_job_has_itself_is_given_to_no_other() -> None:
    named = "SET 'pipeline.name' = 'app'; INSERT INTO a.x SELECT 1; RESET;"
    assert names_of(named + "INSERT INTO a.y SELECT 1") == ["app", "app_y"]


def test_a_named_job_does_not_change_the_name_of_the_unnamed_one() -> None:
    script = read(
        "INSERT INTO a.x SELECT 1; SET 'pipeline.name' = 'n'; INSERT INTO a.y SELECT 1", "app.sql"
    )
    assert [job.name for job in script.jobs] == ["app", "n"]


def test_two_jobs_of_one_name_are_an_error_at_the_second() -> None:
    script = read("SET 'pipeline.name' = 'n';\nINSERT INTO a.x SELECT 1;\nINSERT INTO a.y SELECT 1")
    assert [job.statement.text for job in script.jobs] == ["INSERT INTO a.x SELECT 1"]
    (problem,) = script.problems
    assert problem.severity is Severity.ERROR
    assert str(problem.location) == "work_order.sql:3:1"
    assert problem.message == "Two jobs are named n; the other is at work_order.sql:2:1."
    assert "statement set" in problem.remedy


def test_a_job_whose_name_holds_a_variable_is_an_error() -> None:
    script = read("SET 'pipeline.name' = '${NAME}'; INSERT INTO a.x SELECT 1")
    assert script.jobs == ()
    assert errors(script) == ["The job's name depends on ${NAME}, which is not known beforehand."]


def test_reset_takes_settings_away() -> None:
    script = read("SET a = 1; SET b = 2; RESET 'a'; INSERT INTO a.x SELECT 1")
    assert script.jobs[0].settings == {"b": "2"}
    script = read("SET a = 1; RESET; INSERT INTO a.x SELECT 1")
    assert script.jobs[0].settings == {}


def test_a_batch_insert_is_no_streaming_job() -> None:
    script = read(
        "SET 'execution.runtime-mode' = 'BATCH'; INSERT INTO a.x SELECT 1;"
        "RESET 'execution.runtime-mode'; INSERT INTO a.y SELECT 1"
    )
    assert [keys(job.sinks) for job in script.jobs] == [["a.y"]]
    assert "batch mode" in warnings(script)[0]


def test_inserts_that_cannot_stream_are_warned_of() -> None:
    script = read("INSERT OVERWRITE a.x SELECT 1")
    assert "OVERWRITE cannot run as a stream" in warnings(script)[0]
    assert script.jobs == ()
    assert "ends by itself" in warnings(read("INSERT INTO a.x VALUES (1)"))[0]


# what a job is made from


def test_the_fingerprint_ignores_space_and_comments_only() -> None:
    def fingerprint(text: str) -> str:
        return read(text).jobs[0].fingerprint

    first = fingerprint("SET 'a' = 'b';\nUSE ods; INSERT INTO x SELECT a,b FROM y WHERE c='d  e'")
    same = fingerprint(
        "-- new\nSET 'a'='b'; USE /* why */ ods;\nINSERT INTO x\n SELECT a, b FROM y // z\n"
        " WHERE c = 'd  e'"
    )
    assert first == same
    for changed in (
        "SET 'a' = 'c';\nUSE ods; INSERT INTO x SELECT a,b FROM y WHERE c='d  e'",
        "SET 'a' = 'b';\nUSE dwd; INSERT INTO x SELECT a,b FROM y WHERE c='d  e'",
        "SET 'a' = 'b';\nUSE ods; INSERT INTO x SELECT a,b FROM y WHERE c='d e'",
        "SET 'a' = 'b';\nUSE ods; INSERT INTO x SELECT a,b FROM y /*+ OPTIONS('x'='y') */ "
        "WHERE c='d  e'",
    ):
        assert fingerprint(changed) != first


def test_fingerprints_stay_what_they_are_stored_as_in_whatever_order_they_are_asked_for() -> None:
    text = """
CREATE TABLE a (x INT);  -- one
INSERT INTO b SELECT x FROM a;
CREATE TABLE c (x INT);
SET 'k' = 'v';
INSERT INTO d SELECT x FROM c;
"""
    stored = [
        "8ce9f575a6a5d44151923f2f08b90813658e1c85d59fcc28d67adeecb438c00a",
        "af139c165d68efcb25c140c2ebabef18701ce535431b056a34aef70c2954063f",
    ]
    other = read("CREATE TABLE a (x STRING); INSERT INTO b SELECT x FROM a").jobs[0]
    first, second = read(text).jobs
    assert [first.fingerprint, second.fingerprint] == stored
    assert [second.fingerprint, first.fingerprint] == stored[::-1]
    assert other.fingerprint not in stored
    assert second.fingerprint == stored[1]


def test_setup_holds_what_makes_the_session_and_nothing_that_acts() -> None:
    script = read(
        "CREATE CATALOG lake WITH ('type' = 'paimon'); CREATE CATALOG h WITH ('type' = 'hive');"
        "LOAD MODULE hive; ADD JAR '/x.jar'; CREATE TEMPORARY FUNCTION f AS 'a.B'; USE ods;"
        "SELECT 1; SHOW TABLES; CALL sys.compact('a.b'); DROP TABLE ods.x;"
        "CREATE TABLE y AS SELECT 1; DELETE FROM ods.x; DROP TEMPORARY VIEW IF EXISTS v;"
        "INSERT INTO x SELECT 1; CREATE TABLE late (i INT)"
    )
    assert [s.text.split(" WITH")[0] for s in script.jobs[0].setup] == [
        "CREATE CATALOG h",
        "LOAD MODULE hive",
        "ADD JAR '/x.jar'",
        "CREATE TEMPORARY FUNCTION f AS 'a.B'",
        "USE ods",
        "DROP TEMPORARY VIEW IF EXISTS v",
    ]
    assert [m.split(" ")[0] for m in warnings(script)] == ["The", "DROP", "CREATE", "The"]


# names


def test_names_are_completed_from_the_current_catalog_and_database() -> None:
    script = read(
        "USE ods; CREATE TABLE a (i INT); INSERT INTO a SELECT * FROM b;"
        "USE lake.dwd; INSERT INTO c SELECT * FROM ods.a; USE CATALOG lake;"
        "INSERT INTO d SELECT * FROM `lake`.`dwd`.`c`",
        "s.sql",
    )
    assert [table.name.key for table in script.tables] == ["ods.a"]
    assert [(keys(j.sinks), keys(j.reads)) for j in script.jobs] == [
        (["ods.a"], ["ods.b"]),
        (["dwd.c"], ["ods.a"]),
        (["default.d"], ["dwd.c"]),
    ]


def test_a_temporary_table_hides_the_lakes_table_of_the_same_name() -> None:
    script = read(
        "CREATE TEMPORARY TABLE ods.a (i INT) WITH ('connector' = 'datagen');"
        "INSERT INTO ods.b SELECT * FROM ods.a; DROP TEMPORARY TABLE ods.a;"
        "INSERT INTO ods.c SELECT * FROM ods.a"
    )
    assert [(keys(j.reads), j.sources) for j in script.jobs] == [
        ([], (("datagen", "a"),)),
        (["ods.a"], ()),
    ]


def test_tables_of_other_catalogs_are_sources() -> None:
    script = read(
        "CREATE CATALOG old WITH ('type' = 'hive'); CREATE TABLE old.db.x (i INT);"
        "INSERT INTO ods.a SELECT * FROM old.db.t JOIN old.db.x ON t.i = x.i"
    )
    assert script.jobs[0].sources == (("hive", "db", "t"), ("hive", "db", "x"))
    assert script.tables == ()


def test_another_paimon_catalog_is_pointed_out() -> None:
    script = read("CREATE CATALOG p WITH ('type' = 'paimon'); USE CATALOG p; USE ods;"
                  "CREATE TABLE t (i INT)")  # fmt: skip
    assert script.tables == ()
    assert "The Paimon catalog p is not the lake's catalog, lake" in warnings(script)[0]
    text = "CREATE CATALOG p WITH ('type' = 'paimon'); USE CATALOG p; CREATE TABLE ods.t (i INT)"
    renamed = read_alone(text, "s.sql", lake="p")
    assert [str(table.name) for table in renamed.tables] == ["p.ods.t"]
    assert renamed.problems == ()


def test_a_table_of_an_unknown_catalog_is_unknown_and_not_guessed() -> None:
    script = read("INSERT INTO ods.a SELECT * FROM elsewhere.db.t")
    assert (script.jobs[0].reads, script.jobs[0].sources) == ((), ())
    assert not script.jobs[0].dependencies_known
    assert "no statement of the script declares elsewhere.db.t" in warnings(script)[0]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO ods.a SELECT * FROM ${DB}.t",
        "INSERT INTO ods.a SELECT * FROM ods.t_${ENV}",
        "USE ${DB}; INSERT INTO lake.ods.a SELECT * FROM t",
        "CREATE VIEW ods.v AS SELECT * FROM ${DB}.t; INSERT INTO ods.a SELECT * FROM ods.v",
        "CREATE TEMPORARY VIEW v AS SELECT ?? FROM t; INSERT INTO ods.a SELECT * FROM v",
        "CREATE TEMPORARY TABLE s (a ?) WITH ('connector' = 'x');INSERT INTO ods.a SELECT * FROM s",
    ],
)
def test_a_name_that_cannot_be_told_makes_the_dependencies_unknown(text: str) -> None:
    script = read(text)
    (job,) = script.jobs
    assert keys(job.sinks) == ["ods.a"]
    assert job.reads == ()
    assert not job.dependencies_known
    assert errors(script) == []


@pytest.mark.parametrize(
    ("text", "sinks"),
    [
        ("INSERT INTO ods.a SELECT x FROM b WINDOWED BY y", ["ods.a"]),
        ("INSERT INTO `ods`.`a b` /*+ OPTIONS('x' = 'y') */ SELECT x FROM b ?", ["ods.a b"]),
        ("INSERT INTO ods.t_${ENV} SELECT x FROM b ?", []),
        ("INSERT INTO ${T} SELECT x FROM ods.b", []),
        ("INSERT INTO a.b.c.d SELECT x FROM ods.b", []),
        ("INSERT ods.a SELECT 1", ["ods.a"]),
        ("INSERT INTO ods.a$branch_fix SELECT 1", []),
        ("SET 'table.sql-dialect' = 'hive'; INSERT INTO ods.a SELECT * FROM x.y", ["ods.a"]),
    ],
)
def test_an_insert_that_cannot_be_read_is_still_a_job(text: str, sinks: list[str]) -> None:
    script = read(text)
    (job,) = script.jobs
    assert keys(job.sinks) == sinks
    assert not job.dependencies_known
    assert len(warnings(script)) == 1


# sources


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ("'connector'='kafka', 'topic'='a.b-c_d'", ("kafka", "a.b-c_d")),
        ("'connector'='upsert-kafka', 'topic'='a;b'", ("kafka", "a_b")),
        ("'connector'='kafka', 'topic'='${TOPIC}'", ("kafka", "src")),
        ("'connector'='kafka', 'topic-pattern'='a.*'", ("kafka", "src")),
        ("'connector'='filesystem', 'path'='file:///data/in/orders/'",
         ("filesystem", "in", "orders")),
        ("'connector'='filesystem', 'path'='s3://bucket/${DAY}/orders'", ("filesystem", "orders")),
        ("'connector'='filesystem', 'path'='${IN}'", ("filesystem", "src")),
        ("'connector'='mysql-cdc', 'database-name'='shop', 'table-name'='order'",
         ("mysql", "shop", "order")),
        ("'connector'='postgres-cdc', 'database-name'='d', 'schema-name'='s', 'table-name'='t'",
         ("postgres", "d", "s", "t")),
        ("'connector'='jdbc', 'url'='jdbc:mysql://h:3306/shop?x=y', 'table-name'='order'",
         ("mysql", "shop", "order")),
        ("'connector'='datagen'", ("datagen", "src")),
        ("'connector'='my/strange connector'", ("my_strange_connector", "src")),
    ],
)  # fmt: skip
def test_sources_have_keys_that_do_not_depend_on_the_scripts_wording(
    options: str, key: tuple[str, ...]
) -> None:
    script = read(f"CREATE TEMPORARY TABLE src (i INT) WITH ({options})")
    assert [source.asset_key for source in script.sources] == [key]


def test_source_keys_are_keys_to_dagster() -> None:
    from dagster import AssetKey, AssetSpec, Definitions

    script = read(";\n".join(DECLARATIONS))
    found = [source.asset_key for source in script.sources]
    specs = Definitions(assets=[AssetSpec(AssetKey(list(key))) for key in found])
    assert len(list(specs.resolve_asset_graph().get_all_asset_keys())) == len(found) == 4


def test_what_is_only_written_is_an_external_sink_and_no_source() -> None:
    script = read(
        "CREATE TEMPORARY TABLE p (i INT) WITH ('connector' = 'print');"
        "CREATE TEMPORARY TABLE k (i INT) WITH ('connector' = 'kafka', 'topic' = 'out');"
        "CREATE TEMPORARY TABLE unused (i INT) WITH ('connector' = 'kafka', 'topic' = 'in');"
        "INSERT INTO k SELECT * FROM ods.a"
    )
    (job,) = script.jobs
    assert job.sinks == ()
    assert job.flows[0].external_sink == ("kafka", "out")
    assert job.dependencies_known
    assert [source.asset_key for source in script.sources] == [("kafka", "in")]


def test_like_takes_over_a_sources_columns_and_options() -> None:
    script = read(
        "CREATE TEMPORARY TABLE a (i INT) WITH ('connector' = 'kafka', 'topic' = 'one');"
        "CREATE TEMPORARY TABLE b (j INT) WITH ('topic' = 'two') LIKE a;"
        "CREATE TABLE ods.c WITH ('bucket' = '1') LIKE a (EXCLUDING OPTIONS)"
    )
    assert [(s.asset_key, len(s.columns)) for s in script.sources] == [
        (("kafka", "one"), 1),
        (("kafka", "two"), 2),
    ]
    assert script.tables[0].options == {"bucket": "1"}
    assert [c.name for c in script.tables[0].columns] == ["i"]


def test_a_connector_table_in_the_lakes_catalog_has_to_be_temporary() -> None:
    script = read("CREATE TABLE ods.k (i INT) WITH ('connector' = 'kafka', 'topic' = 't')")
    assert script.tables == ()
    assert script.sources[0].asset_key == ("kafka", "t")
    assert "takes no table of connector 'kafka'" in warnings(script)[0]


# the model


def test_the_model_goes_through_json_unchanged() -> None:
    script = read(";\n".join([*DECLARATIONS, SETS[0], "??", "'"]))
    assert script.problems
    assert from_data(Script, json.loads(json.dumps(to_data(script)))) == script
    assert unpack(Script, json.loads(json.dumps(pack(script)))) == script


def test_what_is_equal_is_packed_once() -> None:
    script = read("CREATE TABLE a.t (x INT); INSERT INTO a.t SELECT 1; INSERT INTO a.t SELECT 2")
    packed = pack(script)
    assert [len(job.setup) for job in script.jobs] == [1, 1]
    assert len(packed["Statement"][0]) == 3
    assert packed["Column"][:2] == [["x"], ["INT"]]


def test_secrets_do_not_show_in_a_scripts_repr() -> None:
    script = read(
        "CREATE CATALOG c WITH ('type' = 'jdbc', 'password' = 'hush');"
        "CREATE TEMPORARY TABLE s (i INT) WITH ('connector' = 'jdbc', 'password' = 'hush', "
        "'url' = 'jdbc:mysql://u:hush@h/d?password=hush');"
        "CREATE TEMPORARY TABLE t (i INT) WITH ('password' 'hush');"
        "SET 'x.password' = 'hush'; INSERT INTO ods.a SELECT * FROM s; SELECT 'hush' 'hush"
    )
    assert "hush" not in repr(script)
    assert "hush" not in " ".join(str(problem) for problem in script.problems)


def test_a_file_is_read_as_utf_8_with_or_without_mark(tmp_path: Path) -> None:
    path = tmp_path / "é.sql"
    path.write_bytes("\ufeffINSERT INTO ods.é\r\nSELECT 'ü'".encode())
    script = read_script(path)
    assert keys(script.jobs[0].sinks) == ["ods.é"]
    assert script.jobs[0].name == "é"
    assert script.problems == ()

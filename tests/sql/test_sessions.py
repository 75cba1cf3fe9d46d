"""Sessions over several files: session files, SOURCE, numbered scripts, where a session begins."""

from __future__ import annotations

from lakehouse_dagster.sql.model import JobDefinition, Problem, Project, Severity
from tests.sql.in_process import read_files


def job(found: Project, name: str) -> JobDefinition:
    return next(job for job in found.jobs if job.name == name)


def setup(found: Project, name: str) -> list[str]:
    return [statement.text for statement in job(found, name).setup]


def errors(found: Project) -> list[str]:
    return [str(problem) for problem in found.errors]


def of_severity(found: Project, severity: Severity) -> list[Problem]:
    return [problem for problem in found.problems if problem.severity is severity]


SOURCE = "CREATE TEMPORARY TABLE ev (i INT) WITH ('connector' = 'kafka', 'topic' = 't')"


def test_session_files_run_before_every_script() -> None:
    found = read_files(
        {
            "init.sql": f"SET 'a' = 'b';\nUSE ods;\n{SOURCE}",
            "x.sql": "CREATE TABLE x (i INT); INSERT INTO x SELECT * FROM ev",
            "y.sql": "USE dwd; CREATE TABLE y (i INT); INSERT INTO y SELECT i FROM ods.x",
        },
        session=["init.sql"],
    )
    assert found.problems == ()
    assert [script.path for script in found.scripts] == ["init.sql", "x.sql", "y.sql"]
    assert [table.name.key for table in found.tables] == ["ods.x", "dwd.y"]
    assert setup(found, "x") == ["USE ods", SOURCE, "CREATE TABLE x (i INT)"]
    assert setup(found, "y") == ["USE ods", SOURCE, "USE dwd", "CREATE TABLE y (i INT)"]
    assert [str(s.location) for s in job(found, "x").setup] == [
        "init.sql:2:1", "init.sql:3:1", "x.sql:1:1"
    ]  # fmt: skip
    assert job(found, "x").settings == job(found, "y").settings == {"a": "b"}
    assert job(found, "x").sources == (("kafka", "t"),)
    assert [source.asset_key for source in found.sources] == [("kafka", "t")]


def test_a_session_file_starts_no_job() -> None:
    found = read_files(
        {"i.sql": "INSERT INTO ods.x SELECT 1", "x.sql": "CREATE TABLE ods.x (i INT)"},
        session=["i.sql"],
    )
    assert found.jobs == ()
    (problem,) = found.problems
    assert str(problem.location) == "i.sql:1:1"
    assert problem.message.startswith("A job in a session file")


def test_source_puts_the_statements_of_a_file_in_its_place() -> None:
    found = read_files(
        {
            "jobs/x.sql": "SOURCE '../included/a.sql';\nINSERT INTO ods.x SELECT * FROM ev",
            "included/a.sql": f"SOURCE b.sql;\n{SOURCE}",
            "included/b.sql": "CREATE TABLE ods.x (i INT)",
        }
    )
    assert found.problems == ()
    assert setup(found, "x") == ["CREATE TABLE ods.x (i INT)", SOURCE]
    assert [str(s.location) for s in job(found, "x").setup] == [
        "included/b.sql:1:1", "included/a.sql:2:1"
    ]  # fmt: skip
    assert job(found, "x").sources == (("kafka", "t"),)
    assert [table.name.key for table in found.tables] == ["ods.x"]


def test_source_of_a_missing_file_and_of_itself_are_errors_at_their_places() -> None:
    found = read_files(
        {
            "x.sql": "USE a;\n  SOURCE 'none.sql';\nSOURCE 'included/a.sql'",
            "included/a.sql": "SOURCE a.sql;\nSOURCE ../x.sql; USE b",
        }
    )
    assert [error.split(". ")[0] for error in errors(found)] == [
        "x.sql:2:3: error: SOURCE: none.sql cannot be opened",
        "included/a.sql:1:1: error: SOURCE: included/a.sql includes itself",
        "included/a.sql:2:1: error: SOURCE: x.sql includes itself",
    ]
    assert [s.text for s in found.scripts[0].statements] == ["USE a", "USE b"]


def test_the_files_of_a_folder_can_be_one_session() -> None:
    files = {
        "f/01_sources.sql": f"USE ods;\nSET 'pipeline.max-parallelism' = '8';\n{SOURCE}",
        "f/02_x.sql": "CREATE TABLE x (i INT); INSERT INTO x SELECT * FROM ev",
    }
    apart, together = read_files(files), read_files(files, together=True)
    assert job(apart, "02_x").sources == ()
    assert [table.key for table in job(apart, "02_x").reads] == ["default.ev"]
    assert job(together, "02_x").sources == (("kafka", "t"),)
    assert [table.key for table in job(together, "02_x").sinks] == ["ods.x"]
    assert setup(together, "02_x") == ["USE ods", SOURCE, "CREATE TABLE x (i INT)"]
    assert job(together, "02_x").settings == {"pipeline.max-parallelism": "8"}
    assert [len(script.statements) for script in together.scripts] == [3, 2]


def test_a_script_that_makes_the_lakes_catalog_itself_begins_where_flink_does() -> None:
    text = (
        "CREATE TABLE ev (i INT) WITH ('connector' = 'kafka', 'topic' = 't');\n"
        "CREATE CATALOG lake WITH ('type' = 'paimon');\nUSE CATALOG lake;\n"
        "CREATE TABLE ods.x (i INT);\n"
        "INSERT INTO ods.x SELECT * FROM default_catalog.default_database.ev"
    )
    found = read_files({"x.sql": text})
    assert found.problems == ()
    assert job(found, "x").sources == (("kafka", "t"),)
    assert setup(found, "x")[0] == "USE CATALOG `default_catalog`"
    assert not any("CREATE CATALOG" in text for text in setup(found, "x"))
    assert [table.name.key for table in found.tables] == ["ods.x"]


def test_a_script_that_only_makes_sure_of_the_catalog_begins_in_it() -> None:
    found = read_files(
        {"x.sql": "CREATE CATALOG lake WITH ('type' = 'paimon'); CREATE TABLE ods.x (i INT);"
                  "INSERT INTO ods.x SELECT 1"}
    )  # fmt: skip
    assert setup(found, "x") == ["CREATE TABLE ods.x (i INT)"]
    assert [str(table.name) for table in found.tables] == ["lake.ods.x"]


def test_begin_statement_set_may_open_a_file_before_its_declarations() -> None:
    found = read_files(
        {
            "x.sql": "BEGIN STATEMENT SET;\nSET 'pipeline.name' = 'n';\n"
            "CREATE TABLE ods.x (i INT);\nINSERT INTO ods.x SELECT 1;\nEND;"
        }
    )
    (one,) = found.jobs
    assert (one.name, [sink.key for sink in one.sinks]) == ("n", ["ods.x"])
    assert [s.text for s in one.setup] == ["CREATE TABLE ods.x (i INT)"]
    assert one.statement.text.split() == (
        ["BEGIN", "STATEMENT", "SET;", "INSERT", "INTO", "ods.x", "SELECT", "1;", "END"]
    )
    assert [p.location.line for p in of_severity(found, Severity.WARNING)] == [2, 3]


def test_the_hive_dialect_is_kept_apart() -> None:
    found = read_files(
        {
            "x.sql": "CREATE CATALOG h WITH ('type' = 'hive'); USE CATALOG h;\n"
            "SET table.sql-dialect=hive;\n"
            "CREATE TABLE db.t (a STRING) PARTITIONED BY (dt STRING) STORED AS orc;\n"
            "SET table.sql-dialect=default;\nUSE CATALOG lake; CREATE TABLE ods.x (a STRING);\n"
            "INSERT INTO ods.x SELECT a FROM h.db.t"
        }
    )
    (one,) = found.jobs
    assert one.sources == (("hive", "db", "t"),)
    assert one.dependencies_known
    assert [s.text for s in one.setup if s.text.startswith("SET")] == [
        "SET table.sql-dialect=hive",
        "SET table.sql-dialect=default",
    ]
    (problem,) = found.problems
    assert "It is in the Hive dialect" in problem.message
    assert problem.location.line == 3


def test_a_session_file_that_makes_the_lakes_catalog_begins_where_flink_does() -> None:
    found = read_files(
        {
            "init.sql": "CREATE TABLE ev (i INT) WITH ('connector' = 'datagen');"
            "CREATE CATALOG lake WITH ('type' = 'paimon'); USE CATALOG lake; USE ods",
            "x.sql": "CREATE TABLE x (i INT); INSERT INTO x SELECT * FROM "
            "default_catalog.default_database.ev",
        },
        session=["init.sql"],
    )
    assert found.problems == ()
    assert job(found, "x").sources == (("datagen", "ev"),)
    assert [sink.key for sink in job(found, "x").sinks] == ["ods.x"]
    assert setup(found, "x")[0] == "USE CATALOG `default_catalog`"


def test_a_session_file_that_takes_the_catalog_for_granted_finds_it_current() -> None:
    found = read_files(
        {
            "init.sql": "CREATE DATABASE IF NOT EXISTS ods",
            "x.sql": "CREATE CATALOG lake WITH ('type' = 'paimon'); USE CATALOG lake;"
            "CREATE TABLE ods.x (i INT); INSERT INTO ods.x SELECT 1",
        },
        session=["init.sql"],
    )
    assert setup(found, "x")[:2] == [
        "CREATE DATABASE IF NOT EXISTS ods",
        "USE CATALOG `default_catalog`",
    ]

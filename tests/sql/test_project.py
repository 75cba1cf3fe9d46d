"""Reading several scripts as one project."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.sql import Project, Severity, read_project


def project(folder: Path, **scripts: str) -> Project:
    paths = []
    for name, text in scripts.items():
        path = folder / f"{name}.sql"
        path.write_text(text)
        paths.append(path)
    return read_project(paths, base=folder)


def messages(found: Project) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_tables_declared_in_another_script_are_known(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        b="CREATE TABLE dwd.b (i INT); INSERT INTO dwd.b SELECT * FROM ods.a",
        a="CREATE TABLE ods.a (i INT);"
        "CREATE TEMPORARY TABLE s (i INT) WITH ('connector' = 'kafka', 'topic' = 't');"
        "INSERT INTO ods.a SELECT * FROM s",
    )
    assert [table.name.key for table in found.tables] == ["ods.a", "dwd.b"]
    assert [job.name for job in found.jobs] == ["a", "b"]
    assert [table.key for table in found.jobs[1].reads] == ["ods.a"]
    assert found.problems == ()


def test_a_table_that_no_script_declares_is_read_and_warned_of(tmp_path: Path) -> None:
    found = project(tmp_path, a="INSERT INTO dwd.b SELECT * FROM ods.a")
    assert [table.key for table in found.jobs[0].reads] == ["ods.a"]
    assert found.jobs[0].dependencies_known
    assert [p.severity for p in found.problems] == [Severity.WARNING, Severity.WARNING]
    assert "The job a reads ods.a, which no script declares." in messages(found)[0]
    assert "The job a writes dwd.b, which no script declares." in messages(found)[1]


def test_temporary_tables_of_another_script_are_not_seen(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        a="CREATE TEMPORARY TABLE s (i INT) WITH ('connector' = 'datagen')",
        b="CREATE TABLE ods.b (i INT); INSERT INTO ods.b SELECT * FROM s",
    )
    assert [table.key for table in found.jobs[0].reads] == ["default.s"]
    assert "reads default.s, which no script declares" in messages(found)[0]


def test_views_of_another_script_are_expanded(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        a="CREATE TABLE ods.a (i INT); CREATE VIEW ods.v AS SELECT * FROM ods.a;"
        "CREATE VIEW ods.w AS SELECT * FROM ods.v",
        b="CREATE TABLE ods.b (i INT); INSERT INTO ods.b SELECT * FROM ods.w JOIN ods.b USING (i)",
        c="CREATE VIEW ods.x AS SELECT ?? FROM ods.a",
    )
    (job,) = found.jobs
    assert [table.key for table in job.reads] == ["ods.a"]
    assert job.reads_itself
    assert job.dependencies_known


def test_views_that_name_each_other_end(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        a="CREATE VIEW ods.v AS SELECT * FROM ods.w",
        b="CREATE VIEW ods.w AS SELECT * FROM ods.v",
        c="CREATE TABLE ods.c (i INT); INSERT INTO ods.c SELECT * FROM ods.w",
    )
    assert found.jobs[0].reads == ()


def test_a_table_declared_differently_in_two_scripts_is_an_error(tmp_path: Path) -> None:
    found = project(
        tmp_path, a="CREATE TABLE ods.a (i INT)", b="\n CREATE TABLE ods.a (i INT, j INT)"
    )
    assert [str(p.location) for p in found.errors] == ["b.sql:2:2"]
    assert found.errors[0].message == "The table ods.a is declared differently at a.sql:1:1."
    assert len(found.tables) == 1


def test_a_declaration_that_can_be_read_is_preferred(tmp_path: Path) -> None:
    found = project(tmp_path, a="CREATE TABLE ods.a (i ?)", b="CREATE TABLE ods.a (i INT)")
    assert [table.columns_known for table in found.tables] == [True]
    assert found.errors == ()


def test_two_scripts_with_a_job_of_one_name_are_an_error(tmp_path: Path) -> None:
    insert = "SET 'pipeline.name' = 'n'; INSERT INTO ods.a SELECT 1"
    found = project(tmp_path, a=insert, b=insert, c="CREATE TABLE ods.a (i INT)")
    assert [str(p) for p in found.errors] == [
        "b.sql:1:28: error: Two jobs are named n; the other is at a.sql:1:28. "
        "SET 'pipeline.name' to another name before one of them."
    ]
    assert len(found.jobs) == 1


def test_a_source_used_in_two_scripts_is_one_source(tmp_path: Path) -> None:
    source = "CREATE TEMPORARY TABLE {} (i INT) WITH ('connector' = 'kafka', 'topic' = 't');"
    found = project(
        tmp_path,
        a=source.format("x") + "INSERT INTO ods.a SELECT * FROM x",
        b=source.format("y") + "INSERT INTO ods.b SELECT * FROM y",
        c="CREATE TABLE ods.a (i INT); CREATE TABLE ods.b (i INT)",
    )
    assert [s.asset_key for s in found.sources] == [("kafka", "t")]
    assert found.problems == ()


def test_the_order_of_the_paths_does_not_matter(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.sql").write_text(f"CREATE TABLE ods.{name} (i INT)")
    paths = [tmp_path / "a.sql", str(tmp_path / "b.sql")]
    assert read_project(paths) == read_project(reversed(paths)) == read_project([*paths, *paths])


def test_the_scripts_of_the_work_order_story_are_read_without_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKE_INPUT", "/data")
    folder = Path(__file__).parents[2] / "definitions" / "sql"
    found = read_project(folder.glob("**/*.sql"), base=folder)
    assert found.problems == ()
    reads = {job.name: sorted(table.key for table in job.reads) for job in found.jobs}
    assert reads["dwd_work_order"] == ["ods.agent", "ods.city", "ods.work_order"]
    assert reads["app_agent_day"] == reads["app_city_hour"] == ["dwd.work_order"]
    assert all(job.dependencies_known for job in found.jobs)

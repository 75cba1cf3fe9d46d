"""The public object: what it finds, what it refuses, and what importing it costs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakehouse_dagster
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
from lakehouse_dagster.errors import ConfigurationError, ScriptError
from lakehouse_dagster.sql.script_files import find_scripts
from tests.streaming.making import job, load, source, table, write_scripts

ONE = table("ods.a") + source("x") + job("ods_a", "ods.a", "x")


def lakehouse(**options: Any) -> Lakehouse:
    return Lakehouse(
        catalog=PaimonCatalog(warehouse="/data/lake"),
        flink=FlinkCluster("http://jobmanager:8081", "http://gateway:8083"),
        **options,
    )


def names(paths: list[Path], base: Path) -> list[str]:
    return [path.relative_to(base).as_posix() for path in paths]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Scripts in a folder whose own name looks like a pattern."""
    base = tmp_path / "proj[1]*"
    write_scripts(base / "sql", {"b": "", "a": "", "deep/er/c": ""})
    (base / "sql" / "readme.md").touch()
    return base


@pytest.mark.parametrize(
    ("scripts", "found"),
    [
        ("sql/a.sql", ["sql/a.sql"]),
        ("sql", ["sql/a.sql", "sql/b.sql", "sql/deep/er/c.sql"]),
        (Path("sql"), ["sql/a.sql", "sql/b.sql", "sql/deep/er/c.sql"]),
        ("sql/**/*.sql", ["sql/a.sql", "sql/b.sql", "sql/deep/er/c.sql"]),
        ("sql/*.sql", ["sql/a.sql", "sql/b.sql"]),
        ("sql/[b].sql", ["sql/b.sql"]),
        (["sql/b.sql", "sql/*.sql"], ["sql/b.sql", "sql/a.sql"]),
        (["sql/a.sql", "./sql/../sql/a.sql"], ["sql/a.sql"]),
        ("sql/readme.md", ["sql/readme.md"]),
    ],
)
def test_scripts_are_files_folders_or_patterns(
    folder: Path, scripts: Any, found: list[str]
) -> None:
    assert names(find_scripts(scripts, folder), folder) == found


def test_absolute_names_need_no_base_folder(tmp_path: Path) -> None:
    write_scripts(tmp_path / "sql", {"a": "", "b": ""})
    for scripts in (tmp_path / "sql", f"{tmp_path}/sql/*.sql"):
        assert names(find_scripts(scripts), tmp_path) == ["sql/a.sql", "sql/b.sql"]


def test_names_are_relative_to_the_working_folder_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert names(find_scripts("sql/*.sql"), folder) == ["sql/a.sql", "sql/b.sql"]


@pytest.mark.parametrize("scripts", ["nowhere.sql", "sql/*.hql", ["sql/a.sql", "x/**/*.sql"]])
def test_a_name_that_matches_nothing_is_an_error(folder: Path, scripts: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_scripts(scripts, folder)
    missing = scripts[1] if isinstance(scripts, list) else scripts
    assert f"No SQL script matches {missing!r} below {folder}." in str(refused.value)


def test_no_script_at_all_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="No SQL script was named"):
        find_scripts([], folder)


def test_jobs_and_tables_are_there_once_loaded(tmp_path: Path) -> None:
    lake = load(tmp_path, {"ods": ONE}, start="on_load", name="prod")
    assert set(lake.runtime.jobs) == {"ods_a"}
    assert lake.runtime.job("ods_a").sink_keys == ("ods.a",)
    assert lake.runtime.job("ods_a").start.value == "on_load"
    assert lake.runtime.lakehouse == "prod"
    assert list(lake.graph.tables) == ["ods.a"]


def test_tables_of_other_scripts_come_with_the_statements_that_declare_them(
    tmp_path: Path,
) -> None:
    scripts = {
        "ods": ONE,
        "dwd": table("dwd.b") + job("dwd_b", "dwd.b", "ods.a"),
    }
    runtime = load(tmp_path, scripts).runtime
    assert runtime.job("ods_a").declared_elsewhere == ()
    (elsewhere,) = runtime.job("dwd_b").declared_elsewhere
    assert elsewhere.tables == ("ods.a",)
    assert [s.text for s in elsewhere.statements] == [table("ods.a").strip().rstrip(";")]


def test_tables_of_other_scripts_are_made_in_the_session_that_their_script_has(
    tmp_path: Path,
) -> None:
    sql = tmp_path / "sql"
    (sql / "more").mkdir(parents=True)
    (tmp_path / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS ods; USE ods; ADD JAR 'x'")
    (sql / "more" / "k.sql").write_text("CREATE TABLE kept LIKE s (EXCLUDING OPTIONS)")
    (sql / "a.sql").write_text(
        "CREATE TEMPORARY TABLE s (id INT) WITH ('connector' = 'datagen'); SOURCE more/k.sql"
    )
    (sql / "b.sql").write_text(table("dwd.b") + job("b", "dwd.b", "ods.kept"))
    loaded = lakehouse().load("sql/[ab].sql", session="init.sql", base_folder=tmp_path)
    (elsewhere,) = loaded.runtime.job("b").declared_elsewhere
    assert elsewhere.tables == ("ods.kept",)
    assert [s.text.split(" (")[0] for s in elsewhere.statements] == [
        "CREATE DATABASE IF NOT EXISTS ods",
        "USE ods",
        "CREATE TEMPORARY TABLE s",
        "CREATE TABLE kept LIKE s",
    ]


def test_a_script_that_cannot_be_used_is_named_with_line_and_column(tmp_path: Path) -> None:
    clash = "SET 'pipeline.name' = 'ods_a';\n" + table("o.c") + "INSERT INTO o.c TABLE ods.a;\n"
    with pytest.raises(ScriptError) as refused:
        load(tmp_path, {"a": ONE, "b": clash})
    assert str(refused.value).startswith("sql/b.sql:3:1: Two jobs are named ods_a")
    assert (refused.value.line, refused.value.column) == (3, 1)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ScriptError) as refused:
        load(tmp_path, {"a": ONE, "b": ONE, "c": ONE})
    assert "sql/b.sql:4:1" in str(refused.value)
    assert "sql/c.sql:4:1" in str(refused.value)


def test_what_is_only_unknown_is_a_warning_and_never_blocks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lakehouse_dagster"):
        load(tmp_path, {"a": table("o.a") + job("j", "o.a", "nowhere.b")})
    assert "sql/a.sql:3:35: warning: The job j reads nowhere.b" in caplog.text


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\n", "健"])
def test_a_name_that_cannot_stand_in_ids_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="A lakehouse cannot be named"):
        lakehouse(name=name)


def test_a_key_prefix_is_a_sequence_of_parts() -> None:
    assert lakehouse(key_prefix=["prod", "lake"]).key_prefix == ("prod", "lake")
    for wrong in ("prod", ("prod", "")):
        with pytest.raises(ConfigurationError, match="key_prefix"):
            lakehouse(key_prefix=wrong)


def test_wrong_settings_are_refused_when_declared(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="materialize_timeout is 'soon'"):
        lakehouse(materialize_timeout="soon")
    with pytest.raises(ConfigurationError, match="Write one of: on_demand, on_load"):
        lakehouse().load("sql", start="now", base_folder=tmp_path)


def test_secrets_stay_out_of_the_repr() -> None:
    lake = Lakehouse(
        catalog=PaimonCatalog(warehouse="s3://b/l", options={"s3.secret-key": "hush"}),
        flink=FlinkCluster("http://a:1", "http://b:2", auth=lakehouse_dagster.BearerAuth("hush")),
        system_database=lakehouse_dagster.SystemDatabase("postgresql://ann:hush@db/lake"),
    )
    assert "hush" not in repr(lake)


def test_every_public_name_can_be_had() -> None:
    assert dir(lakehouse_dagster) == sorted(lakehouse_dagster.__all__)
    for name in lakehouse_dagster.__all__:
        assert getattr(lakehouse_dagster, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Lakehous'"):
        lakehouse_dagster.Lakehous  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    probe = "import json, sys, lakehouse_dagster; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, env=dict(os.environ)
    )
    modules = json.loads(done.stdout)
    heavy = ("dagster", "httpx", "pyarrow", "pypaimon", "sqlalchemy", "sqlglot", "pendulum")
    assert [name for name in heavy if name in modules] == []

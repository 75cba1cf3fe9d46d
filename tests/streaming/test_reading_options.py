"""Session files, variables and further catalogs reach the reader, the graph and the jobs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from lakehouse_dagster import FlinkCluster, Lakehouse, OtherCatalog, PaimonCatalog, SystemDatabase
from lakehouse_dagster.errors import ConfigurationError
from tests.streaming.making import job, source, table, write_scripts


def lakehouse(folder: Path, name: str = "lake", **options: object) -> Lakehouse:
    return Lakehouse(
        catalog=PaimonCatalog(warehouse=str(folder / name), name=name),
        flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
        name=name,
        system_database=SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}"),
        **options,  # type: ignore[arg-type]
    )


def deps(spec: dg.AssetSpec) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec.deps}


def test_a_session_file_declares_what_all_scripts_use(tmp_path: Path) -> None:
    write_scripts(
        tmp_path,
        {
            "init/shared": source("events", "shop.events"),
            "sql/a": table("ods.a") + job("a", "ods.a", "events"),
            "sql/b": table("ods.b") + job("b", "ods.b", "events"),
        },
    )
    lake = lakehouse(tmp_path).load("sql", base_folder=tmp_path, session="init/shared.sql")
    assert {name: deps(spec) for name, spec in lake.graph.tables.items()} == {
        "ods.a": {"kafka/shop.events"},
        "ods.b": {"kafka/shop.events"},
    }
    assert any("events" in statement.text for statement in lake.runtime.jobs["a"].definition.setup)


def test_the_scripts_of_a_folder_may_be_one_session(tmp_path: Path) -> None:
    write_scripts(
        tmp_path,
        {
            "sql/1_source": source("events", "shop.events"),
            "sql/2_job": table("ods.a") + job("a", "ods.a", "events"),
        },
    )
    apart = lakehouse(tmp_path).load("sql", base_folder=tmp_path)
    assert deps(apart.graph.tables["ods.a"]) == {"default/events"}
    together = lakehouse(tmp_path).load("sql", base_folder=tmp_path, sessions="folder")
    assert deps(together.graph.tables["ods.a"]) == {"kafka/shop.events"}
    with pytest.raises(ConfigurationError, match="sessions is 'project'"):
        lakehouse(tmp_path).load("sql", base_folder=tmp_path, sessions="project")


def test_variables_of_the_project_name_topics_and_win_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOPIC", "of_the_environment")
    monkeypatch.setenv("LAKE_OTHER", "other")
    script = table("ods.a") + source("s", "${LAKE_TOPIC}") + job("a", "ods.a", "s")
    write_scripts(tmp_path / "sql", {"a": script})
    made = lakehouse(tmp_path, variables={"LAKE_TOPIC": "shop.events"})
    lake = made.load("sql", base_folder=tmp_path)
    assert deps(lake.graph.tables["ods.a"]) == {"kafka/shop.events"}
    environ = lake.runtime.environ
    assert (environ["LAKE_TOPIC"], environ["LAKE_OTHER"]) == ("shop.events", "other")
    assert "shop.events" not in repr(made)


def test_tables_of_another_lakehouse_are_upstream_and_are_not_made_twice(tmp_path: Path) -> None:
    raw = table("ods.orders") + source("s", "orders") + job("orders", "ods.orders", "s")
    write_scripts(tmp_path / "raw_sql", {"orders": raw})
    report = table("app.day") + job("day", "app.day", "raw.ods.orders")
    write_scripts(tmp_path / "mart_sql", {"day": report})
    upstream = lakehouse(tmp_path, "raw", key_prefix=("raw",))
    downstream = lakehouse(
        tmp_path, "mart", other_catalogs=(OtherCatalog(upstream.catalog, ("raw",)),)
    )
    loaded = downstream.load("mart_sql", base_folder=tmp_path)
    assert deps(loaded.graph.tables["app.day"]) == {"raw/ods/orders"}
    assert set(loaded.graph.outside) == set()
    assert [catalog.name for catalog in loaded.runtime.other_catalogs] == ["raw"]
    both = dg.Definitions.merge(
        upstream.definitions("raw_sql", base_folder=tmp_path), loaded.definitions()
    )
    dg.Definitions.validate_loadable(both)
    graph = both.resolve_asset_graph()
    day, orders = (dg.AssetKey(key) for key in (["app", "day"], ["raw", "ods", "orders"]))
    assert graph.get(day).parent_keys == {orders}
    assert orders in graph.executable_asset_keys


def test_two_catalogs_of_one_name_are_refused(tmp_path: Path) -> None:
    same = PaimonCatalog(warehouse=str(tmp_path / "x"), name="lake")
    with pytest.raises(ConfigurationError, match="Two catalogs of the lakehouse are named lake"):
        lakehouse(tmp_path, other_catalogs=(OtherCatalog(same),))

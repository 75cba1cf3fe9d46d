"""A translator changes assets in one place, and everything else follows it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse_dagster import LakehouseTableData, LakehouseTranslator, TableSettings
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.translator import AssetRole
from tests.paimon.writing import Writer
from tests.streaming.making import job, load, source, table

SCRIPTS = {
    "ods": table("ods.a") + source("a", "shop.a") + job("ods_a", "ods.a", "a"),
    "dwd": table("dwd.b") + table("ods.a") + job("dwd_b", "dwd.b", "ods.a"),
    "out": source("alerts", "alerts") + table("dwd.b") + job("alert", "alerts", "dwd.b"),
}


class Upper(LakehouseTranslator):
    """Another key for everything."""

    def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(
            key=dg.AssetKey(["top", *(part.upper() for part in data.key.path)]),
            group_name="all_of_it",
        )


def deps(spec: dg.AssetSpec) -> list[str]:
    return sorted(dep.asset_key.to_user_string() for dep in spec.deps)


def test_dependencies_checks_and_executable_assets_follow_a_changed_key(tmp_path: Path) -> None:
    lake = load(tmp_path, SCRIPTS, translator=Upper())
    defs = lake.definitions()
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert keys == {"top/ODS/A", "top/DWD/B", "top/KAFKA/SHOP.A", "top/KAFKA/ALERTS"}
    executable = {key.to_user_string() for key in graph.executable_asset_keys}
    assert executable == {"top/ODS/A", "top/DWD/B"}
    assert deps(lake.graph.tables["dwd.b"]) == ["top/ODS/A"]
    assert deps(lake.graph.tables["ods.a"]) == ["top/KAFKA/SHOP.A"]
    assert deps(lake.graph.outside["kafka", "alerts"]) == ["top/DWD/B"]
    assert {check.asset_key.to_user_string() for check in graph.asset_check_keys} == executable
    assert {spec.group_name for spec in defs.resolve_all_asset_specs()} == {"all_of_it"}
    assert lake.graph.key("ods.a").to_user_string() == "top/ODS/A"


def test_a_translator_is_told_all_that_is_known(tmp_path: Path) -> None:
    told: dict[str, LakehouseTableData] = {}

    class Listening(LakehouseTranslator):
        def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
            assert data.name not in told, "called once for each"
            told[data.name] = data
            return super().get_asset_spec(data)

    lake = load(tmp_path, SCRIPTS, translator=Listening(), key_prefix=("prod",))
    assert lake.graph.key("ods.a").path == ["prod", "ods", "a"]
    assert {name: data.role for name, data in told.items()} == {
        "ods.a": AssetRole.TABLE,
        "dwd.b": AssetRole.TABLE,
        "kafka/shop.a": AssetRole.SOURCE,
        "kafka/alerts": AssetRole.SINK,
    }
    b, topic = told["dwd.b"], told["kafka/shop.a"]
    assert (b.database, b.catalog, b.upstream) == ("dwd", "lake", ("ods.a",))
    assert b.key == dg.AssetKey(["prod", "dwd", "b"])
    assert [made.name for made in b.jobs] == ["dwd_b"]
    assert b.table is not None
    assert [column.name for column in b.table.columns] == ["id", "v"]
    assert topic.source is not None
    assert (topic.source.connector, topic.database, topic.jobs) == ("kafka", None, ())
    assert [made.name for made in told["kafka/alerts"].jobs] == ["alert"]


def test_dependencies_that_a_translator_adds_are_kept_beside_ours(tmp_path: Path) -> None:
    class Adding(LakehouseTranslator):
        def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(deps=["reference"]) if data.jobs else spec

    graph = load(tmp_path, SCRIPTS, translator=Adding()).graph
    assert deps(graph.tables["dwd.b"]) == ["ods/a", "reference"]


def _same_key(data: LakehouseTableData) -> dg.AssetSpec:
    return dg.AssetSpec("one")


def _alike(data: LakehouseTableData) -> dg.AssetSpec:
    return dg.AssetSpec("a-b" if data.name == "ods.a" else "a_b")


def _no_spec(data: LakehouseTableData) -> object:
    return data.key


def _failing(data: LakehouseTableData) -> dg.AssetSpec:
    raise KeyError(data.name)


def _unusable(data: LakehouseTableData) -> dg.AssetSpec:
    return dg.AssetSpec(["日", data.name])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (_same_key, r"The translator .*Bad gives dwd.b and ods.a the same asset key, one\."),
        (_alike, r"The translator .*Bad gives .* a_b and a-b, which are the same to Dagster"),
        (_no_spec, r"Bad, the translator of the asset \S+, returned AssetKey, which is no Asset"),
        (_failing, r"Bad, the translator of the asset (\S+), failed: KeyError: '\1'"),
        (_unusable, r"Bad gives \S+ the asset key 日/\S+, which Dagster cannot use"),
    ],
)
def test_a_translator_that_cannot_be_used_is_named_with_the_table(
    tmp_path: Path, made: Callable[[LakehouseTableData], dg.AssetSpec], said: str
) -> None:
    class Bad(LakehouseTranslator):
        def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
            return made(data)

    scripts = {"s": table("ods.a") + table("dwd.b")}
    with pytest.raises(ConfigurationError, match=said):
        load(tmp_path, scripts, translator=Bad()).definitions()


def test_settings_and_comments_change_what_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commented = (
        "CREATE TABLE ods.c (id BIGINT) COMMENT 'All of it. @owner(team:shop) @tag(pii=yes)';\n"
        "CREATE TABLE ods.d (id BIGINT) COMMENT 'Other. @owner(nobody)';\n"
    )
    scripts = {**SCRIPTS, "c": commented}
    lake = load(
        tmp_path,
        scripts,
        tables={
            "ods.*": TableSettings(tags={"layer": "raw"}, kinds=("bronze",)),
            "ods.c": TableSettings(key=("shop", "c"), group="shop", owners=("ann@shop.com",)),
            "kafka/*": TableSettings(group="topics"),
            "dwd.nothing": TableSettings(group="x"),
        },
    )
    with caplog.at_level(logging.WARNING):
        lake.definitions()
    c, d, a = (lake.graph.tables[name] for name in ("ods.c", "ods.d", "ods.a"))
    assert c.key.path == ["shop", "c"]
    assert (c.group_name, [*c.owners], c.description) == ("shop", ["ann@shop.com"], "All of it.")
    assert {key: value for key, value in c.tags.items() if "kind" not in key} == {
        "layer": "raw",
        "pii": "yes",
    }
    assert a.kinds == {"paimon", "flink", "bronze"}
    assert ([*d.owners], d.description) == ([], "Other.")
    assert lake.graph.outside["kafka", "shop.a"].group_name == "topics"
    warnings = [record.getMessage() for record in caplog.records]
    assert any("c.sql:2:1: the comment's @owner(nobody)" in w for w in warnings)
    assert any("'dwd.nothing' fits no table and no source" in w for w in warnings)


def test_two_tables_given_one_key_by_settings_are_refused(tmp_path: Path) -> None:
    lake = load(tmp_path, SCRIPTS, tables={"*": TableSettings(key=("same",))})
    with pytest.raises(ConfigurationError, match=r"said in tables gives ods.a and dwd.b the same"):
        lake.definitions()


def test_progress_is_reported_under_the_translators_key(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    writer = Writer(
        tmp_path / "warehouse", "ods.a", columns, primary_keys=("id",), options={"bucket": "1"}
    )
    writer.append([{"id": 1, "v": "x"}])
    repository = load(tmp_path, SCRIPTS, translator=Upper()).definitions().get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=repository)
        result = repository.get_sensor_def("lake_progress").evaluate_tick(context)
    reported = {
        event.asset_key.to_user_string()
        for event in result.asset_events
        if isinstance(event, dg.AssetMaterialization)
    }
    assert reported == {"top/ODS/A"}

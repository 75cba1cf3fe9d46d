"""The example of docs/component.md is complete, its defaults are the defaults, and it loads."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import BaseModel

from lakehouse_dagster import (
    BearerAuth,
    CheckPolicy,
    FlinkCluster,
    Lakehouse,
    LakehouseTranslator,
    MaintenancePolicy,
    PaimonCatalog,
    ProgressPolicy,
    SupervisionPolicy,
    SystemDatabase,
    TablePolicy,
    TableSettings,
)
from lakehouse_dagster.components import LakehouseComponent
from lakehouse_dagster.components.attributes import (
    AuthAttributes,
    CatalogAttributes,
    FlinkAttributes,
    LakehouseAttributes,
    SystemDatabaseAttributes,
)
from lakehouse_dagster.streaming.partitions import TablePartitions
from tests.streaming.making import job, load, source, table

PAGE = (Path(__file__).parent.parent.parent / "docs" / "component.md").read_text()
(EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRANSLATOR = next(
    t
    for t in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if "class Translator" in t
)
WRITTEN: dict[str, Any] = yaml.safe_load(EXAMPLE)


@pytest.fixture
def translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[LakehouseTranslator]:
    """The page's translator, in the module that the page's example names."""
    module, _, name = WRITTEN["attributes"]["translator"].rpartition(".")
    package, _, file = module.partition(".")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / f"{file}.py").write_text(TRANSLATOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    made: type[LakehouseTranslator] = getattr(importlib.import_module(module), name)
    return made


@pytest.fixture
def loaded(
    translator: type[LakehouseTranslator], monkeypatch: pytest.MonkeyPatch
) -> LakehouseComponent:
    monkeypatch.setenv("LAKE_WAREHOUSE", "/data/lake")
    monkeypatch.setenv("FLINK_TOKEN", "s3cret")
    monkeypatch.delenv("FLINK_REST_URL", raising=False)
    monkeypatch.delenv("FLINK_SQL_GATEWAY_URL", raising=False)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LakehouseComponent, defs_yaml_contents={"type": WRITTEN["type"]}
        )
        (path / "defs.yaml").write_text(EXAMPLE)
        (path / "vars.yaml").write_text("a: {b: 1}\n")
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, LakehouseComponent)
            assert [sensor.name for sensor in defs.sensors or ()] == [
                "lake_supervisor",
                "lake_progress",
                "lake_table_checks",
                "lake_maintenance",
            ]
            return component


def test_the_example_makes_the_lakehouse_that_it_says(
    loaded: LakehouseComponent, translator: type[LakehouseTranslator]
) -> None:
    assert type(loaded.translator) is translator
    # The file's values are read relative to the folder of defs.yaml, which the sandbox has removed.
    made = replace(loaded, variables_file=None).lakehouse()
    assert made == Lakehouse(
        translator=loaded.translator,
        tables={
            "dwd.*": TableSettings(owners=("team:data",), tags={"layer": "detail"}),
            "app.day": TableSettings(
                key=("reports", "day"),
                group="reports",
                kinds=("report",),
                description="What the shops sold, by day.",
                partitions=TablePartitions.read(
                    {"column": "dt", "every": "day", "format": "%Y%m%d", "start": "20260101"}
                ),
            ),
            "kafka/*": TableSettings(owners=("team:platform", "ops@example.com")),
        },
        catalog=PaimonCatalog(warehouse="/data/lake"),
        checks={
            "default": CheckPolicy(max_lag="15m"),
            "dwd.*": CheckPolicy(freshness="10m", max_lag="5m", max_snapshots_behind=20),
        },
        flink=FlinkCluster(
            "http://localhost:8081", "http://localhost:8083", auth=BearerAuth("s3cret")
        ),
        system_database=SystemDatabase("sqlite:////var/lib/lakehouse/lakehouse.db"),
        progress=ProgressPolicy(progress_interval="1m"),
        maintenance=MaintenancePolicy(tables={"ods.*": TablePolicy("dedicated")}),
    )
    assert (loaded.scripts, loaded.start, loaded.sensors_running) == (
        ("sql/**/*.sql",),
        "on_demand",
        True,
    )


@pytest.mark.parametrize(
    ("model", "written", "left_out"),
    [
        (LakehouseAttributes, WRITTEN["attributes"], set()),
        (CatalogAttributes, WRITTEN["attributes"]["catalog"], {"uri"}),
        (FlinkAttributes, WRITTEN["attributes"]["flink"], set()),
        (AuthAttributes, WRITTEN["attributes"]["flink"]["auth"], {"username", "password"}),
        (SystemDatabaseAttributes, WRITTEN["attributes"]["system_database"], set()),
    ],
)
def test_the_example_has_every_attribute_with_its_default(
    model: type[BaseModel], written: dict[str, Any], left_out: set[str]
) -> None:
    assert set(written) == set(model.model_fields) - left_out
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if name in written and not isinstance(written[name], dict) and default is not None:
            said_otherwise = name in ("variables_file", "translator", "defs_state")
            assert field.is_required() or said_otherwise or written[name] == default, name


@pytest.mark.parametrize(
    ("policy", "written"),
    [
        (SupervisionPolicy, WRITTEN["attributes"]["supervision"]),
        (ProgressPolicy, WRITTEN["attributes"]["progress"]),
    ],
)
def test_settings_in_the_example_exist_and_are_the_defaults(
    policy: type[SupervisionPolicy] | type[ProgressPolicy], written: dict[str, Any]
) -> None:
    names = {setting.name for setting in fields(policy)}
    assert set(written) <= names
    for name, value in written.items():
        if name != "progress_interval":  # whose line says what the default is
            assert getattr(policy(**{name: value}), name) == getattr(policy(), name), name


def test_the_command_of_the_page_is_that_of_the_component() -> None:
    assert WRITTEN["type"] == "lakehouse_dagster.LakehouseComponent"
    assert f"dg scaffold defs {WRITTEN['type']} lake" in PAGE


def test_the_translator_of_the_page_does_what_it_says(
    translator: type[LakehouseTranslator], tmp_path: Path
) -> None:
    script = table("ods_eu.orders") + table("dwd.orders") + source("s", "orders")
    script += job("eu", "ods_eu.orders", "s") + job("all", "dwd.orders", "ods_eu.orders")
    lake = load(tmp_path, {"s": script}, translator=translator())
    eu, dwd = lake.graph.tables["ods_eu.orders"], lake.graph.tables["dwd.orders"]
    assert (eu.key.path, eu.group_name, eu.tags["layer"]) == (["ods", "eu", "orders"], "ods", "ods")
    assert dwd.key.path == ["dwd", "orders"]
    assert [dep.asset_key for dep in dwd.deps] == [eu.key]
    assert [dep.asset_key.path for dep in eu.deps] == [["kafka", "orders"]]

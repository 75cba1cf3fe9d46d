"""The example of docs/component.md is complete, its defaults are the defaults, and it loads."""

from __future__ import annotations

import re
from dataclasses import fields
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
    PaimonCatalog,
    ProgressPolicy,
    SupervisionPolicy,
    SystemDatabase,
)
from lakehouse_dagster.components import LakehouseComponent
from lakehouse_dagster.components.attributes import (
    AuthAttributes,
    CatalogAttributes,
    FlinkAttributes,
    LakehouseAttributes,
    SystemDatabaseAttributes,
)

PAGE = (Path(__file__).parent.parent.parent / "docs" / "component.md").read_text()
(EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WRITTEN: dict[str, Any] = yaml.safe_load(EXAMPLE)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> LakehouseComponent:
    monkeypatch.setenv("LAKE_WAREHOUSE", "/data/lake")
    monkeypatch.setenv("FLINK_TOKEN", "s3cret")
    monkeypatch.delenv("FLINK_REST_URL", raising=False)
    monkeypatch.delenv("FLINK_SQL_GATEWAY_URL", raising=False)
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LakehouseComponent, defs_yaml_contents={"type": WRITTEN["type"]}
        )
        (path / "defs.yaml").write_text(EXAMPLE)
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, LakehouseComponent)
            assert [sensor.name for sensor in defs.sensors or ()] == [
                "lake_supervisor",
                "lake_progress",
                "lake_table_checks",
            ]
            return component


def test_the_example_makes_the_lakehouse_that_it_says(loaded: LakehouseComponent) -> None:
    assert loaded.lakehouse() == Lakehouse(
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
        (CatalogAttributes, WRITTEN["attributes"]["catalog"], set()),
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
            assert field.is_required() or written[name] == default, name


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

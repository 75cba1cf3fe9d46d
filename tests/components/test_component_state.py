"""``discover``: tables of the catalog become the component's state, in Dagster's own way."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from lakehouse_dagster import LoadedLakehouse
from lakehouse_dagster.components import LakehouseComponent
from lakehouse_dagster.errors import CatalogError
from tests.paimon.writing import Writer


@pytest.fixture
def sandbox() -> Iterator[Any]:
    with create_defs_folder_sandbox() as made:
        yield made


def scaffold(sandbox: Any, warehouse: Path, **attributes: Any) -> Path:
    return Path(
        sandbox.scaffold_component(
            component_cls=LakehouseComponent,
            defs_yaml_contents={
                "type": "lakehouse_dagster.LakehouseComponent",
                "attributes": {
                    "catalog": {"warehouse": str(warehouse)},
                    "flink": {"rest_url": "http://a:1", "sql_gateway_url": "http://a:2"},
                    "scripts": "sql",
                    **attributes,
                },
            },
        )
    )


def tables(defs: dg.Definitions) -> set[str]:
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    return {key for key in keys if not key.startswith("datagen/")}


def test_state_is_refreshed_by_command_only_and_then_shown(sandbox: Any, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    Writer(warehouse, "old.history", pa.schema([pa.field("id", pa.int64())]))
    path = scaffold(sandbox, warehouse, discover=True)
    with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
        assert tables(defs) == {"demo/tick"}  # nobody has looked yet
        assert component.defs_state_config.refresh_if_dev is False
        asyncio.run(component.refresh_state(sandbox.project_root))
    shutil.rmtree(warehouse)
    with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
        assert tables(defs) == {"demo/tick", "old/history"}
        with pytest.raises(CatalogError):
            asyncio.run(component.refresh_state(sandbox.project_root))
    with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
        assert tables(defs) == {"demo/tick", "old/history"}  # the old state stays


def test_the_lakehouse_of_a_component_discovers_into_its_state(
    sandbox: Any, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    columns = pa.schema([pa.field("id", pa.int64())])
    for name in ("old.history", "new.history"):
        Writer(warehouse, name, columns)
    path = scaffold(sandbox, warehouse, discover=["old.*"])
    with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
        (lake,) = (r for r in (defs.resources or {}).values() if isinstance(r, LoadedLakehouse))
        assert list(lake.discover().tables) == ["old.history"]
    with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
        assert tables(defs) == {"demo/tick", "old/history"}


def test_without_discover_nothing_is_kept_and_no_folder_is_made(
    sandbox: Any, tmp_path: Path
) -> None:
    path = scaffold(sandbox, tmp_path / "nowhere")
    with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
        assert tables(defs) == {"demo/tick"}
        assert list(sandbox.project_root.rglob(".local_defs_state")) == []
        asyncio.run(component.refresh_state(sandbox.project_root))  # asks nobody, fails nowhere

"""The ``dg`` command finds, scaffolds and checks the component in a project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.paimon.writing import Writer

pytestmark = pytest.mark.dagster

PYPROJECT = """
[project]
name = "own"
version = "0.1"
requires-python = ">=3.10"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "own"
"""
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


class Project:
    """A ``dg`` project in a folder; nothing on the network can be reached from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defs = folder / "src" / "own" / "defs"
        self.defs.mkdir(parents=True)
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "src" / "own" / "__init__.py").touch()
        (folder / "src" / "own" / "definitions.py").write_text(DEFINITIONS)

    def dg(self, *arguments: str) -> tuple[int, str]:
        return self.run("dg", *arguments)

    def run(self, command: str, *arguments: str) -> tuple[int, str]:
        environ = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "HOME": str(self.folder),
            "http_proxy": "http://127.0.0.1:9",
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            [str(Path(sys.executable).with_name(command)), *arguments],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_dg_lists_the_component(project: Project) -> None:
    code, said = project.dg("list", "components")
    assert code == 0
    assert "lakehouse_dagster.components.LakehouseComponent" in said


@pytest.mark.parametrize("component_format", ["yaml", "python"])
def test_what_dg_scaffolds_loads_as_it_is(project: Project, component_format: str) -> None:
    scaffold = ("scaffold", "defs", "lakehouse_dagster.LakehouseComponent", "lake")
    code, said = project.dg(*scaffold, "--format", component_format)
    assert code == 0, said
    script = project.defs / "lake" / "sql" / "demo_tick.sql"
    assert "INSERT INTO demo.tick" in script.read_text()
    code, said = project.dg("list", "defs")
    assert code == 0, said
    for shown in ("demo/tick", "datagen/ticks", "lake_supervisor", "lake_start_streaming_jobs"):
        assert shown in said


def test_dg_check_names_the_place_of_a_mistake(project: Project) -> None:
    lake = project.defs / "lake"
    lake.mkdir()
    (lake / "orders.sql").write_text("CREATE TABLE ods.orders (id BIGINT);\n")
    defs = [
        "type: lakehouse_dagster.LakehouseComponent",
        "attributes:",
        '  catalog: {warehouse: "{{ env.LAKE_OF_NOBODY }}"}',
        "  flink: {rest_urll: 'http://a:1', rest_url: 'http://a:1', sql_gateway_url: 'http://a:2'}",
        "  scripts: '*.sql'",
    ]
    (lake / "defs.yaml").write_text("\n".join(defs))
    code, said = project.dg("check", "yaml")
    assert code == 1
    assert "defs.yaml:4" in said
    assert "attributes.flink.rest_urll" in said

    defs[3] = defs[3].replace("rest_urll: 'http://a:1', ", "")
    (lake / "defs.yaml").write_text("\n".join(defs))
    code, said = project.dg("check", "defs")
    assert code == 1
    assert "All component YAML validated successfully." in said
    assert "defs.yaml:3" in said
    assert "The environment variable LAKE_OF_NOBODY is not set." in said


@pytest.mark.parametrize(
    "command", [("dg", "utils", "refresh-defs-state"), ("lakehouse", "discover")]
)
def test_tables_of_the_catalog_are_found_by_either_command(
    project: Project, command: tuple[str, ...]
) -> None:
    warehouse = project.folder / "warehouse"
    Writer(warehouse, "old.history", pa.schema([pa.field("id", pa.int64())]))
    lake = project.defs / "lake"
    lake.mkdir()
    (lake / "orders.sql").write_text("CREATE TABLE ods.orders (id BIGINT);\n")
    defs = [
        "type: lakehouse_dagster.LakehouseComponent",
        "attributes:",
        f"  catalog: {{warehouse: {warehouse}}}",
        "  flink: {rest_url: 'http://127.0.0.1:9', sql_gateway_url: 'http://127.0.0.1:9'}",
        "  scripts: '*.sql'",
        "  discover: true",
    ]
    (lake / "defs.yaml").write_text("\n".join(defs))
    code, said = project.dg("list", "defs")
    assert code == 0, said
    assert "ods/orders" in said
    assert "old/history" not in said
    code, said = project.run(*command)
    assert code == 0, said
    code, said = project.dg("list", "defs")
    assert code == 0, said
    assert "old/history" in said

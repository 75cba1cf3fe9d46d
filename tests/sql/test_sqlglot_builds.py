"""Scripts are read alike whatever build and version of sqlglot the environment holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from lakehouse_dagster.sql import read_project
from lakehouse_dagster.sql.transport import to_data
from tests.sql.samples import DECLARATIONS, INSERTS, SETS
from tests.support.python_packages import install

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import json, pathlib, sys
from lakehouse_dagster.sql import read_project
from lakehouse_dagster.sql.transport import to_data
project = read_project(pathlib.Path(sys.argv[1]).iterdir(), base=sys.argv[1])
json.dump({"project": to_data(project), "imported": "sqlglot" in sys.modules}, sys.stdout)
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """One script for each way of reading that the reader is tested with."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    inserts = [statement for statement, _, _ in INSERTS.values()]
    for number, statement in enumerate([*inserts, *SETS]):
        (folder / f"s{number}.sql").write_text(";\n".join([*DECLARATIONS, statement]))
    return folder


def _read_with(packages: Path, scripts: Path, before: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", before + _PROGRAM, str(scripts)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(packages), str(_ROOT)]),
            "LAKEHOUSE_HOME": str(packages / "home"),
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _read_here(scripts: Path) -> Any:
    project = read_project(scripts.iterdir(), base=scripts)
    assert len(project.jobs) == len(INSERTS) + len(SETS)
    return to_data(project)


def _lowest_declared() -> str:
    (declared,) = [r for r in metadata.requires("lakehouse-dagster") or () if "sqlglot" in r]
    found = re.search(r">=\s*([\d.]+)", declared)
    assert found, declared
    return found[1]


def test_a_compiled_sqlglot_that_is_already_imported_does_no_harm(
    tmp_path: Path, scripts: Path
) -> None:
    version = metadata.version("sqlglot")
    packages = install(tmp_path / "packages", f"sqlglot=={version}", f"sqlglotc=={version}")
    compiled = "import sqlglot, sqlglot.tokens; assert sqlglot.tokens.SQLGLOTC_INSTALLED\n"
    told = _read_with(packages, scripts, compiled)
    assert told["project"] == _read_here(scripts)


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_ends_of_the_declared_range_read_the_same(
    tmp_path: Path, scripts: Path, which: str
) -> None:
    lowest = _lowest_declared()
    requirement = f"sqlglot=={lowest}.*" if which == "oldest" else f"sqlglot>={lowest},<31"
    told = _read_with(install(tmp_path / "packages", requirement), scripts)
    assert told["project"] == _read_here(scripts)
    assert not told["imported"]

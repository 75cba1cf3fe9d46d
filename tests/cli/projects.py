"""Small projects on disk, and the command run in them, in this process or one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakehouse_dagster.cli import main
from tests.streaming.making import job, source, table, write_scripts

NOBODY = "http://127.0.0.1:9"
"""Nothing listens there, and the system says so at once."""

SCRIPTS = {
    "orders": table("shop.orders") + source("clicks") + job("orders", "shop.orders", "clicks"),
    "sales": table("shop.sales") + job("sales", "shop.sales", "shop.orders"),
}
MODULE = """\
import os
from pathlib import Path
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SystemDatabase

folder = Path({folder!r})
{name} = Lakehouse(
    name={name!r},
    catalog=PaimonCatalog(warehouse=str(folder / "warehouse")),
    flink=FlinkCluster({rest_url!r}, {rest_url!r}),
    system_database=SystemDatabase(f"sqlite:///{{folder / 'lakehouse.db'}}"),
).definitions("sql", base_folder=folder)
"""


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Project:
    """A project in a folder, which is the working folder."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def module(self, path: str = "shop.py", *names: str, rest_url: str = NOBODY) -> None:
        """A module with one ``Definitions`` for each named lakehouse."""
        write_scripts(self.folder / "sql", SCRIPTS)
        texts = [
            MODULE.format(folder=str(self.folder), name=name, rest_url=rest_url)
            for name in names or ("lake",)
        ]
        self.write(path, "\n".join(texts))

    def run(self, *arguments: str) -> Said:
        result = CliRunner().invoke(main, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    def files(self) -> set[str]:
        """What lies in the folder, apart from Python's own."""
        return {
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """An empty project; what is imported from it is forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DAGSTER_HOME", "")
    for name in [n for n in sys.modules if n.split(".")[0] == "definitions"]:
        monkeypatch.delitem(sys.modules, name)  # the repository's own, if another test needs it
    before, known, forgotten = list(sys.path), set(sys.modules), list[str]()
    yield Project(tmp_path)
    sys.path[:] = before
    for name in set(sys.modules) - known:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *list(getattr(module, "__path__", ()))]
        if any(place is not None and place.startswith(str(tmp_path)) for place in places):
            forgotten.append(name)
    for name in forgotten:
        del sys.modules[name]


def own_process(
    *arguments: str, folder: Path, environ: Mapping[str, str] | None = None, seconds: float = 60
) -> Said:
    """The same in a process of its own, as a shell would run it."""
    done = subprocess.run(
        [sys.executable, "-m", "lakehouse_dagster.cli", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return Said(done.returncode, done.stdout, done.stderr)

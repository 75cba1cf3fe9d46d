"""``lakehouse discover`` finds tables that are in no script, and says what it found."""

from __future__ import annotations

import shutil

import pytest

from lakehouse_dagster.cli.project import load_project
from tests.cli.projects import NOBODY, Project, project
from tests.paimon.writing import Writer
from tests.streaming.test_progress import COLUMNS

__all__ = ["project"]


def wants(project: Project) -> None:
    project.module()
    text = (project.folder / "shop.py").read_text()
    project.write("shop.py", text.replace("Lakehouse(\n", 'Lakehouse(\n    discover=("*",),\n', 1))


def test_tables_in_no_script_are_found_and_shown_the_next_time(project: Project) -> None:
    wants(project)
    for name in ("shop.orders", "old.history"):
        Writer(project.folder / "warehouse", name, COLUMNS)
    said = project.run("discover", "-m", "shop")
    assert (said.code, said.out) == (
        0,
        "2 tables found, 1 of them in no script.\n  old.history\n",
    )
    assert (
        "old.history"
        in load_project("shop").lakehouse.load("sql", base_folder=project.folder).graph.tables
    )
    document = project.run("discover", "-m", "shop", "--json").json
    assert document.pop("found_at").endswith("+00:00")
    assert document == {
        "tables": ["old.history", "shop.orders"],
        "in_no_script": ["old.history"],
        "problems": {},
    }


def test_a_catalog_that_is_not_there_is_said(project: Project) -> None:
    wants(project)
    shutil.rmtree(project.folder / "warehouse", ignore_errors=True)
    said = project.run("discover", "-m", "shop")
    assert said.code == 1
    assert "does not exist" in said.err


def test_a_lakehouse_that_wants_nothing_found_is_told_so(project: Project) -> None:
    project.module()
    said = project.run("discover", "-m", "shop")
    assert said.code == 1
    assert "does not say which tables to look for" in said.err


def test_a_server_that_is_dead_is_named_with_the_reason_and_nobody_is_sent_in_circles(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    wants(project)
    text = (project.folder / "shop.py").read_text()
    catalog = f"""PaimonCatalog(
        "wh", metastore="rest", uri="{NOBODY}", options={{"token.provider": "bear", "token": "t0k"}}
    )"""
    project.write(
        "shop.py", text.replace('PaimonCatalog(warehouse=str(folder / "warehouse"))', catalog)
    )
    said = project.run("discover", "-m", "shop")
    assert said.code == 1
    assert said.err.splitlines()[-1] == (
        f"Error: Could not list the databases: the catalog's server {NOBODY} gives no answer "
        "(ConnectionRefusedError: [Errno 111] Connection refused). "
        "Look whether it runs, and whether this machine reaches it."
    )
    assert "Run: lakehouse discover" not in caplog.text + said.err

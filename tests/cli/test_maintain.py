"""``lakehouse maintain`` and ``status --tables``: what is due and why; nothing needs a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.projects import MODULE, NOBODY, SCRIPTS, Project, project
from tests.cli.test_status import write_orders
from tests.streaming.making import write_scripts

__all__ = ["project"]

POLICY = (
    "TablePolicy(expire=ExpireSpec(keep_at_least=1, keep_for='1ms'), "
    "compact=CompactSpec(cron='0 3 31 12 *', lasts='1m', level0_files=2))"
)
EXPIRY = "shop.orders: snapshot expiry: 7 snapshots, the oldest "


@pytest.fixture
def shop(project: Project) -> Project:
    """A project with a policy, whose table shop.orders has seven snapshots."""
    write_scripts(project.folder / "sql", SCRIPTS)
    text = MODULE.format(folder=str(project.folder), name="lake", rest_url=NOBODY)
    text = text.replace("SystemDatabase\n", "SystemDatabase\nfrom lakehouse_dagster import *\n", 1)
    text = text.replace(").def", f"    maintenance=MaintenancePolicy({POLICY}),\n).def")
    project.write("shop.py", text)
    write_orders(project, 7)
    return project


def test_a_dry_run_says_what_is_due_and_what_waits_with_the_figures(shop: Project) -> None:
    said = shop.run("maintain", "-m", "shop", "shop.orders", "--dry-run")
    assert said.code == 0
    due, waiting, *_ = said.out.splitlines()
    assert due.startswith(EXPIRY)
    assert "(snapshots 7, keep at least 1, older than " in due
    assert waiting == "shop.orders: compact is due and waits for its window (0 3 31 12 *)."


def test_what_waits_for_its_window_is_due_now_if_told_so(shop: Project) -> None:
    arguments = ("maintain", "-m", "shop", "--all", "--dry-run", "--now", "--json")
    (decision,) = shop.run(*arguments).json["tables"]
    assert [due["kind"] for due in decision["due"]] == ["compact", "snapshot expiry"]
    assert decision["due"][0]["reason"] == "bucket 0 has 7 unmerged files."
    assert decision["due"][0]["postponed"] is None
    (only,) = shop.run(*arguments, "--kind", "compact").json["tables"]
    assert [due["kind"] for due in only["due"]] == ["compact"]


def test_what_cannot_be_done_is_an_error_with_its_reason(shop: Project) -> None:
    said = shop.run("maintain", "-m", "shop", "shop.orders", "--json")
    assert said.code == 1
    document: Any = said.json
    assert set(document) == {"tables", "done", "errors"}
    assert "shop.orders" in said.err
    assert NOBODY in said.err


def test_a_table_that_does_not_exist_is_refused(shop: Project) -> None:
    said = shop.run("maintain", "-m", "shop", "shop.typo", "--dry-run")
    assert said.code == 1
    assert "There is no table shop.typo" in said.err
    assert "shop.orders" in said.err


@pytest.mark.parametrize("arguments", [(), ("shop.orders", "--all")])
def test_tables_are_named_or_all_of_them(shop: Project, arguments: tuple[str, ...]) -> None:
    said = shop.run("maintain", "-m", "shop", *arguments)
    assert (said.code, "Name the tables, or say --all." in said.err) == (2, True)


def test_without_a_policy_nothing_is_done(project: Project) -> None:
    project.module()
    said = project.run("maintain", "-m", "shop", "--all", "--dry-run")
    assert said.code == 1
    assert "has no maintenance policy" in said.err


def test_status_of_tables_has_files_snapshots_and_what_is_due(shop: Project) -> None:
    orders, sales = shop.run("status", "-m", "shop", "--tables", "--json").json["tables"]
    assert orders.pop("bytes") > 0
    assert orders.pop("oldest_snapshot_age_seconds") > 0
    assert orders.pop("oldest_snapshot_at").startswith("20")
    assert orders == {
        "name": "shop.orders",
        "files": 7,
        "level0_files": 7,
        "small_files": 7,
        "snapshots": 7,
        "tags": 0,
        "branches": 0,
        "consumers": 0,
        "due": ["snapshot expiry"],
        "held_back": ["compact is due and waits for its window (0 3 31 12 *)."],
        "advice": [],
        "problem": None,
    }
    assert (sales["name"], sales["problem"]) == ("shop.sales", "there is no such table yet")
    shown = shop.run("status", "-m", "shop", "--tables").out
    assert "snapshot expiry" in shown


def test_without_a_policy_status_has_the_files_and_nothing_due(project: Project) -> None:
    project.module()
    write_orders(project, 2)
    orders, _ = project.run("status", "-m", "shop", "--tables", "--json").json["tables"]
    assert (orders["files"], orders["due"], orders["held_back"]) == (2, [], [])


def test_what_a_rescale_would_do_is_said_before(shop: Project) -> None:
    arguments = ("tables", "rescale", "shop.orders", "--buckets", "4", "--dry-run", "-m", "shop")
    said = shop.run(*arguments)
    assert said.code == 0
    assert "would get 4 buckets instead of 1; its jobs: orders" in said.out


def test_a_table_whose_policy_is_not_dedicated_gets_no_compaction_job(shop: Project) -> None:
    said = shop.run("tables", "dedicate", "shop.orders", "-m", "shop")
    assert said.code == 1
    assert "Write compaction: dedicated for it in the maintenance policy" in said.err

"""``lakehouse maintain`` and ``status --tables``: what is due and why; nothing needs a cluster."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from lakehouse_dagster.cli.project import load_project
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import compact_now
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.maintenance.window import Window
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.cli.projects import MODULE, NOBODY, SCRIPTS, Project, project
from tests.cli.test_status import write_orders
from tests.streaming.making import write_scripts

__all__ = ["project"]

POLICY = (
    "TablePolicy(expire=ExpireSpec(keep_at_least=1, keep_for='1ms'), "
    "compact=CompactSpec(cron='0 3 31 12 *', lasts='1m', level0_files=2))"
)
OPENS = Window("0 3 31 12 *").opens_at(datetime.now(timezone.utc))
WAITS = (
    "compact is due and waits for its window (0 3 31 12 *), which opens at "
    f"{OPENS:%Y-%m-%d} 03:00 UTC."
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
    assert waiting == f"shop.orders: {WAITS}"


def test_a_dry_run_has_the_figures_of_a_table_that_is_due_for_nothing(shop: Project) -> None:
    arguments = ("maintain", "-m", "shop", "shop.orders", "--dry-run", "--kind", "orphan search")
    said = shop.run(*arguments).out.splitlines()[-1]
    assert said.startswith("shop.orders: nothing is due (files 7, bytes ")
    assert ", level 0 7, small files 7, snapshots 7, the oldest " in said
    (decision,) = shop.run(*arguments, "--json").json["tables"]
    assert (decision["due"], decision["figures"]["files"]) == ([], "7")


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
    assert set(document) == {"tables", "done", "errors", "absent"}
    assert "shop.orders" in said.err
    assert NOBODY in said.err


@pytest.mark.parametrize(
    "command",
    [
        ("maintain",),
        ("tables", "dedicate"),
        ("tables", "undedicate", "--dry-run"),
        ("tables", "rescale", "--buckets", "2"),
    ],
)
def test_a_table_that_does_not_exist_is_refused(shop: Project, command: tuple[str, ...]) -> None:
    said = shop.run(*command, "-m", "shop", "shop.typo")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "Error: There is no table shop.typo. Tables of the project: shop.orders, shop.sales.\n"
    )
    said = shop.run(*command, "-m", "shop", "shop.sales")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "Error: Scripts declare the table shop.sales, but the catalog has none: it was not made "
        "yet, or dropped. It is made when a job that writes it starts: sales.\n"
    )


def test_of_all_tables_those_that_do_not_exist_are_told(shop: Project) -> None:
    arguments = ("maintain", "-m", "shop", "--all", "--dry-run")
    said = shop.run(*arguments)
    assert said.code == 0
    assert "shop.sales: left out: the catalog has no such table (yet)." in said.out.splitlines()
    assert shop.run(*arguments, "--json").json["absent"] == ["shop.sales"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "Name the tables, or say --all."),
        (("shop.orders", "--all"), "Name the tables or say --all, not both."),
    ],
)
def test_tables_are_named_or_all_of_them(
    shop: Project, arguments: tuple[str, ...], why: str
) -> None:
    said = shop.run("maintain", "-m", "shop", *arguments)
    assert (said.code, why in said.err) == (2, True)


def test_kinds_are_chosen_by_the_words_that_are_printed(shop: Project) -> None:
    arguments = ("maintain", "-m", "shop", "shop.orders", "--dry-run", "--now", "--json")
    for kind in ActionKind:
        (decision,) = shop.run(*arguments, "--kind", kind.value).json["tables"]
        due = ["compact", "snapshot expiry"]
        assert [d["kind"] for d in decision["due"]] == [k for k in due if k == kind.value]


def keeper() -> Keeper:
    return load_project("shop").keeper


def test_a_named_table_on_which_somebody_else_acts_is_an_error_that_names_them(
    shop: Project,
) -> None:
    arguments = ("maintain", "-m", "shop")
    with keeper().hold(["shop.orders"], "Dagster run 1a2b"):
        said = shop.run(*arguments, "shop.orders")
        among_all = shop.run(*arguments, "--all")
        asked = shop.run(*arguments, "shop.orders", "--dry-run")
    why = "Another action on it is under way: Dagster run 1a2b."
    assert (said.code, said.out) == (1, "Nothing was done.\n")
    (told,) = said.err.splitlines()
    remedy = "Wait for it to end, or cancel it, and try again; should it have died, its lease ends"
    assert told.startswith(f"Error: shop.orders: {why} {remedy} at 20")
    assert told.endswith(" UTC.")
    assert (among_all.code, among_all.err) == (0, "")
    assert f"shop.orders: {why}" in among_all.out.splitlines()
    assert (asked.code, asked.out) == (0, f"shop.orders: {why}\n")


def test_a_full_compaction_that_a_person_asked_for_fails_beside_somebody_else(
    shop: Project,
) -> None:
    ours = keeper()
    with keeper().hold(["shop.orders"], "Dagster run 1a2b"):
        done = compact_now(ours, MaintenancePolicy(), ["shop.orders"], holder="a test")
    (failure,) = done.failures
    assert "Dagster run 1a2b acts on the table shop.orders now." in str(failure.error)


def test_what_waits_after_a_failure_says_why_it_failed_and_how_to_do_it_now(shop: Project) -> None:
    actions = keeper().actions
    kind = ActionKind.EXPIRE_SNAPSHOTS.value
    begun = actions.begin("shop.orders", kind, reason="", details="{}", holder="a run", before=None)
    error = "The gateway was slow.\nAnd much more."
    failed = actions.update(
        begun.id,
        {"state": ActionState.FAILED, "ended_at": keeper().runtime.clock.now(), "error": error},
    )
    arguments = ("maintain", "-m", "shop", "shop.orders")
    said = shop.run(*arguments)
    assert (said.code, failed.error) == (1, error)
    (told,) = [line for line in said.err.splitlines() if "snapshot expiry" in line]
    assert told.startswith("Error: shop.orders: snapshot expiry failed once; tried again after ")
    assert told.endswith("It failed with: The gateway was slow. With --now it does not wait.")
    (decision,) = shop.run(*arguments, "--json").json["tables"]
    assert decision["due"] == []
    # Other kinds were asked for, and nothing keeps them back.
    assert shop.run(*arguments, "--kind", "tag expiry").code == 0
    (decision,) = shop.run(*arguments, "--now", "--dry-run", "--json").json["tables"]
    assert [due["kind"] for due in decision["due"]] == ["compact", "snapshot expiry"]


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
        "held_back": [WAITS],
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

    data = shop.run(*arguments, "--json").json
    assert (data["table"], data["jobs"]) == ("shop.orders", ["orders"])
    assert data["planned"].endswith("would get 4 buckets instead of 1")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["done", "dry run"])
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("dedicate",), "Write compaction: dedicated for it in the maintenance policy"),
        (("rescale", "--buckets", "1"), "shop.orders has 1 buckets already."),
        (
            ("rescale", "--buckets", "2", "--partition", "dt=1"),
            "shop.orders has no partitions. Rescale it as a whole.",
        ),
    ],
    ids=["dedicate", "rescale", "partition"],
)
def test_a_dry_run_refuses_what_is_refused(
    shop: Project, command: tuple[str, ...], why: str, dry: tuple[str, ...]
) -> None:
    said = shop.run("tables", *command, "shop.orders", "-m", "shop", *dry)
    assert (said.code, said.out) == (1, "")
    assert why in said.err


def test_a_table_that_cannot_be_read_is_told_once_and_with_what_to_do(shop: Project) -> None:
    consumer = shop.folder / "warehouse" / "shop.db" / "orders" / "consumer" / "consumer-job"
    consumer.parent.mkdir()
    consumer.write_text("{")
    said = shop.run("maintain", "-m", "shop", "shop.orders")
    assert (said.code, said.out) == (1, "Nothing was done.\n")
    (told,) = said.err.splitlines()
    assert told.startswith("Error: shop.orders: Nothing is done to it: consumer/consumer-job of ")
    assert "may be deleted if nobody needs what it keeps" in told
    asked = shop.run("maintain", "-m", "shop", "shop.orders", "--dry-run").out.splitlines()
    assert [line.startswith("shop.orders: Nothing is done to it: ") for line in asked] == [True]
    orders, _ = shop.run("status", "-m", "shop", "--tables", "--json").json["tables"]
    assert orders["problem"].startswith("consumer/consumer-job of the table shop.orders is not ")
    assert (orders["files"], orders["snapshots"], orders["held_back"]) == (None, None, [])

"""What is told of an action: how it ended, and only what an action of its kind can change."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from lakehouse_dagster.maintenance.events import line
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState

AT = datetime(2026, 11, 30, tzinfo=timezone.utc)
BEFORE = {
    "files": 40,
    "bytes": 9000,
    "small_files": 38,
    "level0_files": 30,
    "partitions": 3,
    "snapshots": 59,
    "changelogs": 9,
    "tags": 4,
    "manifests": 300,
}
LESS = {name: value - 1 for name, value in BEFORE.items()}
MORE = {name: value + 1 for name, value in BEFORE.items()}


def record(
    kind: str, after: dict[str, int] | None, state: ActionState = ActionState.DONE, calls: int = 1
) -> ActionRecord:
    return ActionRecord(
        id="1",
        table_name="ods.a",
        kind=kind,
        state=state,
        reason="",
        details=json.dumps({"calls": calls}),
        holder="a test",
        flink_job_id=None,
        session_handle=None,
        attempts=1,
        writer_restarts=0,
        started_at=AT,
        ended_at=AT,
        before=json.dumps(BEFORE),
        after=None if after is None else json.dumps(after),
        error=None,
    )


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (
            "compact",
            "files 40 to 39, bytes 9000 to 8999, small_files 38 to 37, level0_files 30 to 29",
        ),
        (
            "partition expiry",
            "files 40 to 39, bytes 9000 to 8999, small_files 38 to 37, level0_files 30 to 29, "
            "partitions 3 to 2",
        ),
        ("snapshot expiry", "snapshots 59 to 58"),
        ("changelog expiry", "changelogs 9 to 8"),
        ("tag expiry", "tags 4 to 3"),
        ("manifest compaction", "manifests 300 to 299"),
        ("orphan search", "nothing"),
    ],
)
def test_an_action_is_credited_with_what_its_kind_makes_less(kind: str, change: str) -> None:
    assert line(record(kind, LESS)) == f"ods.a: {kind}: done: {change}"
    assert line(record(kind, MORE)) == f"ods.a: {kind}: done: nothing"


def test_what_a_search_found_is_told() -> None:
    found = record("orphan search", {**MORE, "orphan_files": 3, "orphan_bytes": 300})
    assert line(found) == "ods.a: orphan search: done: orphan files 3, orphan bytes 300"


def test_while_a_table_is_rescaled_nobody_else_changes_it() -> None:
    assert line(record("rescale", {**BEFORE, "files": 43})) == (
        "ods.a: rescale: done: files 40 to 43"
    )


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.CANCELLED])
def test_a_compaction_that_was_not_done_is_credited_with_nothing(state: ActionState) -> None:
    said = f"ods.a: full compaction: {state.value}: "
    assert line(record("full compaction", LESS, state)) == said + "nothing"
    assert line(record("full compaction", None, state)) == said + "not known"
    # Of several Flink jobs, the first may have committed.
    several = line(record("full compaction", LESS, state, calls=2))
    assert several.startswith(said + "files 40 to 39")


@pytest.mark.parametrize(
    ("attempts", "restarts", "price"),
    [
        (1, 0, ""),
        (3, 0, " (3 attempts)"),
        (1, 1, " (once a writer restarted meanwhile)"),
        (2, 11, " (2 attempts; 11 times a writer restarted meanwhile)"),
    ],
)
def test_what_an_action_cost_its_writers_is_told(attempts: int, restarts: int, price: str) -> None:
    made = replace(record("compact", BEFORE), attempts=attempts, writer_restarts=restarts)
    assert line(made) == f"ods.a: compact: done: nothing{price}"

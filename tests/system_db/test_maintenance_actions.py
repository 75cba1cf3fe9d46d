from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.paimon.bucket_facts import BucketSums
from lakehouse_dagster.paimon.file_facts import StoredSums
from lakehouse_dagster.system_db import Database
from lakehouse_dagster.system_db.maintenance_actions import ActionState, MaintenanceActions
from lakehouse_dagster.system_db.table_files import TableFiles

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=timezone.utc)


def begin(actions: MaintenanceActions, table: str = "ods.a", kind: str = "compact") -> str:
    record = actions.begin(
        table, kind, reason="many files", details="{}", holder="a test", before=None
    )
    return record.id


def test_an_action_is_on_record_before_it_is_done_and_keeps_its_outcome(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)
    first, second = begin(actions), begin(actions, "ods.b")
    assert {a.id for a in actions.running()} == {first, second}
    actions.update(first, {"state": ActionState.FAILED, "error": "lost", "ended_at": NOW})
    assert [a.id for a in actions.running()] == [second]
    (found,) = actions.of_table("ods.a")
    assert (found.state, found.error, found.reason) == (ActionState.FAILED, "lost", "many files")
    assert actions.ended_since(NOW)[0].id == first
    assert actions.ended_since(NOW + timedelta(seconds=1)) == ()


def test_actions_of_another_lakehouse_are_not_seen(db: Database) -> None:
    begin(MaintenanceActions(db, "other", lambda: NOW))
    actions = MaintenanceActions(db, "lake", lambda: NOW)
    assert actions.running() == ()
    with pytest.raises(SystemDatabaseError, match="No maintenance action"):
        actions.update("0" * 32, {"attempts": 2})


def test_old_actions_are_forgotten_and_running_ones_never(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)
    first, last, failed, running = (begin(actions) for _ in range(4))
    earlier = NOW - timedelta(hours=1)
    actions.update(first, {"state": ActionState.DONE, "ended_at": earlier})
    actions.update(last, {"state": ActionState.DONE, "ended_at": NOW})
    actions.update(failed, {"state": ActionState.FAILED, "ended_at": earlier})
    assert actions.prune(NOW + timedelta(days=1)) == 2
    # What is due follows from when it was last done, however long ago.
    assert {a.id for a in actions.of_table("ods.a")} == {last, running}


def test_errors_stand_until_the_same_is_done(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)

    def end(kind: str, state: ActionState, minute: int, error: str | None = None) -> None:
        at = NOW + timedelta(minutes=minute)
        actions.update(begin(actions, kind=kind), {"state": state, "error": error, "ended_at": at})

    end("compact", ActionState.FAILED, 1, "a is gone")
    end("full compaction", ActionState.FAILED, 2, "b is gone")
    end("full compaction", ActionState.FAILED, 3, "no answer")
    end("snapshot expiry", ActionState.DONE, 4)
    assert actions.unmended("is gone") == {"ods.a": ("b is gone", "a is gone")}
    end("compact", ActionState.DONE, 5)
    end("full compaction", ActionState.CANCELLED, 6, "is gone")
    assert actions.unmended("is gone") == {"ods.a": ("b is gone",)}
    assert MaintenanceActions(db, "other").unmended("is gone") == {}


def test_the_error_of_the_last_failure_is_known_by_table_and_kind(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)
    ends = (
        (ActionState.FAILED, "first"),
        (ActionState.INTERRUPTED, "second"),
        (ActionState.DONE, None),
    )
    for number, (state, error) in enumerate(ends):
        ended = NOW + timedelta(minutes=number)
        actions.update(begin(actions), {"state": state, "error": error, "ended_at": ended})
    other = begin(actions, "ods.b", "snapshot expiry")
    actions.update(other, {"state": ActionState.FAILED, "error": "third", "ended_at": NOW})
    begin(actions, "ods.b")
    wanted = {("ods.a", "compact"): "second", ("ods.b", "snapshot expiry"): "third"}
    assert actions.last_errors() == wanted


def test_sums_are_kept_from_one_process_to_the_next(db: Database) -> None:
    bucket = BucketSums()
    bucket.count({"_FILE_SIZE": 10, "_ROW_COUNT": 3, "_LEVEL": 0}, 1, small_below_bytes=100)
    bucket.count({"_FILE_SIZE": 500, "_ROW_COUNT": 9, "_LEVEL": 5}, 1, small_below_bytes=100)
    sums = StoredSums(7, "f", 100, {("00", 2): bucket})
    TableFiles(db, "lake").save("ods.a", sums)
    assert TableFiles(db, "lake").load("ods.a") == sums
    assert TableFiles(db, "lake").load("ods.b") is None
    assert TableFiles(db, "other").load("ods.a") is None


def test_sums_at_hand_are_not_asked_for_again_and_the_newest_saved_count_for_others(
    db: Database,
) -> None:
    mine, theirs = TableFiles(db, "lake"), TableFiles(db, "lake")
    older, newer = StoredSums(7, "f", 100, {}), StoredSums(8, "g", 100, {})
    mine.save("ods.a", older)
    theirs.save("ods.a", newer)
    assert mine.load("ods.a") is older
    assert TableFiles(db, "lake").load("ods.a") == newer


def test_outcomes_say_when_it_was_done_and_how_often_it_failed_since(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)

    def over(state: ActionState, minutes: int, table: str = "ods.a", kind: str = "compact") -> None:
        ended = NOW + timedelta(minutes=minutes)
        actions.update(begin(actions, table, kind), {"state": state, "ended_at": ended})

    for state, minutes in (
        (ActionState.FAILED, 1),
        (ActionState.DONE, 2),
        (ActionState.FAILED, 3),
        (ActionState.CANCELLED, 4),
        (ActionState.FAILED, 5),
    ):
        over(state, minutes)
    over(ActionState.DONE, 6, kind="snapshot expiry")
    over(ActionState.FAILED, 7, table="ods.b")
    begin(actions, "ods.c")
    found = {(o.table_name, o.kind): o for o in actions.outcomes()}
    assert set(found) == {
        ("ods.a", "compact"),
        ("ods.a", "snapshot expiry"),
        ("ods.b", "compact"),
    }
    compact = found["ods.a", "compact"]
    assert (compact.done_at, compact.failed_at, compact.failures) == (
        NOW + timedelta(minutes=2),
        NOW + timedelta(minutes=5),
        2,
    )
    assert found["ods.a", "snapshot expiry"].failures == 0
    assert found["ods.b", "compact"].done_at is None
    assert MaintenanceActions(db, "other").outcomes() == ()
    assert set(actions.last_done("snapshot expiry")) == {"ods.a"}


def test_work_that_died_with_its_run_counts_as_failed_only_when_it_dies_again(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)

    def then(minutes: int, state: ActionState) -> tuple[datetime | None, int]:
        ended = NOW + timedelta(minutes=minutes)
        actions.update(begin(actions), {"state": state, "ended_at": ended})
        (outcome,) = actions.outcomes()
        return outcome.failed_at, outcome.failures

    assert then(1, ActionState.INTERRUPTED) == (None, 0)
    assert then(2, ActionState.INTERRUPTED) == (NOW + timedelta(minutes=2), 2)
    assert then(3, ActionState.FAILED) == (NOW + timedelta(minutes=3), 3)
    assert then(4, ActionState.INTERRUPTED) == (NOW + timedelta(minutes=4), 4)
    assert then(5, ActionState.DONE) == (None, 0)
    assert then(6, ActionState.INTERRUPTED) == (None, 0)
    assert then(7, ActionState.FAILED) == (NOW + timedelta(minutes=7), 1)


def test_the_latest_action_of_each_table_is_known_with_their_number(db: Database) -> None:
    moments = iter(NOW + timedelta(minutes=n) for n in range(9))
    actions = MaintenanceActions(db, "lake", lambda: next(moments))
    actions.update(begin(actions), {"state": ActionState.DONE, "ended_at": NOW})
    second = begin(actions)
    actions.update(second, {"state": ActionState.CANCELLED, "ended_at": NOW})
    begin(actions, "ods.b")
    latest = actions.latest()
    assert {t: (a.records, a.state) for t, a in latest.items()} == {
        "ods.a": (2, ActionState.CANCELLED),
        "ods.b": (1, ActionState.RUNNING),
    }


def test_what_is_over_is_not_changed_by_whoever_was_fenced_off(db: Database) -> None:
    actions = MaintenanceActions(db, "lake", lambda: NOW)
    action = begin(actions)
    actions.update(action, {"state": ActionState.FAILED, "ended_at": NOW, "error": "its run ended"})
    late = actions.update(action, {"state": ActionState.DONE, "error": None})
    assert (late.state, late.error) == (ActionState.FAILED, "its run ended")

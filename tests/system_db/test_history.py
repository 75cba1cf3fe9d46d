"""Names, versions of scripts, and what is forgotten of a job's past."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakehouse_dagster.errors import (
    IncarnationConflictError,
    LeaseLostError,
    SystemDatabaseError,
)
from lakehouse_dagster.system_db import (
    Database,
    DesiredState,
    Incarnation,
    IncarnationChanges,
    IncarnationState,
    Jobs,
    Leases,
    Origin,
    ScriptVersion,
    flink_job_id,
)
from tests.system_db.conftest import MovedClock


@pytest.fixture
def jobs(db: Database, clock: MovedClock) -> Jobs:
    return Jobs(db, "lake", clock)


def _record(jobs: Jobs, name: str, number: int, fencing: int = 1, **more: Any) -> Incarnation:
    return jobs.record(
        name,
        number=number,
        flink_job_id=flink_job_id(jobs.lakehouse, name, number),
        fingerprint=f"script {number}",
        restored_from=None,
        fencing=fencing,
        session_handle=None,
        **more,
    )


def _numbers(jobs: Jobs, name: str) -> list[int]:
    return [life.number for life in jobs.incarnations(name)]


# -- incarnations that were adopted, and their newer fields -----------------------------------


def test_an_incarnation_says_how_it_came_to_be(jobs: Jobs) -> None:
    assert _record(jobs, "orders", 1).origin is Origin.SUBMITTED
    assert _record(jobs, "orders", 2, origin=Origin.ADOPTED).origin is Origin.ADOPTED
    assert [life.origin for life in jobs.incarnations("orders")] == [
        Origin.ADOPTED,
        Origin.SUBMITTED,
    ]


def test_all_that_is_observed_of_an_incarnation_is_read_back(jobs: Jobs, clock: MovedClock) -> None:
    _record(jobs, "orders", 1)
    changes: IncarnationChanges = {
        "savepoint_path": "file:///savepoints/1",
        "savepoint_at": clock.now,
        "failed_checkpoints": 3,
        "root_cause": "NumberFormatException",
        "root_cause_at": clock.now + timedelta(seconds=1),
        "read_positions": '[{"kind": "paimon", "next_snapshot": 12}]',
        "read_moved_at": clock.now + timedelta(seconds=2),
        "restore_points_deleted_at": clock.now + timedelta(seconds=3),
    }
    life = jobs.update("orders", 1, **changes)
    assert {field: getattr(life, field) for field in changes} == changes
    assert jobs.latest("orders") == life


# -- names ------------------------------------------------------------------------------------


def test_operator_ids_are_made_from_the_jobs_own_name_unless_told_otherwise(jobs: Jobs) -> None:
    assert jobs.ensure("orders").effective_operator_name == "orders"
    assert jobs.set_operator_name("orders", "sales").effective_operator_name == "sales"
    by_hand = jobs.set_operator_name("orders", "")
    assert (by_hand.operator_name, by_hand.effective_operator_name) == ("", "")
    assert jobs.set_operator_name("orders", None).effective_operator_name == "orders"


def test_a_renamed_job_keeps_its_lives_its_scripts_and_its_operator_ids(
    jobs: Jobs, clock: MovedClock
) -> None:
    _record(jobs, "orders", 1)
    second = _record(jobs, "orders", 2)
    jobs.save_version("orders", "script 2", "{}", None)
    jobs.set_desired("orders", DesiredState.RUNNING)
    jobs.count_attempt("orders", clock.now)
    jobs.set_error("orders", "no slot")
    before = jobs.get("orders")
    renamed = jobs.rename("orders", "sales")
    assert before is not None
    assert (renamed.name, renamed.operator_name) == ("sales", "orders")
    assert (renamed.desired, renamed.fingerprint, renamed.attempts, renamed.last_error) == (
        DesiredState.RUNNING,
        "script 2",
        1,
        "no slot",
    )
    assert _numbers(jobs, "sales") == [2, 1]
    found = jobs.by_flink_job_id(second.flink_job_id)
    assert found is not None
    assert found.job_name == "sales"
    assert jobs.version("sales", "script 2") == ScriptVersion(
        "sales", "script 2", "{}", None, clock.now
    )
    assert jobs.get("orders") is None
    assert jobs.version("orders", "script 2") is None
    assert jobs.rename("sales", "revenue").operator_name == "orders"
    assert jobs.rename("revenue", "orders").effective_operator_name == "orders"


def test_a_job_takes_the_name_of_one_that_was_only_declared(jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    jobs.ensure("sales")
    jobs.rename("orders", "sales")
    assert [job.name for job in jobs.all()] == ["sales"]
    assert _numbers(jobs, "sales") == [1]


def test_a_job_does_not_take_the_name_of_one_that_has_run(jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    _record(jobs, "sales", 1)
    with pytest.raises(IncarnationConflictError, match="cannot be renamed to sales"):
        jobs.rename("orders", "sales")
    assert _numbers(jobs, "orders") == _numbers(jobs, "sales") == [1]


def test_a_job_nobody_knows_cannot_be_renamed(jobs: Jobs) -> None:
    with pytest.raises(SystemDatabaseError, match="The job orders is not in the system database"):
        jobs.rename("orders", "sales")
    assert jobs.all() == ()


def test_a_renamed_job_is_acted_on_with_leases_on_its_new_name(
    db: Database, jobs: Jobs, clock: MovedClock
) -> None:
    leases = Leases(db, clock)
    for _ in range(5):
        lease = leases.acquire(jobs.lease_key("orders"), "run a", 60)
        leases.release(lease)
    _record(jobs, "orders", 1, fencing=lease.fencing)
    new = leases.acquire(jobs.lease_key("sales"), "run b", 60)
    jobs.rename("orders", "sales")
    _record(jobs, "sales", 2, fencing=new.fencing)
    assert _numbers(jobs, "sales") == [2, 1]


@pytest.mark.parametrize("gone", ["renamed", "forgotten"])
def test_a_run_of_before_cannot_bring_a_job_back_that_was_renamed_or_forgotten(
    db: Database, jobs: Jobs, clock: MovedClock, gone: str
) -> None:
    leases, key = Leases(db, clock), jobs.lease_key("orders")
    stopped = leases.acquire(key, "run a", 60)
    _record(jobs, "orders", 1, fencing=stopped.fencing)
    clock.move(61)
    person = leases.acquire(key, "a person", 60)
    if gone == "renamed":
        jobs.rename("orders", "sales")
    else:
        assert jobs.forget("orders")
    leases.release(person)
    with pytest.raises(LeaseLostError, match="has acted on the job orders"):
        _record(jobs, "orders", 2, fencing=stopped.fencing)
    with pytest.raises(SystemDatabaseError):
        jobs.update("orders", 1, fencing=stopped.fencing, state=IncarnationState.RUNNING)
    assert jobs.get("orders") is None
    again = leases.acquire(key, "run c", 60)
    _record(jobs, "orders", 1, fencing=again.fencing)


def test_a_forgotten_job_leaves_nothing(db: Database, jobs: Jobs) -> None:
    for name in ("orders", "users"):
        _record(jobs, name, 1)
        jobs.save_version(name, "script 1", "{}", "{}")
    _record(Jobs(db, "other"), "orders", 1)
    assert jobs.forget("orders")
    assert not jobs.forget("orders")
    assert jobs.get("orders") is None
    assert jobs.incarnations("orders") == ()
    assert jobs.version("orders", "script 1") is None
    assert _numbers(jobs, "users") == _numbers(Jobs(db, "other"), "orders") == [1]
    assert jobs.version("users", "script 1") is not None


# -- versions of scripts ----------------------------------------------------------------------


def test_a_version_of_a_script_is_remembered_and_completed_but_not_erased(
    jobs: Jobs, clock: MovedClock
) -> None:
    first_seen = clock.now
    assert jobs.version("orders", "f1") is None
    jobs.save_version("orders", "f1", definition='{"name": "orders"}', plan=None)
    clock.move(60)
    saved = jobs.save_version("orders", "f1", definition=None, plan='{"nodes": []}')
    assert saved == ScriptVersion("orders", "f1", '{"name": "orders"}', '{"nodes": []}', first_seen)
    assert jobs.version("orders", "f1") == saved
    assert jobs.version("orders", "f2") is None
    assert jobs.version("users", "f1") is None


# -- retention --------------------------------------------------------------------------------


def _past(jobs: Jobs, clock: MovedClock, lives: int) -> None:
    """Give ``orders`` lives of a day each; each ended with a savepoint, deleted but of the last."""
    for number in range(1, lives + 1):
        jobs.save_version("orders", f"script {number}", "{}", None)
        _record(jobs, "orders", number)
        clock.move(86_400)
        jobs.update(
            "orders",
            number,
            state=IncarnationState.STOPPED,
            ended_at=clock.now,
            savepoint_path=f"file:///savepoints/{number}",
            restore_points_deleted_at=None if number == lives else clock.now,
        )


def test_lives_that_are_old_and_many_are_pruned_with_their_scripts(
    jobs: Jobs, clock: MovedClock
) -> None:
    _past(jobs, clock, 10)
    assert jobs.prune(keep_incarnations=4, older_than=clock.now) == 6
    assert _numbers(jobs, "orders") == [10, 9, 8, 7]
    known = [n for n in range(1, 11) if jobs.version("orders", f"script {n}") is not None]
    assert known == [7, 8, 9, 10]
    assert jobs.prune(keep_incarnations=4, older_than=clock.now) == 0


def test_young_lives_stay_however_many_there_are(jobs: Jobs, clock: MovedClock) -> None:
    _past(jobs, clock, 10)
    three_days_ago = clock.now - timedelta(days=3)
    assert jobs.prune(keep_incarnations=1, older_than=three_days_ago) == 6
    assert _numbers(jobs, "orders") == [10, 9, 8, 7]


def test_the_newest_life_with_state_stays(jobs: Jobs, clock: MovedClock) -> None:
    _past(jobs, clock, 3)
    jobs.update("orders", 3, restore_points_deleted_at=clock.now)
    for number in (4, 5, 6):
        _record(jobs, "orders", number)
        jobs.update("orders", number, state=IncarnationState.ENDED, ended_at=clock.now)
    clock.move(86_400)
    assert jobs.prune(keep_incarnations=1, older_than=clock.now) == 4
    assert _numbers(jobs, "orders") == [6, 3]


def test_lives_whose_restore_points_still_lie_there_stay(jobs: Jobs, clock: MovedClock) -> None:
    _past(jobs, clock, 6)
    jobs.update("orders", 2, restore_points_deleted_at=None)
    jobs.update(
        "orders", 4, restore_points_deleted_at=None, savepoint_path=None, checkpoint_path="s3://c"
    )
    assert jobs.prune(keep_incarnations=1, older_than=clock.now) == 3
    assert _numbers(jobs, "orders") == [6, 4, 2]


def test_lives_that_are_not_over_stay(jobs: Jobs, clock: MovedClock) -> None:
    for number in (1, 2, 3):
        _record(jobs, "orders", number)
    jobs.update("orders", 1, state=IncarnationState.ENDED)
    clock.move(86_400)
    jobs.update_many([("orders", 3, {"state": IncarnationState.RUNNING})])
    assert jobs.prune(keep_incarnations=1, older_than=clock.now) == 2
    assert _numbers(jobs, "orders") == [3]


def test_the_number_of_a_life_is_never_used_again_after_pruning(
    jobs: Jobs, clock: MovedClock
) -> None:
    for number in (1, 2):
        _record(jobs, "orders", number)
        jobs.update("orders", number, state=IncarnationState.ENDED, ended_at=clock.now)
    clock.move(86_400)
    assert jobs.prune(keep_incarnations=0, older_than=clock.now) == 1
    with pytest.raises(IncarnationConflictError, match="incarnation 2 is recorded already"):
        _record(jobs, "orders", 2)


def test_a_script_that_is_about_to_be_recorded_is_not_pruned(jobs: Jobs, clock: MovedClock) -> None:
    yesterday = clock.now
    clock.move(86_400)
    jobs.save_version("orders", "new", "{}", None)
    jobs.prune(keep_incarnations=1, older_than=yesterday)
    assert jobs.version("orders", "new") is not None


def test_each_job_and_lakehouse_has_its_own_past(
    db: Database, jobs: Jobs, clock: MovedClock
) -> None:
    other = Jobs(db, "other", clock)
    _past(jobs, clock, 3)
    _past(other, clock, 3)
    _record(jobs, "users", 1)
    jobs.update("users", 1, state=IncarnationState.ENDED, ended_at=clock.now)
    clock.move(1)
    assert jobs.prune(keep_incarnations=1, older_than=clock.now) == 2
    assert _numbers(jobs, "orders") == [3]
    assert _numbers(jobs, "users") == [1]
    assert _numbers(other, "orders") == [3, 2, 1]

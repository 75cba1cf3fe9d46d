from __future__ import annotations

import multiprocessing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakehouse_dagster.errors import (
    ConfigurationError,
    IncarnationConflictError,
    LeaseLostError,
    SystemDatabaseError,
)
from lakehouse_dagster.system_db import Database, Leases, SystemDatabase
from lakehouse_dagster.system_db.jobs import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
    Jobs,
    flink_job_id,
)
from tests.system_db.conftest import MovedClock


@pytest.fixture
def jobs(db: Database, clock: MovedClock) -> Jobs:
    return Jobs(db, "lake", clock)


def _record(jobs: Jobs, name: str, number: int, fencing: int = 1) -> Incarnation:
    return jobs.record(
        name,
        number=number,
        flink_job_id=flink_job_id(jobs.lakehouse, name, number),
        fingerprint=f"script {number}",
        restored_from=None if number == 1 else f"file:///savepoints/{number - 1}",
        fencing=fencing,
        session_handle=f"session {number}",
    )


def _states(jobs: Jobs, name: str) -> dict[int, IncarnationState]:
    return {life.number: life.state for life in jobs.incarnations(name)}


def test_flink_job_ids_never_change_between_versions() -> None:
    assert flink_job_id("lake", "orders", 1) == "2361dfc66b4755198d4e4b3a360b080b"
    assert flink_job_id("lake", "orders", 2) != flink_job_id("lake", "orders", 1)
    assert flink_job_id("other", "orders", 1) != flink_job_id("lake", "orders", 1)
    assert len(flink_job_id("lake", "Aufträge/日本", 12)) == 32


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_lakehouse_name_that_would_make_job_ids_ambiguous_is_refused(
    db: Database, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a lakehouse"):
        Jobs(db, name)


def test_a_job_nobody_knows_is_none_and_a_job_once_seen_is_unmanaged(
    jobs: Jobs, clock: MovedClock
) -> None:
    assert jobs.get("orders") is None
    assert jobs.ensure("orders") == JobRecord(
        name="orders",
        desired=DesiredState.UNMANAGED,
        fingerprint=None,
        attempts=0,
        next_attempt_at=None,
        last_error=None,
        updated_at=clock.now,
    )
    clock.move(5)
    assert jobs.ensure("orders") == jobs.get("orders")
    assert jobs.all() == (jobs.ensure("orders"),)


def test_what_the_user_wants_is_remembered_also_for_a_new_job(
    jobs: Jobs, clock: MovedClock
) -> None:
    jobs.set_desired("orders", DesiredState.RUNNING)
    clock.move(5)
    jobs.set_desired("orders", DesiredState.SUSPENDED)
    job = jobs.get("orders")
    assert job is not None
    assert (job.desired, job.updated_at) == (DesiredState.SUSPENDED, clock.now)


def test_an_attempt_that_failed_for_a_passing_reason_does_not_lead_to_the_cap(
    jobs: Jobs, clock: MovedClock
) -> None:
    later = clock.now + timedelta(minutes=5)
    for _ in range(3):
        jobs.count_attempt("orders", later)
    limited = jobs.limit_attempts("orders", 2)
    assert (limited.attempts, limited.next_attempt_at) == (2, later)
    assert jobs.limit_attempts("orders", 5).attempts == 2


def test_attempts_are_counted_until_they_are_reset(jobs: Jobs, clock: MovedClock) -> None:
    later = clock.now + timedelta(minutes=5)
    assert jobs.count_attempt("orders", later) == 1
    assert jobs.count_attempt("orders", later) == 2
    jobs.set_error("orders", "no free slots")
    job = jobs.get("orders")
    assert job is not None
    assert (job.attempts, job.next_attempt_at, job.last_error) == (2, later, "no free slots")
    jobs.set_error("orders", None)
    reset = jobs.reset_attempts("orders")
    assert (reset.attempts, reset.next_attempt_at, reset.last_error) == (0, None, None)


def test_jobs_of_another_lakehouse_are_not_seen(db: Database, jobs: Jobs) -> None:
    other = Jobs(db, "other")
    jobs.set_desired("orders", DesiredState.RUNNING)
    life = _record(jobs, "orders", 1)
    assert other.get("orders") is None
    assert other.all() == ()
    assert other.incarnations("orders") == ()
    assert other.all_latest() == {}
    assert other.by_flink_job_id(life.flink_job_id) is None
    _record(other, "orders", 1)
    assert jobs.all_latest() == {"orders": life}


def test_an_incarnation_is_written_down_whole_before_it_is_submitted(
    jobs: Jobs, clock: MovedClock
) -> None:
    life = _record(jobs, "orders", 1, fencing=7)
    assert life == Incarnation(
        job_name="orders",
        number=1,
        flink_job_id=flink_job_id("lake", "orders", 1),
        fingerprint="script 1",
        state=IncarnationState.RECORDED,
        session_handle="session 1",
        operation_handle=None,
        restored_from=None,
        fencing=7,
        recorded_at=clock.now,
        submitted_at=None,
        running_at=None,
        ended_at=None,
        stop_trigger_id=None,
        savepoint_path=None,
        checkpoint_path=None,
        checkpoint_id=None,
        checkpoint_at=None,
        restarts=0,
        restarts_before_window=0,
        restart_window_at=None,
        end_reason=None,
    )
    assert jobs.latest("orders") == life
    assert jobs.by_flink_job_id(life.flink_job_id) == life
    assert jobs.ensure("orders").fingerprint == "script 1"


def test_lives_come_newest_first_and_the_newest_of_all_jobs_in_one_answer(jobs: Jobs) -> None:
    for number in (1, 2, 10):
        _record(jobs, "orders", number)
    _record(jobs, "users", 3)
    jobs.ensure("never ran")
    assert [life.number for life in jobs.incarnations("orders")] == [10, 2, 1]
    newest = {name: life.number for name, life in jobs.all_latest().items()}
    assert newest == {"orders": 10, "users": 3}
    assert jobs.latest("never ran") is None


@pytest.mark.parametrize("number", [4, 5])
def test_a_number_that_is_taken_or_passed_is_refused_and_nothing_changes(
    jobs: Jobs, number: int
) -> None:
    _record(jobs, "orders", 5)
    with pytest.raises(IncarnationConflictError, match="incarnation 5 is recorded already"):
        _record(jobs, "orders", number)
    assert _states(jobs, "orders") == {5: IncarnationState.RECORDED}


def test_a_new_life_supersedes_only_lives_that_are_not_over(jobs: Jobs) -> None:
    endings = [
        IncarnationState.STOPPED,
        IncarnationState.ENDED,
        IncarnationState.RECORDED,
        IncarnationState.SUBMITTED,
        IncarnationState.RUNNING,
        IncarnationState.STOPPING,
    ]
    for number, state in enumerate(endings, start=1):
        _record(jobs, "orders", number)
        jobs.update("orders", number, state=state, end_reason="drained" if number < 3 else None)
    _record(jobs, "users", 1)
    _record(jobs, "orders", 7)
    superseded = IncarnationState.SUPERSEDED
    assert _states(jobs, "orders") == {
        1: IncarnationState.STOPPED,
        2: IncarnationState.ENDED,
        3: superseded,
        4: superseded,
        5: superseded,
        6: superseded,
        7: IncarnationState.RECORDED,
    }
    assert _states(jobs, "users") == {1: IncarnationState.RECORDED}
    lives = {life.number: life for life in jobs.incarnations("orders")}
    assert lives[1].end_reason == "drained"
    assert lives[6].end_reason == "superseded by incarnation 7"
    assert lives[6].ended_at is None


def test_a_superseded_life_may_end_but_not_run_again(jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    _record(jobs, "orders", 2)
    with pytest.raises(IncarnationConflictError, match="cannot become RUNNING again"):
        jobs.update("orders", 1, state=IncarnationState.RUNNING)
    ended = jobs.update("orders", 1, state=IncarnationState.ENDED, end_reason="cancelled")
    assert (ended.state, ended.end_reason) == (IncarnationState.ENDED, "cancelled")


def test_every_changeable_field_of_an_incarnation_is_kept(jobs: Jobs, clock: MovedClock) -> None:
    life = _record(jobs, "orders", 1)
    changes: dict[str, Any] = {
        "state": IncarnationState.STOPPED,
        "session_handle": "s",
        "operation_handle": "o",
        "restored_from": "file:///r",
        "submitted_at": clock.now + timedelta(seconds=1),
        "ended_at": clock.now + timedelta(seconds=2),
        "stop_trigger_id": "a" * 32,
        "savepoint_path": "file:///s",
        "checkpoint_path": "file:///c/chk-9",
        "checkpoint_id": 2**40,
        "checkpoint_at": clock.now + timedelta(seconds=3),
        "end_reason": "stopped by a user",
    }
    updated = jobs.update("orders", 1, **changes)
    assert updated == replace(life, **changes)
    assert jobs.latest("orders") == updated


def test_a_field_that_identifies_an_incarnation_cannot_be_changed(jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    with pytest.raises(TypeError, match="flink_job_id"):
        jobs.update("orders", 1, flink_job_id="0" * 32)  # type: ignore[call-arg]


def test_an_incarnation_that_was_never_recorded_cannot_be_updated(jobs: Jobs) -> None:
    jobs.ensure("orders")
    with pytest.raises(SystemDatabaseError, match="No incarnation 3 of the job orders"):
        jobs.update("orders", 3, state=IncarnationState.RUNNING)


def test_a_run_with_an_older_lease_can_neither_record_nor_update(jobs: Jobs) -> None:
    _record(jobs, "orders", 1, fencing=5)
    with pytest.raises(LeaseLostError, match=r"later lease \(5\) has acted on the job orders"):
        _record(jobs, "orders", 2, fencing=4)
    with pytest.raises(LeaseLostError):
        jobs.update("orders", 1, fencing=4, state=IncarnationState.RUNNING)
    assert _states(jobs, "orders") == {1: IncarnationState.RECORDED}
    _record(jobs, "orders", 2, fencing=5)


def test_an_update_with_a_later_lease_fences_off_earlier_ones(jobs: Jobs) -> None:
    _record(jobs, "orders", 1, fencing=5)
    jobs.update("orders", 1, fencing=7, state=IncarnationState.STOPPING)
    with pytest.raises(LeaseLostError, match=r"\(7\)"):
        _record(jobs, "orders", 2, fencing=6)
    _record(jobs, "users", 1, fencing=1)


def test_an_observation_needs_no_lease(jobs: Jobs) -> None:
    _record(jobs, "orders", 1, fencing=5)
    assert jobs.update("orders", 1, checkpoint_id=3).checkpoint_id == 3


def test_a_force_cancelled_run_cannot_record_after_another_run_took_over(
    db: Database, clock: MovedClock, jobs: Jobs
) -> None:
    leases, key = Leases(db, clock), jobs.lease_key("orders")
    old = leases.acquire(key, "run a", ttl_seconds=60)
    clock.move(61)
    new = leases.acquire(key, "run b", ttl_seconds=60)
    _record(jobs, "orders", 1, fencing=new.fencing)
    with pytest.raises(LeaseLostError):
        _record(jobs, "orders", 2, fencing=old.fencing)
    assert [life.number for life in jobs.incarnations("orders")] == [1]


def _record_rounds(url: str, start: Any, results: Any, rounds: int) -> None:
    won = []
    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        for number in range(1, rounds + 1):
            start.wait()
            try:
                _record(jobs, "orders", number)
                won.append(number)
            except IncarnationConflictError:
                pass
    results.put(won)


def test_of_two_processes_that_record_the_same_incarnation_exactly_one_wins(url: str) -> None:
    rounds = 40
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(2), fork.Queue()
    processes = [
        fork.Process(target=_record_rounds, args=(url, start, results, rounds)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    first, second = results.get(timeout=60), results.get(timeout=60)
    for process in processes:
        process.join(10)
    assert sorted(first + second) == list(range(1, rounds + 1))

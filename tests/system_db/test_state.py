from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from lakehouse_dagster.system_db import (
    Database,
    DesiredState,
    IncarnationState,
    Jobs,
    JobsState,
    Leases,
    SystemDatabase,
    flink_job_id,
)
from tests.system_db.conftest import MovedClock


@pytest.fixture
def jobs(db: Database, clock: MovedClock) -> Jobs:
    return Jobs(db, "lake", clock)


def _record(jobs: Jobs, name: str, number: int) -> None:
    jobs.record(
        name,
        number=number,
        flink_job_id=flink_job_id(jobs.lakehouse, name, number),
        fingerprint=f"script {number}",
        restored_from=None,
        fencing=1,
        session_handle=None,
    )


@contextmanager
def _statements(db: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(db.engine, "before_cursor_execute", executed)
    try:
        yield seen
    finally:
        event.remove(db.engine, "before_cursor_execute", executed)


def _of_tables(statements: list[str]) -> list[str]:
    return [s for s in statements if "lakehouse_job" in s or "lakehouse_incarnation" in s]


def test_the_state_is_that_of_the_tables(jobs: Jobs) -> None:
    assert jobs.state() == JobsState(records={}, latest={})
    jobs.set_desired("users", DesiredState.SUSPENDED)
    for number in (1, 2, 3):
        _record(jobs, "orders", number)
    state = jobs.state()
    assert dict(state.records) == {job.name: job for job in jobs.all()}
    assert dict(state.latest) == jobs.all_latest()
    assert [(life.job_name, life.number) for life in state.latest.values()] == [("orders", 3)]


def test_tables_are_not_read_again_when_nothing_has_changed(db: Database, jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    before = jobs.state()
    with _statements(db) as statements:
        assert jobs.state() is before
        assert Jobs(db, "lake").state() is before
    assert _of_tables(statements) == []


def test_leases_that_are_taken_and_renewed_are_no_change(
    db: Database, jobs: Jobs, clock: MovedClock
) -> None:
    _record(jobs, "orders", 1)
    before = jobs.state()
    leases = Leases(db, clock)
    leases.release(leases.renew(leases.acquire("job/lake/orders", "run a", 60)))
    assert jobs.state() is before


def test_a_change_in_another_lakehouse_is_no_change(db: Database, jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    before = jobs.state()
    _record(Jobs(db, "other"), "orders", 1)
    assert jobs.state() is before


_CHANGES: dict[str, Callable[[Jobs], object]] = {
    "ensure": lambda jobs: jobs.ensure("new"),
    "ensure_all": lambda jobs: jobs.ensure_all(["orders", "new"]),
    "set_desired": lambda jobs: jobs.set_desired("orders", DesiredState.CANCELED),
    "count_attempt": lambda jobs: jobs.count_attempt("orders", None),
    "set_error": lambda jobs: jobs.set_error("orders", "no slot"),
    "set_operator_name": lambda jobs: jobs.set_operator_name("orders", "before"),
    "record": lambda jobs: _record(jobs, "orders", 2),
    "update": lambda jobs: jobs.update("orders", 1, checkpoint_id=5),
    "update with fencing": lambda jobs: jobs.update("orders", 1, fencing=9, restarts=5),
    "update_many": lambda jobs: jobs.update_many([("orders", 1, {"checkpoint_id": 5})]),
    "rename": lambda jobs: jobs.rename("orders", "sales"),
    "forget": lambda jobs: jobs.forget("orders"),
}


@pytest.mark.parametrize("change", list(_CHANGES))
@pytest.mark.parametrize("by", ["this object", "another"])
def test_every_committed_change_is_seen_at_once(
    url: str, db: Database, jobs: Jobs, clock: MovedClock, change: str, by: str
) -> None:
    _record(jobs, "orders", 1)
    before = jobs.state()
    clock.move(1)
    with SystemDatabase(url).connect() as other:
        _CHANGES[change](jobs if by == "this object" else Jobs(other, "lake", clock))
        state = jobs.state()
        assert state != before
        assert dict(state.records) == {job.name: job for job in jobs.all()}
        assert dict(state.latest) == jobs.all_latest()
        assert Jobs(other, "lake").state() == state


def test_a_change_by_hand_is_seen_too(db: Database, jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    jobs.state()
    with db.engine.begin() as connection:
        connection.execute(text("UPDATE lakehouse_job SET desired = 'SUSPENDED'"))
    assert jobs.state().records["orders"].desired is DesiredState.SUSPENDED
    with db.engine.begin() as connection:
        connection.execute(text("DELETE FROM lakehouse_incarnation"))
        connection.execute(text("DELETE FROM lakehouse_job"))
    assert jobs.state() == JobsState(records={}, latest={})


def test_a_change_that_is_undone_is_not_seen(db: Database, jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    before = jobs.state()
    connection = db.engine.connect()
    connection.execute(text("UPDATE lakehouse_job SET desired = 'SUSPENDED'"))
    connection.rollback()
    connection.close()
    assert jobs.state() is before


def test_what_this_process_observed_is_not_read_again(db: Database, jobs: Jobs) -> None:
    for name in ("orders", "users"):
        _record(jobs, name, 1)
        _record(jobs, name, 2)
    jobs.state()
    with _statements(db) as writing:
        jobs.update_many(
            [
                ("orders", 2, {"checkpoint_id": 7}),
                ("users", 2, {"checkpoint_id": 8}),
                ("users", 1, {"restarts": 3}),
            ]
        )
    assert len([s for s in writing if s.startswith("UPDATE lakehouse_incarnation")]) == 2
    with _statements(db) as reading:
        state = jobs.state()
    assert _of_tables(reading) == []
    assert {name: life.checkpoint_id for name, life in state.latest.items()} == {
        "orders": 7,
        "users": 8,
    }
    assert dict(state.latest) == jobs.all_latest()


def test_an_observation_does_not_hide_what_someone_else_wrote_before_it(
    url: str, jobs: Jobs
) -> None:
    _record(jobs, "orders", 1)
    _record(jobs, "users", 1)
    jobs.state()
    with SystemDatabase(url).connect() as other:
        _record(Jobs(other, "lake"), "users", 2)
    jobs.update_many([("orders", 1, {"checkpoint_id": 7})])
    state = jobs.state()
    assert (state.latest["users"].number, state.latest["orders"].checkpoint_id) == (2, 7)


def test_overtaken_observations_are_dropped_and_the_others_written(jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    _record(jobs, "orders", 2)
    _record(jobs, "users", 1)
    written = jobs.update_many(
        [
            ("orders", 1, {"state": IncarnationState.RUNNING}),
            ("gone", 4, {"state": IncarnationState.RUNNING}),
            ("users", 1, {"state": IncarnationState.RUNNING, "restarts": 1}),
            ("users", 1, {"restarts": 2}),
        ]
    )
    assert [(life.job_name, life.number, life.state, life.restarts) for life in written] == [
        ("users", 1, IncarnationState.RUNNING, 2)
    ]
    assert [life.state for life in jobs.incarnations("orders")] == [
        IncarnationState.RECORDED,
        IncarnationState.SUPERSEDED,
    ]
    assert jobs.update_many([]) == ()


def test_all_missing_jobs_are_remembered_in_one_transaction(db: Database, jobs: Jobs) -> None:
    jobs.set_desired("orders", DesiredState.RUNNING)
    names = [f"job{number}" for number in range(300)]
    with _statements(db) as statements:
        jobs.ensure_all([*names, "orders", *names])
    assert len([s for s in statements if s.startswith("INSERT INTO lakehouse_job ")]) == 1
    assert set(jobs.state().records) == {"orders", *names}
    assert jobs.state().records["orders"].desired is DesiredState.RUNNING
    with _statements(db) as statements:
        jobs.ensure_all(names)
    assert _of_tables(statements) == []


def _answer(url: str, questions: Any, answers: Any) -> None:
    """Another process that keeps its database open and says what it sees when asked."""
    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        while questions.get() == "what do you see?":
            state = jobs.state()
            answers.put({name: life.checkpoint_id for name, life in state.latest.items()})


def test_a_process_sees_at_once_what_another_process_has_committed(url: str, jobs: Jobs) -> None:
    _record(jobs, "orders", 1)
    fork = multiprocessing.get_context("fork")
    questions, answers = fork.Queue(), fork.Queue()
    process = fork.Process(target=_answer, args=(url, questions, answers))
    process.start()
    try:
        for number in range(50):
            if number % 2:
                jobs.update_many([("orders", 1, {"checkpoint_id": number})])
            else:
                jobs.update("orders", 1, checkpoint_id=number)
            questions.put("what do you see?")
            assert answers.get(timeout=60) == {"orders": number}
            assert jobs.state().latest["orders"].checkpoint_id == number
    finally:
        questions.put("thank you")
        process.join(60)
    assert process.exitcode == 0


def _count_up(url: str, name: str, rounds: int) -> None:
    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        for number in range(1, rounds + 1):
            jobs.update(name, 1, checkpoint_id=number)


def test_no_thread_ever_sees_less_than_was_committed_before_it_asked(
    url: str, db: Database, jobs: Jobs
) -> None:
    """Two processes count up one job each; threads of this one count up a third, and all look."""
    rounds, names = 60, ("orders", "users", "mine")
    for name in names:
        _record(jobs, name, 1)
        jobs.update(name, 1, checkpoint_id=0)
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_count_up, args=(url, name, rounds)) for name in names[:2]]
    errors: list[str] = []
    done = threading.Event()

    def look() -> None:
        mine = Jobs(db, "lake")
        while not done.is_set():
            committed = {name: life.checkpoint_id or 0 for name, life in mine.all_latest().items()}
            seen = mine.state().latest
            for name in names:
                if (seen[name].checkpoint_id or 0) < committed[name]:
                    errors.append(f"{name}: {seen[name].checkpoint_id} < {committed[name]}")

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for one in [*writers, *lookers]:
        one.start()
    for number in range(1, rounds + 1):
        jobs.update_many([("mine", 1, {"checkpoint_id": number})])
    for writer in writers:
        writer.join(120)
    done.set()
    for looker in lookers:
        looker.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert errors == []
    state = jobs.state()
    assert {name: state.latest[name].checkpoint_id for name in names} == dict.fromkeys(
        names, rounds
    )


def test_an_alert_is_remembered_until_attempts_are_reset(jobs: Jobs, clock: MovedClock) -> None:
    at = clock.now + timedelta(minutes=1)
    assert jobs.set_alerted("orders", at).alerted_at == at
    assert jobs.state().records["orders"].alerted_at == at
    assert jobs.reset_attempts("orders").alerted_at is None

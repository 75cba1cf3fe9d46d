from __future__ import annotations

import multiprocessing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from lakehouse_dagster.errors import LeaseLostError, SystemDatabaseError
from lakehouse_dagster.system_db import (
    Database,
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
    Jobs,
    Lease,
    Leases,
    Origin,
    SystemDatabase,
    migrate,
    schema,
)
from tests.system_db.conftest import MovedClock
from tests.system_db.released import make_v0001


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type, misc]


def test_the_migrations_lead_to_the_tables_that_the_code_uses(db: Database) -> None:
    with db.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": False}
        )
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == migrate.HEAD
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert scripts.get_current_head() == migrate.HEAD


def test_a_database_of_version_0001_reads_back_whole_after_its_migration(url: str) -> None:
    make_v0001(url)
    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        assert jobs.all() == (
            JobRecord(
                name="orders",
                desired=DesiredState.RUNNING,
                fingerprint="print 2",
                attempts=2,
                next_attempt_at=_utc(2026, 1, 2, 3, 9, 5, 678901),
                last_error="no slot free",
                updated_at=_utc(2026, 1, 2, 3, 4, 5, 678901),
                operator_name=None,
                alerted_at=None,
            ),
            JobRecord(
                name="users",
                desired=DesiredState.UNMANAGED,
                fingerprint=None,
                attempts=0,
                next_attempt_at=None,
                last_error=None,
                updated_at=_utc(2026, 1, 1),
            ),
        )
        second, first = jobs.incarnations("orders")
        assert first == Incarnation(
            job_name="orders",
            number=1,
            flink_job_id="2361dfc66b4755198d4e4b3a360b080b",
            fingerprint="print 1",
            state=IncarnationState.STOPPED,
            session_handle="session 1",
            operation_handle="operation 1",
            restored_from=None,
            fencing=5,
            recorded_at=_utc(2026, 1, 1, 1, 0, 0, 1),
            submitted_at=_utc(2026, 1, 1, 1, 0, 1),
            running_at=_utc(2026, 1, 1, 1, 0, 9),
            ended_at=_utc(2026, 1, 1, 2),
            stop_trigger_id="trigger",
            savepoint_path="file:///savepoints/1",
            checkpoint_path="file:///checkpoints/chk-12",
            checkpoint_id=12,
            checkpoint_at=_utc(2026, 1, 1, 1, 59),
            restarts=4,
            restarts_before_window=1,
            restart_window_at=_utc(2026, 1, 1, 1, 30),
            end_reason="stopped with a savepoint",
            origin=Origin.SUBMITTED,
            failed_checkpoints=0,
        )
        assert (second.number, second.state) == (2, IncarnationState.RUNNING)
        assert (second.origin, second.root_cause, second.read_positions) == (
            Origin.SUBMITTED,
            None,
            None,
        )
        state = jobs.state()
        assert (dict(state.latest), set(state.records)) == ({"orders": second}, {"orders", "users"})
        assert [job.name for job in Jobs(database, "other").all()] == ["orders"]


def test_leases_and_fencing_numbers_outlive_a_migration(url: str, clock: MovedClock) -> None:
    make_v0001(url)
    with SystemDatabase(url).connect() as database:
        leases, jobs = Leases(database, clock), Jobs(database, "lake", clock)
        held = leases.current("job/lake/orders")
        assert held == Lease(
            "job/lake/orders", "run 1a2b", 7, clock.now + timedelta(seconds=60), 60.0
        )
        with pytest.raises(LeaseLostError):
            jobs.update("orders", 2, fencing=6, state=IncarnationState.STOPPING)
        jobs.update("orders", 2, fencing=7, state=IncarnationState.STOPPING)
        assert leases.acquire("job/lake/users", "run b", 60).fencing == 4


def test_a_migrated_database_tells_of_changes(url: str) -> None:
    make_v0001(url)
    with SystemDatabase(url).connect() as ours, SystemDatabase(url).connect() as theirs:
        before = Jobs(ours, "lake").state()
        Jobs(theirs, "lake").set_desired("users", DesiredState.RUNNING)
        after = Jobs(ours, "lake").state()
        assert before.records["users"].desired is DesiredState.UNMANAGED
        assert after.records["users"].desired is DesiredState.RUNNING


def _connect(url: str, start: Any, results: Any) -> None:
    start.wait()
    try:
        with SystemDatabase(url).connect() as database:
            Jobs(database, "lake").ensure("payments")
        results.put("ok")
    except BaseException as error:  # noqa: BLE001 - a child process reports everything
        results.put(repr(error))


@pytest.mark.parametrize("released", [False, True], ids=["empty", "0001"])
@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_migrate_a_database_at_once_all_succeed(
    url: str, released: bool, attempt: int
) -> None:
    if released:
        make_v0001(url)
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(4), fork.Queue()
    processes = [fork.Process(target=_connect, args=(url, start, results)) for _ in range(4)]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == ["ok"] * 4
    for process in processes:
        process.join(10)
    with SystemDatabase(url).connect() as database:
        known = ["orders", "payments", "users"] if released else ["payments"]
        assert [job.name for job in Jobs(database, "lake").all()] == known


def test_a_migration_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise SystemDatabaseError("no power")

    with monkeypatch.context() as patched:
        patched.setattr("alembic.runtime.migration.HeadMaintainer.update_to_step", broken)
        with pytest.raises(SystemDatabaseError, match="no power"):
            SystemDatabase(url).connect()
    with Database(url) as unmigrated, unmigrated.read() as connection:
        assert inspect(connection).get_table_names() == []
    with SystemDatabase(url).connect() as database:
        assert Jobs(database, "lake").all() == ()


def test_a_database_of_a_newer_version_is_refused_and_not_touched(db: Database, url: str) -> None:
    with db.write() as connection:
        connection.exec_driver_sql("UPDATE lakehouse_version SET version_num = '9999'")
    with pytest.raises(SystemDatabaseError) as caught:
        SystemDatabase(url).connect()
    assert "has version 9999" in str(caught.value)
    assert f"up to {migrate.HEAD}" in str(caught.value)
    assert "Install the newer lakehouse-dagster" in str(caught.value)
    with db.read() as connection:
        version = connection.exec_driver_sql("SELECT version_num FROM lakehouse_version").scalar()
    assert version == "9999"

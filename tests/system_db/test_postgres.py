"""What only Postgres does, and what can happen to a server: it is really stopped and crashed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import inspect, text

from lakehouse_dagster.errors import LeaseLostError, SystemDatabaseError
from lakehouse_dagster.system_db import (
    Database,
    DesiredState,
    IncarnationState,
    Jobs,
    Leases,
    SystemDatabase,
    flink_job_id,
    migrate,
    schema,
)
from tests.support.postgres import PASSWORD, PASSWORD_USER, PostgresServer, running_postgres

pytestmark = pytest.mark.services

_fork = multiprocessing.get_context("fork")


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def _breakable() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def server(_breakable: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop and crash; it runs again afterwards."""
    yield _breakable
    _breakable.stop()
    _breakable.start()


def _record(jobs: Jobs, name: str, number: int, fencing: int = 1) -> None:
    jobs.record(
        name,
        number=number,
        flink_job_id=flink_job_id(jobs.lakehouse, name, number),
        fingerprint=f"script {number}",
        restored_from=None,
        fencing=fencing,
        session_handle=None,
    )


def _name(url: str) -> str:
    return url.rpartition("/")[2]


# -- where it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_usual_way_to_write_the_url_means_psycopg(url: str, scheme: str) -> None:
    written = url.replace("postgresql", scheme)
    with SystemDatabase(written).connect() as database:
        assert database.engine.dialect.driver == "psycopg"
        assert database.location == written


def test_our_tables_live_beside_those_of_dagster_in_one_database(
    postgres: PostgresServer, url: str
) -> None:
    name = _name(url)
    postgres.execute("CREATE TABLE alembic_version (version_num text)", name)
    postgres.execute("INSERT INTO alembic_version VALUES ('of dagster')", name)
    postgres.execute("CREATE TABLE runs (id int)", name)
    with SystemDatabase(url).connect() as database:
        Jobs(database, "lake").ensure("orders")
        with database.read() as connection:
            ours = [t for t in inspect(connection).get_table_names() if t.startswith("lakehouse_")]
    assert set(ours) == set(schema.metadata.tables) | {migrate.VERSION_TABLE}
    assert postgres.execute("SELECT * FROM alembic_version", name) == [("of dagster",)]


def test_our_tables_may_live_in_a_schema_of_their_own(postgres: PostgresServer, url: str) -> None:
    postgres.execute("CREATE SCHEMA lake", _name(url))
    with SystemDatabase(f"{url}?options=-csearch_path%3Dlake").connect() as database:
        _record(Jobs(database, "lake"), "orders", 1)
        assert Jobs(database, "lake").state().latest["orders"].number == 1
    tables = "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'lakehouse_%'"
    assert postgres.execute(tables, _name(url)) == [("lake",)]


def test_times_are_points_in_time_whatever_zone_the_server_has(
    postgres: PostgresServer, url: str
) -> None:
    postgres.execute(f"ALTER DATABASE {_name(url)} SET timezone = 'Asia/Shanghai'")
    with SystemDatabase(url).connect() as database:
        job = Jobs(database, "lake").ensure("orders")
        assert job.updated_at.utcoffset() is not None
        assert Jobs(database, "lake").get("orders") == job
    kind = (
        "SELECT DISTINCT data_type FROM information_schema.columns "
        "WHERE table_name LIKE 'lakehouse_%' AND column_name LIKE '%\\_at'"
    )
    assert postgres.execute(kind, _name(url)) == [("timestamp with time zone",)]


# -- what it refuses --------------------------------------------------------------------------


def test_a_password_with_special_characters_works_and_is_shown_nowhere(
    postgres: PostgresServer, url: str
) -> None:
    name = _name(url)
    postgres.execute(f"ALTER DATABASE {name} OWNER TO {PASSWORD_USER}")
    right = postgres.url(name, PASSWORD_USER, PASSWORD)
    with SystemDatabase(right).connect() as database:
        Jobs(database, "lake").ensure("orders")
        assert "hunter2" not in f"{database!r} {database.location} {database.engine!r}"
    in_query = f"{postgres.url(name)}?user={PASSWORD_USER}&password={quote(PASSWORD, safe='')}"
    with SystemDatabase(in_query).connect() as database:
        assert "hunter2" not in repr(database)


@pytest.mark.parametrize("where", ["before the host", "in the query"])
def test_a_wrong_password_is_refused_and_shown_nowhere(
    postgres: PostgresServer, url: str, where: str
) -> None:
    wrong = postgres.url(_name(url), PASSWORD_USER, "sesame3@/")
    if where == "in the query":
        wrong = f"{postgres.url(_name(url))}?user={PASSWORD_USER}&password=sesame3%40%2F"
    with pytest.raises(SystemDatabaseError, match="cannot be reached") as caught:
        SystemDatabase(wrong).connect()
    assert "password authentication failed" in str(caught.value)
    assert "sesame3" not in "".join(traceback.format_exception(caught.value))


def test_a_database_that_does_not_exist_is_named(postgres: PostgresServer) -> None:
    with pytest.raises(SystemDatabaseError, match='database "nowhere" does not exist') as caught:
        SystemDatabase(postgres.url("nowhere")).connect()
    assert caught.value.remedy is not None


def test_a_user_who_may_not_make_tables_is_told_what_to_grant(
    postgres: PostgresServer, url: str
) -> None:
    with pytest.raises(SystemDatabaseError, match=r"may not do this.* Grant it USAGE and CREATE"):
        SystemDatabase(postgres.url(_name(url), PASSWORD_USER, PASSWORD)).connect()


def test_a_missing_driver_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SystemDatabaseError, match=r'pip install "lakehouse-dagster\[postgres\]"'):
        SystemDatabase(url).connect()


def test_a_read_only_server_can_be_read(postgres: PostgresServer, url: str) -> None:
    with SystemDatabase(url).connect() as database:
        _record(Jobs(database, "lake"), "orders", 1)
    postgres.execute(f"ALTER DATABASE {_name(url)} SET default_transaction_read_only = on")
    with SystemDatabase(url).connect() as database:
        assert Jobs(database, "lake").state().latest["orders"].number == 1
        with pytest.raises(SystemDatabaseError, match=r"is read-only\. Name the primary"):
            Jobs(database, "lake").ensure("users")


def test_tables_that_vanished_ask_for_a_restart(postgres: PostgresServer, url: str) -> None:
    with SystemDatabase(url).connect() as database:
        Jobs(database, "lake").ensure("orders")
        postgres.execute("DROP SCHEMA public CASCADE", _name(url))
        postgres.execute("CREATE SCHEMA public", _name(url))
        with pytest.raises(SystemDatabaseError, match="Restart this process"):
            Jobs(database, "lake").state()


# -- a server that goes away ------------------------------------------------------------------


def test_a_server_that_is_down_is_named_and_used_again_when_it_is_back(
    server: PostgresServer,
) -> None:
    database_url = server.new_database()
    with SystemDatabase(database_url).connect() as database:
        jobs, leases = Jobs(database, "lake"), Leases(database)
        _record(jobs, "orders", 1)
        jobs.state()
        lease = leases.acquire(jobs.lease_key("orders"), "run a", 600)
        server.stop()
        for ask in (
            jobs.state,
            lambda: jobs.update("orders", 1, restarts=1),
            lambda: leases.check(lease),
            SystemDatabase(database_url).connect,
        ):
            with pytest.raises(SystemDatabaseError, match="See that the server runs") as caught:
                ask()
            assert not isinstance(caught.value, LeaseLostError)
        server.start()
        leases.check(lease)
        assert jobs.update("orders", 1, restarts=2).restarts == 2
        assert jobs.state().latest["orders"].restarts == 2


def test_a_server_that_was_restarted_between_two_uses_is_not_noticed(
    server: PostgresServer,
) -> None:
    with SystemDatabase(server.new_database()).connect() as database:
        jobs = Jobs(database, "lake")
        _record(jobs, "orders", 1)
        before = jobs.state()
        server.crash()
        server.start()
        assert jobs.state() == before
        _record(jobs, "orders", 2)


def _desire_while(database: Database, happens: Any) -> None:
    with database.write() as connection:
        connection.execute(text("UPDATE lakehouse_job SET desired = 'CANCELED'"))
        happens()
        connection.execute(text("UPDATE lakehouse_job SET attempts = 1"))


def test_a_server_that_crashes_within_a_transaction_changes_nothing(
    server: PostgresServer,
) -> None:
    with SystemDatabase(server.new_database()).connect() as database:
        jobs = Jobs(database, "lake")
        jobs.set_desired("orders", DesiredState.RUNNING)
        with pytest.raises(SystemDatabaseError, match=r"was lost: .*the next use connects anew"):
            _desire_while(database, server.crash)
        server.start()
        job = jobs.get("orders")
        assert job is not None
        assert (job.desired, job.attempts) == (DesiredState.RUNNING, 0)


def test_a_session_that_the_server_ends_changes_nothing(postgres: PostgresServer, url: str) -> None:
    def end_sessions() -> None:
        postgres.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{_name(url)}'"
        )

    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        jobs.set_desired("orders", DesiredState.RUNNING)
        with pytest.raises(SystemDatabaseError, match="was lost"):
            _desire_while(database, end_sessions)
        assert jobs.set_error("orders", None).desired is DesiredState.RUNNING
        end_sessions()
        assert jobs.count_attempt("orders", None) == 1


# -- other processes --------------------------------------------------------------------------


def _stop_within_a_transaction(url: str, results: Any) -> None:
    """Halt as a supervisor may be halted by its machine, holding the locks of a transaction."""
    with SystemDatabase(url, busy_timeout_seconds=1).connect() as database:
        try:
            _desire_while(database, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        except SystemDatabaseError as error:
            results.put(str(error))
        else:
            results.put("written")


def test_a_process_that_is_stopped_while_it_writes_does_not_stop_the_others(url: str) -> None:
    with SystemDatabase(url, busy_timeout_seconds=60).connect() as database:
        jobs = Jobs(database, "lake")
        jobs.set_desired("orders", DesiredState.RUNNING)
        results = _fork.Queue()
        process = _fork.Process(target=_stop_within_a_transaction, args=(url, results))
        process.start()
        assert process.pid is not None
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            jobs.set_desired("orders", DesiredState.SUSPENDED)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert "was lost" in results.get(timeout=60)
        process.join(60)
        job = jobs.get("orders")
        assert job is not None
        assert (job.desired, job.attempts) == (DesiredState.SUSPENDED, 0)


def _write_all_ways(url: str, who: int, start: Any, results: Any) -> None:
    """Everything that several supervisors and runs do at once, on the same jobs."""
    refused = 0
    with SystemDatabase(url).connect() as database:
        jobs, leases = Jobs(database, "lake"), Leases(database)
        start.wait()
        for turn in range(20):
            name = f"job{turn % 4}"
            try:
                jobs.ensure_all(["job0", "job1", "job2", "job3"])
                jobs.update_many([(f"job{n}", 1, {"restarts": turn}) for n in (3, 1, 0, 2)])
                with leases.held(jobs.lease_key(name), f"{who}", 60, wait_seconds=60) as lease:
                    latest = jobs.latest(name)
                    number = 1 if latest is None else latest.number + 1
                    _record(jobs, name, number, lease.fencing)
                    jobs.update(name, number, fencing=lease.fencing, state=IncarnationState.RUNNING)
                jobs.count_attempt(name, None)
            except SystemDatabaseError as error:
                refused += 1
                results.put(f"refused: {error}")
        results.put(f"done {refused}")


def test_writers_of_the_same_jobs_neither_block_each_other_for_good_nor_lose_a_number(
    url: str,
) -> None:
    with SystemDatabase(url).connect() as database:
        start, results = _fork.Barrier(3), _fork.Queue()
        writers = [
            _fork.Process(target=_write_all_ways, args=(url, who, start, results))
            for who in range(3)
        ]
        for writer in writers:
            writer.start()
        assert [results.get(timeout=120) for _ in writers] == ["done 0"] * 3
        for writer in writers:
            writer.join(60)
        jobs = Jobs(database, "lake")
        for name, job in jobs.state().records.items():
            numbers = [life.number for life in jobs.incarnations(name)]
            assert numbers == list(range(15, 0, -1))
            assert job.attempts == 15
            states = [life.state for life in jobs.incarnations(name)]
            assert states == [IncarnationState.RUNNING] + [IncarnationState.SUPERSEDED] * 14


def test_a_process_follows_a_database_that_was_restored_from_an_older_copy(
    postgres: PostgresServer, url: str
) -> None:
    name = _name(url)
    with SystemDatabase(url).connect() as database:
        jobs = Jobs(database, "lake")
        _record(jobs, "orders", 1)
        database.close()
        postgres.execute(f"CREATE DATABASE {name}_backup TEMPLATE {name}")
        for number in (2, 3):
            _record(jobs, "orders", number)
        assert jobs.state().latest["orders"].number == 3
        postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
        with pytest.raises(SystemDatabaseError, match="does not exist"):
            jobs.state()
        postgres.execute(f"ALTER DATABASE {name}_backup RENAME TO {name}")
        assert jobs.state().latest["orders"].number == 1
        _record(jobs, "orders", 4)
        assert jobs.state().latest["orders"].number == 4

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db import Database, Jobs, SystemDatabase, schema
from lakehouse_dagster.system_db.database import masked_url


def test_all_our_tables_carry_our_name_so_that_dagsters_own_are_left_alone(db: Database) -> None:
    with db.read() as connection:
        assert set(inspect(connection).get_table_names()) == {
            "lakehouse_version",
            "lakehouse_lease",
            "lakehouse_job",
            "lakehouse_incarnation",
            "lakehouse_script_version",
            "lakehouse_change",
            "lakehouse_table_files",
            "lakehouse_maintenance_action",
        }


def test_a_locked_database_says_so_after_the_timeout(db: Database, url: str) -> None:
    Jobs(db, "lake").ensure("orders")
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write() as connection:
            connection.execute(schema.jobs.update().values(attempts=1))
            with pytest.raises(SystemDatabaseError, match=r"stayed locked for 0.05 s"):
                Jobs(other, "lake").ensure("users")
        Jobs(other, "lake").ensure("users")


def test_readers_do_not_wait_for_a_writer(db: Database, url: str) -> None:
    Jobs(db, "lake").ensure("orders")
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write() as connection:
            connection.execute(schema.jobs.delete())
            assert [job.name for job in Jobs(other, "lake").all()] == ["orders"]
    assert Jobs(db, "lake").all() == ()


def _ensure_many(db: Database, prefix: str, results: Any) -> None:
    jobs = Jobs(db, "lake")
    for number in range(20):
        jobs.ensure(f"{prefix}{number}")
    results.put(len(jobs.all()) >= 20)


def test_a_forked_process_opens_connections_of_its_own(db: Database) -> None:
    Jobs(db, "lake").ensure("orders")
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=_ensure_many, args=(db, kind, results)) for kind in "ab"]
    for child in children:
        child.start()
    for number in range(20):
        Jobs(db, "lake").ensure(f"c{number}")
    assert [results.get(timeout=60) for _ in children] == [True, True]
    for child in children:
        child.join(10)
    assert len(Jobs(db, "lake").all()) == 61


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{folder}/missing/x.db", "missing of the system database does not exist"),
        ("sqlite:///{folder}", "is a folder"),
        ("sqlite:///relative.db", "is not an absolute path"),
        ("sqlite://", "is not an absolute path"),
        ("sqlite:///:memory:", "is not an absolute path"),
        ("mysql://me:hunter2@host/db", r"mysql://me:\*\*\*\*@host/db is of a kind that is not"),
        ("me:hunter2", r"^.me. is not a database URL"),
        ("postgresql+psycopg2://me:hunter2@host/db", "names a driver that is not supported"),
        ("postgresql://me:hunter2@host@host/db", "has a password that cannot be told from the"),
        ("postgresql://me:a@hunter2/a@host/db", "has a password that cannot be told from the"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, url: str, message: str
) -> None:
    with pytest.raises(SystemDatabaseError, match=message) as caught:
        SystemDatabase(url.format(folder=tmp_path)).connect()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@host:5432/db", "postgresql://me:****@host:5432/db"),
        ("postgresql+psycopg://me:hun@ter/2@host/db", "postgresql+psycopg://me:****@host/db"),
        (
            "postgresql://host/db?user=me&password=hunter2",
            "postgresql://host/db?user=me&password=****",
        ),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:////data/lakehouse.db", "sqlite:////data/lakehouse.db"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert repr(SystemDatabase(url)) == f"SystemDatabase(url={shown!r})"
    with pytest.raises(SystemDatabaseError) as caught:
        SystemDatabase(url.replace("sqlite", "oracle")).connect()
    assert "hunter2" not in str(caught.value)
    assert "ter/2" not in str(caught.value)


def test_a_failed_statement_does_not_show_its_parameters(db: Database) -> None:
    with pytest.raises(SystemDatabaseError) as caught, db.write() as connection:
        connection.execute(schema.jobs.insert().values(lakehouse="secret lake", name="orders"))
    assert "desired" in str(caught.value)
    assert "secret lake" not in str(caught.value)
    assert "secret lake" not in str(caught.value.__cause__)


def test_times_are_stored_in_utc_and_read_back_aware(db: Database) -> None:
    east = timezone(timedelta(hours=8))
    noon_in_the_east = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=east)
    Jobs(db, "lake").count_attempt("orders", noon_in_the_east)
    job = Jobs(db, "lake").get("orders")
    assert job is not None
    assert job.next_attempt_at == noon_in_the_east
    assert job.next_attempt_at.tzinfo is timezone.utc


def test_a_time_without_a_zone_is_refused(db: Database) -> None:
    with pytest.raises(SystemDatabaseError, match="without a time zone"):
        Jobs(db, "lake").count_attempt("orders", datetime(2026, 1, 2))


def test_importing_the_room_does_not_import_sqlalchemy() -> None:
    program = (
        "import sys; from lakehouse_dagster import system_db; "
        "from lakehouse_dagster.system_db import SystemDatabase, DesiredState, Incarnation; "
        "SystemDatabase(); assert 'Jobs' in dir(system_db); "
        "print([name for name in ('sqlalchemy', 'alembic', 'dagster') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"

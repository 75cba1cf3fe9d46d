"""What only a SQLite file does, and what can happen to it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db import (
    Database,
    DesiredState,
    IncarnationState,
    Jobs,
    SystemDatabase,
    flink_job_id,
    schema,
    utc_now,
)
from tests.system_db.released import make_v0001

_fork = multiprocessing.get_context("fork")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lakehouse.db"


@pytest.fixture
def db(sqlite_db: Database) -> Database:
    return sqlite_db


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


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


def _is_whole(file: Path) -> bool:
    with sqlite3.connect(file) as connection:
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return bool(answer == "ok")


def test_the_default_is_a_file_in_the_home_of_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with SystemDatabase().connect() as database:
        assert database.location == str(tmp_path / "lakehouse.db")
    assert (tmp_path / "lakehouse.db").is_file()


def test_without_a_home_of_dagster_the_file_lies_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with SystemDatabase().connect():
        pass
    assert (tmp_path / ".local/share/lakehouse/lakehouse.db").is_file()
    assert not (tmp_path / "cache").exists()


def test_a_missing_home_of_dagster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "gone"))
    with pytest.raises(SystemDatabaseError, match=r"gone of the system database does not exist"):
        SystemDatabase().connect()


def test_sqlite_runs_with_a_write_ahead_log_and_foreign_keys(db: Database) -> None:
    with db.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_a_read_only_database_says_so(db: Database, file: Path) -> None:
    read_only = f"sqlite:///file:{file}?mode=ro&uri=true"
    with SystemDatabase(read_only).connect() as database:
        assert Jobs(database, "lake").all() == ()
        with pytest.raises(SystemDatabaseError, match="is read-only"):
            Jobs(database, "lake").ensure("orders")


def test_a_file_that_is_no_database_is_refused_and_left_alone(url: str, file: Path) -> None:
    file.write_bytes(b"dear diary, " * 500)
    with pytest.raises(SystemDatabaseError, match="is not a SQLite database"):
        SystemDatabase(url).connect()
    assert file.read_bytes() == b"dear diary, " * 500


def test_times_are_stored_as_text_that_sorts_by_time(db: Database, file: Path) -> None:
    Jobs(db, "lake").ensure("orders")
    with sqlite3.connect(file) as raw:
        (stored,) = raw.execute("SELECT updated_at FROM lakehouse_job").fetchone()
    raw.close()
    assert len(stored) == len("2026-01-02 04:00:00.000005")
    assert stored[10] == " "


# -- faults -----------------------------------------------------------------------------------


def _hold(url: str, name: str, holding: Any, let_go: Any) -> None:
    """Write something, and keep the transaction open."""
    with SystemDatabase(url).connect() as database, database.write() as connection:
        connection.execute(
            schema.jobs.insert().values(
                lakehouse="lake",
                name=name,
                desired=DesiredState.RUNNING.value,
                attempts=0,
                fencing=0,
                updated_at=utc_now(),
            )
        )
        holding.set()
        let_go.wait(60)


def test_a_file_that_another_process_holds_locked_is_usable_when_it_lets_go(url: str) -> None:
    with SystemDatabase(url, busy_timeout_seconds=0.1).connect() as database:
        jobs = Jobs(database, "lake")
        holding, let_go = _fork.Event(), _fork.Event()
        process = _fork.Process(target=_hold, args=(url, "theirs", holding, let_go))
        process.start()
        assert holding.wait(60)
        with pytest.raises(SystemDatabaseError, match=r"stayed locked for 0.1 s\. Find the proc"):
            jobs.ensure("ours")
        assert jobs.all() == ()
        let_go.set()
        process.join(60)
        jobs.ensure("ours")
        assert [job.name for job in jobs.all()] == ["ours", "theirs"]


def test_a_process_that_is_killed_while_it_writes_leaves_no_lock_and_no_half(
    db: Database, url: str, file: Path
) -> None:
    holding, let_go = _fork.Event(), _fork.Event()
    process = _fork.Process(target=_hold, args=(url, "theirs", holding, let_go))
    process.start()
    assert holding.wait(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    jobs = Jobs(db, "lake")
    jobs.ensure("ours")
    assert [job.name for job in jobs.all()] == ["ours"]
    assert _is_whole(file)


def _backup(file: Path, to: Path) -> None:
    with sqlite3.connect(file) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def _put_back(backup: Path, file: Path) -> None:
    """As a careful person does: the file with its write-ahead log goes, the backup comes."""
    for name in (f"{file}-wal", f"{file}-shm"):
        Path(name).unlink(missing_ok=True)
    copy = file.with_suffix(".new")
    shutil.copy(backup, copy)
    os.replace(copy, file)


@pytest.fixture
def yesterday(db: Database, file: Path, tmp_path: Path) -> Path:
    """A backup with one life of ``orders``; the database has gone on to the third."""
    jobs = Jobs(db, "lake")
    _record(jobs, "orders", 1)
    backup = tmp_path / "backup.db"
    _backup(file, backup)
    for number in (2, 3):
        _record(jobs, "orders", number)
    jobs.state()
    return backup


def test_a_process_follows_a_database_that_was_restored_from_an_older_backup(
    db: Database, file: Path, yesterday: Path
) -> None:
    jobs = Jobs(db, "lake")
    _put_back(yesterday, file)
    assert jobs.state().latest["orders"].number == 1
    assert [life.number for life in jobs.incarnations("orders")] == [1]
    _record(jobs, "orders", 4)
    assert jobs.state().latest["orders"].number == 4
    assert _is_whole(file)
    with sqlite3.connect(file) as raw:
        rows = raw.execute("SELECT number FROM lakehouse_incarnation ORDER BY 1").fetchall()
    raw.close()
    assert rows == [(1,), (4,)]


def test_a_process_that_still_had_the_old_file_open_takes_nothing_from_the_restored_one(
    db: Database, url: str, file: Path, yesterday: Path
) -> None:
    _put_back(yesterday, file)
    with SystemDatabase(url).connect() as other:
        _record(Jobs(other, "lake"), "orders", 7)
        assert Path(f"{file}-wal").stat().st_size > 0
        assert Jobs(db, "lake").state().latest["orders"].number == 7
        Jobs(db, "lake").update("orders", 7, state=IncarnationState.RUNNING)
        db.close()
        latest = Jobs(other, "lake").latest("orders")
        assert latest is not None
        assert (latest.number, latest.state) == (7, IncarnationState.RUNNING)
    assert _is_whole(file)


def test_a_deleted_database_is_not_taken_for_one_in_which_no_job_ever_ran(
    db: Database, url: str, file: Path, yesterday: Path
) -> None:
    jobs = Jobs(db, "lake")
    for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        name.unlink(missing_ok=True)
    for ask in (jobs.state, lambda: jobs.latest("orders"), lambda: _record(jobs, "orders", 1)):
        with pytest.raises(SystemDatabaseError, match=r"was deleted while it was in use") as told:
            ask()
        assert "jobs adopt --all" in str(told.value)
    assert not file.exists()
    _put_back(yesterday, file)
    assert jobs.state().latest["orders"].number == 1


def test_a_backup_of_an_older_version_asks_for_a_restart_which_migrates_it(
    db: Database, url: str, file: Path, tmp_path: Path
) -> None:
    jobs = Jobs(db, "lake")
    jobs.state()
    old = tmp_path / "old.db"
    make_v0001(f"sqlite:///{old}")
    _put_back(old, file)
    with pytest.raises(SystemDatabaseError, match=r"Restart this process"):
        jobs.state()
    with SystemDatabase(url).connect() as restarted:
        latest = Jobs(restarted, "lake").latest("orders")
        assert latest is not None
        assert latest.number == 2
    assert jobs.state().latest["orders"].number == 2


def test_a_damaged_file_says_what_to_do(url: str, file: Path) -> None:
    with SystemDatabase(url).connect() as database:
        Jobs(database, "lake").ensure_all(f"job{number}" for number in range(500))
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(SystemDatabaseError, match=r"is damaged\. Stop the processes") as caught:
        SystemDatabase(url).connect()
    assert "jobs adopt --all" in str(caught.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill_up(file: Path) -> None:
    with file.open("wb", buffering=0) as output:
        while True:
            output.write(b"x" * 4096)


def _record_many(jobs: Jobs, name: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        _record(jobs, name, number)


def test_a_full_disk_is_named_and_nothing_is_lost_or_half_written(small_disk: Path) -> None:
    file = small_disk / "lakehouse.db"
    with SystemDatabase(f"sqlite:///{file}").connect() as database:
        jobs = Jobs(database, "lake")
        _record(jobs, "orders", 1)
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"):
            _fill_up(filler)
        with pytest.raises(SystemDatabaseError, match=r"is full; nothing was changed\. Make room"):
            _record_many(jobs, "orders", range(2, 200))
        lives = jobs.incarnations("orders")
        assert [life.number for life in lives] == list(range(len(lives), 0, -1))
        assert jobs.state().latest["orders"] == lives[0]
        filler.unlink()
        _record(jobs, "orders", len(lives) + 1)
        assert jobs.state().latest["orders"].number == len(lives) + 1
    assert _is_whole(file)

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db import Database, Jobs, SystemDatabase, migrate, schema
from lakehouse_dagster.system_db.database import masked_url


def _tables(file: Path) -> set[str]:
    with sqlite3.connect(file) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name for (name,) in rows}


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


def test_all_our_tables_carry_our_name_so_that_dagsters_own_are_left_alone(
    db: Database, tmp_path: Path
) -> None:
    assert _tables(tmp_path / "lakehouse.db") == {
        "lakehouse_version",
        "lakehouse_lease",
        "lakehouse_job",
        "lakehouse_incarnation",
        "lakehouse_script_version",
        "lakehouse_change",
    }


def test_the_migrations_lead_to_the_tables_that_the_code_uses(db: Database) -> None:
    with db.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": False}
        )
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == migrate.HEAD
    scripts = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert scripts.get_current_head() == migrate.HEAD


def test_sqlite_runs_with_a_write_ahead_log_and_foreign_keys(db: Database) -> None:
    with db.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def _connect(url: str, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    try:
        with SystemDatabase(url).connect() as database:
            Jobs(database, "lake").ensure("orders")
        results.put("ok")  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001 - a child process reports everything
        results.put(repr(error))  # type: ignore[attr-defined]


def test_processes_that_migrate_an_empty_file_at_once_all_succeed(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("fork")
    for round_number in range(5):
        url = f"sqlite:///{tmp_path}/round{round_number}.db"
        start, results = spawn.Barrier(4), spawn.Queue()
        processes = [spawn.Process(target=_connect, args=(url, start, results)) for _ in range(4)]
        for process in processes:
            process.start()
        assert [results.get(timeout=60) for _ in processes] == ["ok"] * 4
        for process in processes:
            process.join(10)
        with SystemDatabase(url).connect() as database:
            assert [job.name for job in Jobs(database, "lake").all()] == ["orders"]


def test_a_migration_that_fails_leaves_an_empty_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise SystemDatabaseError("no power")

    with monkeypatch.context() as patched:
        patched.setattr("alembic.runtime.migration.HeadMaintainer.update_to_step", broken)
        with pytest.raises(SystemDatabaseError, match="no power"):
            SystemDatabase(url).connect()
    assert _tables(tmp_path / "lakehouse.db") == set()
    with SystemDatabase(url).connect() as database:
        assert Jobs(database, "lake").all() == ()


def test_a_database_of_a_newer_version_is_refused_and_not_touched(
    db: Database, url: str, tmp_path: Path
) -> None:
    with db.write() as connection:
        connection.exec_driver_sql("UPDATE lakehouse_version SET version_num = '9999'")
    with pytest.raises(SystemDatabaseError) as caught:
        SystemDatabase(url).connect()
    assert "has version 9999" in str(caught.value)
    assert f"up to {migrate.HEAD}" in str(caught.value)
    assert "Install the newer lakehouse-dagster" in str(caught.value)


def test_a_locked_database_says_so_after_the_timeout(db: Database, url: str) -> None:
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write():
            with pytest.raises(SystemDatabaseError, match=r"stayed locked for 0.05 s"):
                Jobs(other, "lake").ensure("orders")
        Jobs(other, "lake").ensure("orders")


def test_readers_do_not_wait_for_a_writer(db: Database, url: str) -> None:
    Jobs(db, "lake").ensure("orders")
    with SystemDatabase(url, busy_timeout_seconds=0.05).connect() as other:
        with db.write() as connection:
            connection.execute(schema.jobs.delete())
            assert [job.name for job in Jobs(other, "lake").all()] == ["orders"]
    assert Jobs(db, "lake").all() == ()


def test_a_read_only_database_says_so(db: Database, tmp_path: Path) -> None:
    read_only = f"sqlite:///file:{tmp_path}/lakehouse.db?mode=ro&uri=true"
    with SystemDatabase(read_only).connect() as database:
        assert Jobs(database, "lake").all() == ()
        with pytest.raises(SystemDatabaseError, match="is read-only"):
            Jobs(database, "lake").ensure("orders")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///{folder}/missing/x.db", "missing of the system database does not exist"),
        ("sqlite:///{folder}", "is a folder"),
        ("sqlite:///relative.db", "is not an absolute path"),
        ("sqlite://", "is not an absolute path"),
        ("sqlite:///:memory:", "is not an absolute path"),
        ("mysql://me:hunter2@host/db", r"mysql://me:\*\*\*\*@host/db is of a kind that is not"),
        ("me:hunter2", "is not a database URL"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, url: str, message: str
) -> None:
    with pytest.raises(SystemDatabaseError, match=message):
        SystemDatabase(url.format(folder=tmp_path)).connect()


def test_a_file_that_is_no_database_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    file = tmp_path / "lakehouse.db"
    file.write_bytes(b"dear diary, " * 500)
    with pytest.raises(SystemDatabaseError, match="is not a SQLite database"):
        SystemDatabase(url).connect()
    assert file.read_bytes() == b"dear diary, " * 500


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
    assert "NOT NULL constraint failed" in str(caught.value)
    assert "secret lake" not in str(caught.value)
    assert "secret lake" not in str(caught.value.__cause__)


def test_times_are_stored_in_utc_and_read_back_aware(db: Database, tmp_path: Path) -> None:
    east = timezone(timedelta(hours=8))
    noon_in_the_east = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=east)
    Jobs(db, "lake").count_attempt("orders", noon_in_the_east)
    job = Jobs(db, "lake").get("orders")
    assert job is not None
    assert job.next_attempt_at == noon_in_the_east
    assert job.next_attempt_at.tzinfo is timezone.utc
    with sqlite3.connect(tmp_path / "lakehouse.db") as raw:
        (stored,) = raw.execute("SELECT next_attempt_at FROM lakehouse_job").fetchone()
    assert stored == "2026-01-02 04:00:00.000005"


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

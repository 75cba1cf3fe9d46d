"""A system database in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db.database import masked_url

_RESTORE = (
    "Stop the processes that use it, and put back a backup or delete it (also its -wal and -shm); "
    "then `lakehouse jobs adopt --all` takes over what runs on the cluster."
)


class SqliteBackend:
    """Opens the file, and says what its errors mean.

    Args:
        url: SQLAlchemy URL, whose path must be absolute.
        busy_timeout_seconds: how long a transaction waits for another process that is writing.
    """

    read_options: Mapping[str, Any] = {}
    write_options: Mapping[str, Any] = {"lakehouse_writes": True}

    def __init__(self, url: str, busy_timeout_seconds: float) -> None:
        self._file = _checked_file(url)
        self._busy_timeout_seconds = busy_timeout_seconds
        self.location = str(self._file)
        # Parameters can hold session handles and paths: they stay out of exceptions.
        self.engine: Engine = create_engine(
            url, hide_parameters=True, connect_args={"timeout": busy_timeout_seconds}
        )
        _take_over_transactions(self.engine, busy_timeout_seconds)
        _follow_the_file(self.engine, self._file)

    def lock_migrations(self, connection: Connection) -> None:
        """Nothing to do: a writing transaction excludes all others."""

    def explain(self, error: DBAPIError) -> SystemDatabaseError:
        """What the error means, and what to do about it."""
        cause = str(error.orig)
        for words, meaning, remedy in _MEANINGS:
            if words in cause:
                seconds = f"{self._busy_timeout_seconds:g}"
                return SystemDatabaseError(
                    meaning.format(location=self.location, seconds=seconds), remedy=remedy
                )
        return SystemDatabaseError(
            f"The system database {self.location} refused a request: {cause}"
        )


_MEANINGS = (
    (
        "locked",
        "The system database {location} stayed locked for {seconds} s.",
        "Find the process that holds it open for writing, and try again.",
    ),
    (
        "readonly",
        "The system database {location} is read-only.",
        "Let this user write the file and its folder.",
    ),
    (
        "not a database",
        "The file {location} is not a SQLite database.",
        "Name another file; this one was not touched.",
    ),
    (
        "unable to open",
        "The system database {location} cannot be opened.",
        "Let this user read and write the file and its folder, and see that the disk is not full.",
    ),
    (
        "disk is full",
        "The file system of the system database {location} is full; nothing was changed.",
        "Make room and try again.",
    ),
    (
        "disk I/O error",
        "The system database {location} cannot be read or written: its disk reports an error.",
        "See whether the disk is full or failing, and try again.",
    ),
    ("malformed", "The system database {location} is damaged.", _RESTORE),
    (
        "no such",
        "The system database {location} is no longer the one that this process has opened: "
        "tables or columns are missing.",
        "Restart this process: it brings the tables up to date when it opens the database.",
    ),
)


def _checked_file(url: str) -> Path:
    name = (make_url(url).database or "").removeprefix("file:")
    file = Path(name)
    if not name or not file.is_absolute():
        # A relative path would be another database in every working directory, and a database in
        # memory another one in every process: two processes would start the same job twice.
        raise SystemDatabaseError(
            f"The system database {masked_url(url)} is not an absolute path.",
            remedy="Write sqlite:////absolute/path/to/lakehouse.db (four slashes).",
        )
    if not file.parent.is_dir():
        raise SystemDatabaseError(
            f"The folder {file.parent} of the system database does not exist.",
            remedy="Make the folder, or name another database.",
        )
    if file.is_dir():
        raise SystemDatabaseError(
            f"The system database {file} is a folder.", remedy="Name a file in it."
        )
    return file


def _take_over_transactions(engine: Engine, busy_timeout_seconds: float) -> None:
    """Make SQLAlchemy leave transactions on SQLite to us.

    The sqlite3 module would otherwise begin them itself, late and never IMMEDIATE (SQLAlchemy's
    documentation, SQLite dialect, "Serializable isolation / Savepoints / Transactional DDL").
    """

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        _use_write_ahead_log(connection, busy_timeout_seconds)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("lakehouse_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _follow_the_file(engine: Engine, file: Path) -> None:
    """Notice that the file was replaced, by a backup for example, or deleted.

    Connections that are open would go on with the old one, which nobody else sees any more.
    """
    opened = False

    @event.listens_for(engine, "do_connect")
    def connecting(*_: Any) -> None:
        if opened and not file.exists():
            # SQLite would make an empty one, and every job would seem never to have run.
            raise SystemDatabaseError(
                f"The system database {file} was deleted while it was in use.", remedy=_RESTORE
            )

    @event.listens_for(engine, "connect")
    def connected(_connection: Any, record: Any) -> None:
        nonlocal opened
        opened = True
        record.info["file"] = _identity(file)

    @event.listens_for(engine, "checkout")
    def checked_out(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != _identity(file):
            raise DisconnectionError("the file was replaced")


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _use_write_ahead_log(connection: Any, busy_timeout_seconds: float) -> None:
    """Turn on the write-ahead log, which stays on in the file: readers then never wait for writers.

    SQLite does not wait by itself when two processes switch at once, so this does.
    """
    deadline = time.monotonic() + busy_timeout_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.02)
        else:
            return

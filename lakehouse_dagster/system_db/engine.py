"""An open system database: transactions for reading and writing, and errors that say what to do."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db.database import masked_url

_WRITES = {"lakehouse_writes": True}


class Database:
    """An open system database; use it from any thread, one transaction at a time in each.

    Args:
        url: SQLAlchemy URL; for now ``sqlite:////absolute/path.db``.
        busy_timeout_seconds: how long a transaction waits for another process that is writing.

    Raises:
        SystemDatabaseError: the URL is not usable, or the file's folder does not exist.
    """

    def __init__(self, url: str, busy_timeout_seconds: float = 30.0) -> None:
        parsed = _parse(url)
        self.location = str(_sqlite_file(parsed, url))
        self.busy_timeout_seconds = busy_timeout_seconds
        # Parameters can hold session handles and paths: they stay out of exceptions.
        self.engine: Engine = create_engine(
            parsed, hide_parameters=True, connect_args={"timeout": busy_timeout_seconds}
        )
        _prepare_sqlite(self.engine, busy_timeout_seconds)

    def __repr__(self) -> str:
        return f"Database({self.location!r})"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one consistent state and changes nothing.

        Raises:
            SystemDatabaseError: the database cannot be read.
        """
        with self._translated_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, undone when anything is raised.

        On SQLite it begins IMMEDIATE, so what was read in it cannot be changed by another process
        before it is committed.

        Raises:
            SystemDatabaseError: the database cannot be written, or stayed locked too long.
        """
        with (
            self._translated_errors(),
            self.engine.execution_options(**_WRITES).begin() as connection,
        ):
            yield connection

    def close(self) -> None:
        """Close all connections; the database can be used again afterwards."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise _explained(error, self.location, self.busy_timeout_seconds) from error
        except SQLAlchemyError as error:
            raise SystemDatabaseError(
                f"The system database {self.location} refused a request: {error}"
            ) from error


def _parse(url: str) -> URL:
    shown = masked_url(url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The original error would show the URL with its password.
        raise SystemDatabaseError(
            f"{shown!r} is not a database URL.",
            remedy="Write sqlite:////absolute/path/to/lakehouse.db.",
        ) from None
    if parsed.get_backend_name() != "sqlite":
        raise SystemDatabaseError(
            f"The system database {shown} is of a kind that is not supported yet.",
            remedy="Write sqlite:////absolute/path/to/lakehouse.db.",
        )
    return parsed


def _sqlite_file(parsed: URL, url: str) -> Path:
    name = (parsed.database or "").removeprefix("file:")
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


def _prepare_sqlite(engine: Engine, busy_timeout_seconds: float) -> None:
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


def _explained(
    error: DBAPIError, location: str, busy_timeout_seconds: float
) -> SystemDatabaseError:
    cause = str(error.orig)
    if "locked" in cause:
        return SystemDatabaseError(
            f"The system database {location} stayed locked for {busy_timeout_seconds:g} s.",
            remedy="Find the process that holds it open for writing, and try again.",
        )
    if "readonly" in cause:
        return SystemDatabaseError(
            f"The system database {location} is read-only.",
            remedy="Let this user write the file and its folder.",
        )
    if "not a database" in cause:
        return SystemDatabaseError(
            f"The file {location} is not a SQLite database.",
            remedy="Name another file; this one was not touched.",
        )
    if "unable to open" in cause:
        return SystemDatabaseError(
            f"The system database {location} cannot be opened.",
            remedy="Let this user read and write the file and its folder.",
        )
    return SystemDatabaseError(f"The system database {location} refused a request: {cause}")

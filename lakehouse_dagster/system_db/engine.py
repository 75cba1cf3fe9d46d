"""An open system database: transactions for reading and writing, and errors that say what to do."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db.changes import StateCache
from lakehouse_dagster.system_db.database import SUPPORTED_URLS, check_url, masked_url
from lakehouse_dagster.system_db.postgres import PostgresBackend
from lakehouse_dagster.system_db.sqlite import SqliteBackend


class Backend(Protocol):
    """What differs between the kinds of databases."""

    location: str
    """Where it is, as a person may read it."""
    engine: Engine
    read_options: Mapping[str, Any]
    """SQLAlchemy's execution options of a transaction that only reads."""
    write_options: Mapping[str, Any]
    """SQLAlchemy's execution options of a transaction that may write."""

    def lock_migrations(self, connection: Connection) -> None:
        """Wait until no other process migrates; held until the end of the transaction."""

    def explain(self, error: DBAPIError) -> SystemDatabaseError:
        """What the error means, and what to do about it."""


class Database:
    """An open system database; use it from any thread, one transaction at a time in each.

    Args:
        url: SQLAlchemy URL, ``sqlite:////absolute/path.db`` or ``postgresql://…``.
        busy_timeout_seconds: how long a transaction waits for another process that is writing.

    Raises:
        SystemDatabaseError: the URL is not usable, the file's folder does not exist, or the driver
            is not installed.
    """

    def __init__(self, url: str, busy_timeout_seconds: float = 30.0) -> None:
        self.busy_timeout_seconds = busy_timeout_seconds
        self.backend = _backend(url, busy_timeout_seconds)
        self.location = self.backend.location
        self.engine = self.backend.engine
        self._reading = self.engine.execution_options(**self.backend.read_options)
        self._writing = self.engine.execution_options(**self.backend.write_options)
        self._state_caches: dict[str, StateCache] = {}
        _open.add(self.engine)

    def __repr__(self) -> str:
        return f"Database({self.location!r})"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one consistent state and changes nothing.

        Raises:
            SystemDatabaseError: the database cannot be read.
        """
        with self._translated_errors(), self._reading.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, undone when anything is raised.

        On SQLite it begins IMMEDIATE, so what was read in it cannot be changed by another process
        before it is committed. On Postgres that holds for rows it has locked.

        Raises:
            SystemDatabaseError: the database cannot be written, or stayed locked too long.
        """
        with self._translated_errors(), self._writing.begin() as connection:
            yield connection

    def state_cache(self, lakehouse: str) -> StateCache:
        """What was last read of the lakehouse's jobs through this object, in whichever thread."""
        return self._state_caches.setdefault(lakehouse, StateCache(lakehouse))

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
            # Not `from error`: Postgres quotes the row that it refused, and chained exceptions are
            # printed.
            raise self.backend.explain(error) from None
        except SQLAlchemyError as error:
            raise SystemDatabaseError(
                f"The system database {self.location} refused a request: {error}"
            ) from error


def _backend(url: str, busy_timeout_seconds: float) -> Backend:
    check_url(url)
    if _parse(url).get_backend_name() == "sqlite":
        return SqliteBackend(url, busy_timeout_seconds)
    return PostgresBackend(url, busy_timeout_seconds)


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The original error would show the URL with its password.
        raise SystemDatabaseError(
            f"{masked_url(url)!r} is not a database URL.", remedy=SUPPORTED_URLS
        ) from None


_open: weakref.WeakSet[Engine] = weakref.WeakSet()
_pools_of_the_parent: list[Pool] = []


def _leave_connections_to_the_parent() -> None:
    """In a process that was forked: open connections of its own, and do not close the parent's.

    Both would write into the same sockets and files (SQLAlchemy's documentation, "Using Connection
    Pools with Multiprocessing or os.fork()").
    """
    for engine in _open:
        # Kept, because what is collected as garbage is closed.
        _pools_of_the_parent.append(engine.pool)
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_connections_to_the_parent)

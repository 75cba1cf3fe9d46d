"""Leases: only one run or command acts on a job or table at a time.

A run that Dagster has force-cancelled goes on working, so a lease alone does not stop it: every
lease carries a fencing number, and whoever is about to change something outside asks
:meth:`Leases.check` first. Times are those of the machines' clocks, so machines that share a
database must agree to well within a lease's life.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection, RowMapping, or_, select, update
from sqlalchemy.exc import IntegrityError

from lakehouse_dagster.errors import LeaseHeldError, LeaseLostError, SystemDatabaseError
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database
from lakehouse_dagster.system_db.records import Lease, wait_for_lease

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_table = schema.leases
_columns = _table.c


class Leases:
    """Takes, renews, checks and releases leases.

    Args:
        db: the open system database.
        clock: what time it is.
        sleep: how to wait for a number of seconds.
    """

    def __init__(
        self, db: Database, clock: Clock = utc_now, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._db = db
        self._clock = clock
        self._sleep = sleep

    def acquire(
        self, key: str, holder: str, ttl_seconds: float, wait_seconds: float = 0.0
    ) -> Lease:
        """Take the lease on ``key``.

        Args:
            key: what the holder wants to act on, such as ``job/lake/orders``.
            holder: who it is, as a person should read it (``run 1a2b…``); the same holder does not
                get a second lease on the key.
            ttl_seconds: how long the lease lives unless renewed.
            wait_seconds: how long to wait for another holder.

        Raises:
            LeaseHeldError: someone else holds it, and still did after ``wait_seconds``.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            lease, other = self._try(key, holder, ttl_seconds)
            if lease is not None:
                return lease
            left = deadline - time.monotonic()
            if left <= 0:
                raise _held_error(key, other)
            self._sleep(min(_POLL_SECONDS, left))

    def current(self, key: str) -> Lease | None:
        """The lease on ``key`` that someone holds now; ``None`` when it is free.

        Releasing it fences its holder off: for a holder that is known to be gone or cancelled.
        """
        with self._db.read() as connection:
            row = _row(connection, key)
        if row is None or not _is_held(row, self._clock()):
            return None
        return _lease(row)

    def all_current(self, beginning: str) -> dict[str, Lease]:
        """The leases that are held now on keys with this beginning, by one query."""
        query = select(_table).where(
            _columns.key.startswith(beginning, autoescape=True), _columns.holder.is_not(None)
        )
        with self._db.read() as connection:
            rows = connection.execute(query).mappings().all()
        now = self._clock()
        return {row["key"]: _lease(row) for row in rows if _is_held(row, now)}

    def renew(self, lease: Lease) -> Lease:
        """Let the lease live for another ``ttl_seconds`` from now.

        Raises:
            LeaseLostError: it has expired, or someone else has taken over.
        """
        with self._db.write() as connection:
            _lock(connection, lease.key)
            now = self._clock()
            expires_at = now + timedelta(seconds=lease.ttl_seconds)
            renewed = connection.execute(
                update(_table)
                .where(
                    _columns.key == lease.key,
                    _columns.fencing == lease.fencing,
                    _columns.expires_at > now,
                )
                .values(expires_at=expires_at)
            ).rowcount
            if not renewed:
                raise _lost_error(lease, _row(connection, lease.key))
        return Lease(lease.key, lease.holder, lease.fencing, expires_at, lease.ttl_seconds)

    def check(self, lease: Lease) -> None:
        """Make sure that the lease is still ours: ask right before changing something outside.

        Raises:
            LeaseLostError: it has expired, or someone else has taken over.
        """
        with self._db.read() as connection:
            row = _row(connection, lease.key)
        if row is None or row["fencing"] != lease.fencing or not _is_held(row, self._clock()):
            raise _lost_error(lease, row)

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens when it was lost already."""
        with self._db.write() as connection:
            connection.execute(
                update(_table)
                .where(_columns.key == lease.key, _columns.fencing == lease.fencing)
                .values(holder=None, ttl_seconds=None, expires_at=None)
            )

    @contextmanager
    def held(
        self, key: str, holder: str, ttl_seconds: float = 60.0, wait_seconds: float = 0.0
    ) -> Iterator[Lease]:
        """Hold the lease for the length of a ``with`` block, renewing it in a thread.

        The block must still :meth:`check` before it changes anything outside: a process that was
        stopped for longer than ``ttl_seconds`` has lost the lease without noticing.

        Raises:
            LeaseHeldError: someone else holds it, and still did after ``wait_seconds``.
        """
        lease = self.acquire(key, holder, ttl_seconds, wait_seconds)
        done = threading.Event()
        renewer = threading.Thread(
            target=self._keep_renewing, args=(lease, done), name=f"lease {key}", daemon=True
        )
        try:
            renewer.start()
            yield lease
        finally:
            done.set()
            self._release_or_log(lease)

    def _try(
        self, key: str, holder: str, ttl_seconds: float
    ) -> tuple[Lease | None, RowMapping | None]:
        """Our new lease, or the row of whoever holds it."""
        with self._db.write() as connection:
            _insert_if_missing(connection, key)
            _lock(connection, key)
            # Taken after the wait for the lock: the lease must not be older than it looks.
            now = self._clock()
            taken = connection.execute(
                update(_table)
                .where(
                    _columns.key == key,
                    or_(_columns.expires_at.is_(None), _columns.expires_at <= now),
                )
                .values(
                    fencing=_columns.fencing + 1,
                    holder=holder,
                    ttl_seconds=ttl_seconds,
                    expires_at=now + timedelta(seconds=ttl_seconds),
                )
            ).rowcount
            row = _row(connection, key)
        if taken and row is not None:
            return _lease(row), None
        return None, row

    def _keep_renewing(self, lease: Lease, done: threading.Event) -> None:
        while not done.wait(lease.ttl_seconds / 3):
            try:
                self.renew(lease)
            except LeaseLostError as error:
                if not done.is_set():
                    _log.warning("%s", error)
                return
            except SystemDatabaseError as error:
                # It may pass before the lease expires; if not, the next check says so.
                _log.warning("The lease on %s could not be renewed: %s", _thing(lease.key), error)

    def _release_or_log(self, lease: Lease) -> None:
        """Release without hiding how the block ended: an unreleased lease expires by itself."""
        try:
            self.release(lease)
        except SystemDatabaseError as error:
            _log.warning(
                "The lease on %s could not be released, and ends by itself within %g s: %s",
                _thing(lease.key),
                lease.ttl_seconds,
                error,
            )


def _insert_if_missing(connection: Connection, key: str) -> None:
    if _row(connection, key) is not None:
        return
    try:
        with connection.begin_nested():
            connection.execute(_table.insert().values(key=key, fencing=0))
    except IntegrityError:
        # Another process was faster (not on SQLite, where we hold the write lock).
        return


def _lock(connection: Connection, key: str) -> None:
    """Wait for whoever is changing the lease (on SQLite, a writing transaction has waited)."""
    connection.execute(select(_columns.key).where(_columns.key == key).with_for_update())


def _row(connection: Connection, key: str) -> RowMapping | None:
    return connection.execute(select(_table).where(_columns.key == key)).mappings().one_or_none()


def _is_held(row: RowMapping, now: datetime) -> bool:
    return row["expires_at"] is not None and row["expires_at"] > now


def _lease(row: RowMapping) -> Lease:
    return Lease(row["key"], row["holder"], row["fencing"], row["expires_at"], row["ttl_seconds"])


def _thing(key: str) -> str:
    """What a lease is on, for people: ``the table ods.orders`` of ``table/lake/ods.orders``."""
    kind, *_, name = key.split("/", 2)
    return f"the {kind} {name}"


def _held_error(key: str, row: RowMapping | None) -> LeaseHeldError:
    holder = row["holder"] if row else "someone"
    return LeaseHeldError(
        f"{holder} acts on {_thing(key)} now.",
        remedy=wait_for_lease(row["expires_at"] if row else None),
    )


def _lost_error(lease: Lease, row: RowMapping | None) -> LeaseLostError:
    if row is not None and row["fencing"] == lease.fencing and row["expires_at"] is not None:
        what = f"expired at {row['expires_at']:%Y-%m-%d %H:%M:%S} UTC"
    elif row is not None and row["holder"] is not None:
        what = f"went over to {row['holder']}"
    else:
        what = "was released"
    return LeaseLostError(
        f"The lease of {lease.holder} on {_thing(lease.key)} {what}; nothing more was changed.",
        remedy="Look at the present state and start again.",
    )

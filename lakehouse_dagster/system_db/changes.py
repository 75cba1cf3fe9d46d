"""Whether anything has changed: of each lakehouse, a token and what was read under it.

The database writes another random token whenever a job or incarnation changes (triggers, see
``migrations``), in the same transaction. Whoever reads the token he has seen before knows that the
rows are the same, whichever process or program writes; random ones are told apart also after the
database was restored from a backup.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection, bindparam, select

from lakehouse_dagster.system_db import incarnations, job_rows, schema
from lakehouse_dagster.system_db.records import Incarnation, JobsState

_changes = schema.changes
# Made once: to make a statement takes longer than to run this one.
_token = select(_changes.c.token).where(_changes.c.lakehouse == bindparam("lakehouse"))
_token_to_change = _token.with_for_update()


def token(connection: Connection, lakehouse: str) -> int | None:
    """The token of the lakehouse as this transaction sees it; ``None`` when nothing was written."""
    return connection.execute(_token, {"lakehouse": lakehouse}).scalar()


def take_turn(connection: Connection, lakehouse: str) -> None:
    """Wait until no other transaction writes to the jobs of the lakehouse.

    On SQLite a writing transaction excludes all others anyway. On Postgres it would not, and what a
    repository has read in its transaction could be changed before it is committed; so all take the
    lock on one row first, which also rules out deadlocks.
    """
    if connection.dialect.name == "sqlite":
        return
    ours = {"lakehouse": lakehouse}
    if connection.execute(_token_to_change, ours).first() is not None:
        return
    from sqlalchemy.dialects.postgresql import insert

    connection.execute(
        insert(_changes).values(lakehouse=lakehouse, token=0).on_conflict_do_nothing()
    )
    connection.execute(_token_to_change, ours)


class StateCache:
    """The state of one lakehouse's jobs as it was last read; safe to use from several threads."""

    def __init__(self, lakehouse: str) -> None:
        self._lakehouse = lakehouse
        self._lock = threading.Lock()
        self._kept: tuple[int | None, JobsState] | None = None

    def read(self, connection: Connection) -> JobsState:
        """The state that this transaction sees, read from the tables only when it has changed.

        Args:
            connection: a transaction that sees one consistent state.
        """
        seen = token(connection, self._lakehouse)
        kept = self._kept
        # Without a token nothing was written yet, or not since the tables had tokens.
        if kept is not None and seen is not None and kept[0] == seen:
            return kept[1]
        state = JobsState(
            records=MappingProxyType(
                {job.name: job for job in job_rows.of_lakehouse(connection, self._lakehouse)}
            ),
            latest=MappingProxyType(incarnations.newest(connection, self._lakehouse)),
        )
        with self._lock:
            self._kept = (seen, state)
        return state

    def known(
        self, seen: int | None, lives: Iterable[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Incarnation] | None:
        """Those lives as the transaction that has read this token sees them.

        None unless all are the newest of their jobs, and nothing was written since they were read.
        """
        kept = self._kept
        if kept is None or seen is None or kept[0] != seen:
            return None
        found: dict[tuple[str, int], Incarnation] = {}
        for name, number in lives:
            life = kept[1].latest.get(name)
            if life is None or life.number != number:
                return None
            found[name, number] = life
        return found

    def advance(
        self, before: int | None, after: int | None, written: Iterable[Incarnation]
    ) -> None:
        """Follow a transaction of ours that was committed, instead of reading all rows again.

        Args:
            before: the token when the transaction had its turn.
            after: the token when it had written.
            written: all that it wrote.
        """
        with self._lock:
            if self._kept is None or before is None or self._kept[0] != before:
                # Someone else wrote since: the next read takes it all.
                return
            state = self._kept[1]
            latest = dict(state.latest)
            for life in written:
                if life.job_name in latest and latest[life.job_name].number == life.number:
                    latest[life.job_name] = life
            self._kept = (after, JobsState(state.records, MappingProxyType(latest)))

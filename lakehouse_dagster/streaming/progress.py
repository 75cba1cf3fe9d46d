"""What moved in the tables since the last look: new snapshots become one event a table.

Delivery is at least once: an event is recorded before the cursor is kept, and a repeat carries the
same data version, so that whoever records it can leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, Field

from lakehouse_dagster.errors import CatalogError, SnapshotNotFoundError
from lakehouse_dagster.paimon import CatalogReader, Snapshot, SnapshotChanges, TableReader
from lakehouse_dagster.streaming.cursor import Cursor
from lakehouse_dagster.streaming.foreign_commits import writing_users
from lakehouse_dagster.streaming.partition_keys import Partition, in_words
from lakehouse_dagster.streaming.partition_progress import PartitionCursor
from lakehouse_dagster.streaming.spec import ProgressPolicy

SNAPSHOTS_LOOKED_INTO = 50
"""At most so many of the newest snapshots of one event are read file by file."""
TABLES_AT_ONCE = 25
"""At most so many tables are looked at one after the other by one thread."""
SNAPSHOTS_READ = 500
"""At most so many of the newest snapshots of one event are read at all."""


class TableCursor(BaseModel):
    """The newest snapshot reported of a table, and when."""

    snapshot: int
    reported_at: datetime
    foreign: tuple[str, ...] | None = None
    """The commit users, not ours, that were last told of."""


class ProgressCursor(Cursor):
    """What was reported so far; small, and when lost only repeats events."""

    tables: dict[str, TableCursor] = Field(default_factory=dict)
    partitions: dict[str, PartitionCursor] = Field(default_factory=dict)


@dataclass(frozen=True)
class ProgressEvent:
    """The new snapshots of one table, ``first_snapshot`` to ``last_snapshot``, both included.

    Row counts are rows of files as Flink wrote them, before merging: they say how much moved, not
    how many rows the table has. ``expired`` are snapshots gone before they were seen.
    """

    table: str
    first_snapshot: int
    last_snapshot: int
    committed_at: datetime
    watermark: datetime | None
    commit_user: str
    writing_users: tuple[str, ...]
    """Who committed rows, each once."""
    commits_by_kind: Mapping[str, int]
    rows_written: int
    rows_removed: int
    files_added: int
    files_deleted: int
    bytes_added: int
    partitions: tuple[tuple[Partition, int], ...]
    """The partitions that changed, each with the newest snapshot that changed it."""
    expired: tuple[tuple[int, int], ...]
    snapshots_not_looked_into: int

    @property
    def data_version(self) -> str:
        return str(self.last_snapshot)


@dataclass(frozen=True)
class Moved:
    """The events of one look, upstream tables first; ``problems`` by table; ``left_over`` wait."""

    events: tuple[ProgressEvent, ...]
    problems: Mapping[str, str]
    left_over: int


def moved(
    catalog: CatalogReader,
    tables: Sequence[str],
    cursor: ProgressCursor,
    *,
    now: datetime,
    policy: ProgressPolicy,
) -> Moved:
    """The progress of ``tables`` (upstream first) since ``cursor``.

    Only tables whose newest snapshot id differs are looked into, and at most
    ``policy.events_per_tick`` of them; those longest unreported go first.
    """
    with ThreadPoolExecutor(max_workers=policy.threads) as pool:
        # In handfuls: to hand a table from thread to thread takes longer than to look at it.
        size = max(1, min(TABLES_AT_ONCE, len(tables) // (4 * policy.threads)))
        handfuls = [tables[start : start + size] for start in range(0, len(tables), size)]
        newest: dict[str, int | str | None] = {}
        for found in pool.map(lambda some: {t: _latest(catalog, t) for t in some}, handfuls):
            newest |= found
        problems = {t: v for t, v in newest.items() if isinstance(v, str)}
        due = [
            table
            for table in tables
            if isinstance(newest[table], int)
            and _is_due(table, newest[table], cursor, now, policy.interval_seconds(len(tables)))
        ]
        chosen = set(sorted(due, key=lambda t: _reported_at(t, cursor))[: policy.events_per_tick])
        reports = pool.map(
            lambda t: _report(catalog, t, newest[t], cursor), [t for t in due if t in chosen]
        )
        events: list[ProgressEvent] = []
        for report in reports:
            if isinstance(report, ProgressEvent):
                events.append(report)
            else:
                problems[report[0]] = report[1]
    return Moved(tuple(events), problems, len(due) - len(chosen))


def advance(
    cursor: ProgressCursor,
    events: Sequence[ProgressEvent],
    now: datetime,
    foreign: Mapping[str, tuple[str, ...]] | None = None,
) -> ProgressCursor:
    """The cursor after these events, and these foreign commit users by table, were handed on."""
    tables, foreign = dict(cursor.tables), foreign or {}
    for event in events:
        known = tables.get(event.table)
        told = foreign.get(event.table, known.foreign if known else None)
        tables[event.table] = TableCursor(
            snapshot=event.last_snapshot, reported_at=now, foreign=told
        )
    return cursor.model_copy(update={"tables": tables})


def describe(
    table: TableReader,
    after: int,
    upto: int,
    *,
    looked_into: int = SNAPSHOTS_LOOKED_INTO,
    read: int = SNAPSHOTS_READ,
) -> ProgressEvent | None:
    """The snapshots after ``after`` up to ``upto`` as one event; None if all have expired.

    Kinds of commits are counted for the newest ``read`` of them, rows and files for the newest
    ``looked_into``; of how many they are not known stands in the event.
    """
    span = table.snapshots(max(after, upto - read), upto)
    if not span.snapshots:
        return None
    changes = _changes(table, span.snapshots[-looked_into:])
    not_read = max(0, upto - read - after) if after else 0
    not_looked_into = not_read + len(span.snapshots) - len(changes)
    # What was there before the first look was never ours to see.
    expired = span.expired if after else ()
    return _event(table.name, after, span.snapshots, expired, changes, not_looked_into)


def _changes(table: TableReader, snapshots: Sequence[Snapshot]) -> list[SnapshotChanges]:
    """What the snapshots did; those that expire while we read are left out."""
    changes = []
    for snapshot in snapshots:
        try:
            changes.append(table.changes(snapshot.id))
        except SnapshotNotFoundError:
            if snapshot is snapshots[-1]:
                raise  # the newest one never expires: the table is damaged
    return changes


def _event(
    table: str,
    after: int,
    snapshots: Sequence[Snapshot],
    expired: tuple[tuple[int, int], ...],
    changes: Sequence[SnapshotChanges],
    not_looked_into: int,
) -> ProgressEvent:
    last = snapshots[-1]
    kinds: dict[str, int] = {}
    for snapshot in snapshots:
        kinds[snapshot.commit_kind] = kinds.get(snapshot.commit_kind, 0) + 1
    # A compaction rewrites rows that were there already: only other commits bring new ones.
    brought = [p for c in changes if c.snapshot.commit_kind != "COMPACT" for p in c.partitions]
    touched = [p for c in changes for p in c.partitions]
    return ProgressEvent(
        table=table,
        first_snapshot=after + 1 if after else snapshots[0].id,
        last_snapshot=last.id,
        committed_at=last.committed_at,
        watermark=last.watermark,
        commit_user=last.commit_user,
        writing_users=writing_users(snapshots),
        commits_by_kind=kinds,
        rows_written=sum(p.rows_added for p in brought),
        rows_removed=sum(p.rows_deleted for p in brought),
        files_added=sum(p.files_added for p in touched),
        files_deleted=sum(p.files_deleted for p in touched),
        bytes_added=sum(p.bytes_added for p in touched),
        partitions=_partitions(changes),
        expired=expired,
        snapshots_not_looked_into=not_looked_into,
    )


def _partitions(changes: Sequence[SnapshotChanges]) -> tuple[tuple[Partition, int], ...]:
    newest: dict[str, tuple[Partition, int]] = {}
    for change in changes:
        if change.snapshot.commit_kind != "COMPACT":
            for p in change.partitions:
                newest[in_words(p.partition)] = (p.partition, change.snapshot.id)
    return tuple(found for words, found in sorted(newest.items()) if words)


def _latest(catalog: CatalogReader, table: str) -> int | str | None:
    """The newest snapshot id, None if there is none yet, or what is wrong with the table."""
    try:
        return catalog.table(table).latest_snapshot_id()
    except CatalogError as error:
        return error.message


def _is_due(
    table: str, newest: int | str | None, cursor: ProgressCursor, now: datetime, interval: float
) -> bool:
    last = cursor.tables.get(table)
    if last is None:
        return True
    if newest == last.snapshot:
        return False
    # All tables share one beat, so that a table and its upstreams are reported together: Dagster
    # calls an asset unsynced while an upstream has a newer event.
    return now.timestamp() // interval > last.reported_at.timestamp() // interval


def _reported_at(table: str, cursor: ProgressCursor) -> float:
    last = cursor.tables.get(table)
    return last.reported_at.timestamp() if last else 0.0


def _report(
    catalog: CatalogReader, table: str, newest: int | str | None, cursor: ProgressCursor
) -> ProgressEvent | tuple[str, str]:
    assert isinstance(newest, int)
    last = cursor.tables.get(table)
    # A table that was dropped and made anew starts again at snapshot 1.
    after = last.snapshot if last and last.snapshot < newest else 0
    try:
        event = describe(catalog.table(table), after, newest)
    except CatalogError as error:
        return table, error.message
    return event or (table, f"snapshots {after + 1} to {newest} expired before they were seen")

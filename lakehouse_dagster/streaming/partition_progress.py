"""Which partitions changed, and when each is told of: pure decisions, and the reading before them.

A partition is told of when its window is over, or when it has come to rest, and not at every
commit. Until then it is *pending*; what is pending is small, because it is bounded: what does not
fit is read again from the table's manifests, from where reading stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, PlainSerializer

from lakehouse_dagster.errors import SnapshotNotFoundError
from lakehouse_dagster.paimon import Snapshot, TableReader
from lakehouse_dagster.streaming.names import short_hash
from lakehouse_dagster.streaming.partition_keys import PartitionKeys, in_words
from lakehouse_dagster.streaming.spec import ProgressPolicy

PENDING_OF_A_TABLE = 500
PENDING_OF_ALL = 2000
"""At most so many partitions are pending, shared among the tables (but at least 20 each)."""
OUTSIDE_NAMED = 100
"""At most so many partitions outside of the definition are remembered by name, and sought anew."""
SNAPSHOTS_AT_ONCE = 50
"""At most so many snapshots of a table are read in one tick."""
PATIENCE = 12
"""A partition that never comes to rest is told of after so many times ``partition_quiet``."""
_ZONES = timedelta(hours=12)
"""Paimon writes down when a file was made in the time zone of its writer, and not which it is."""


Moment = Annotated[datetime, PlainSerializer(lambda at: int(at.timestamp()), when_used="json")]
"""Stored in whole seconds: cursors are to be small."""


class Pending(NamedTuple):
    """A partition that changed and was not told of since."""

    snapshot: int
    """The newest that changed it: what will be its data version."""
    since: Moment
    """Its first change that was not told of."""
    changed_at: Moment
    late: bool
    """It changed when its window was over already."""


class PartitionCursor(BaseModel):
    """How far the partitions of one table have been read, and which are pending."""

    declared: str = ""
    """What was declared when they were read: another declaration begins anew."""
    seen: int = 0
    """Snapshots up to this one have been read wholly."""
    seen_at: datetime | None = None
    watermark: datetime | None = None
    within: str | None = None
    """Of what comes after ``seen``, the partitions up to this key have been read."""
    within_snapshot: tuple[int, datetime] | None = None
    """The snapshot in which reading what comes after ``seen`` began."""
    pending: dict[str, Pending] = Field(default_factory=dict)
    outside: tuple[str, ...] = ()
    """The first of the partitions that the definition does not have, in words."""
    outside_count: int = 0
    outside_told: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Changed:
    """The partitions that one snapshot changed, or that the oldest one had."""

    snapshot: int
    committed_at: datetime
    watermark: datetime | None
    changed_at: Mapping[str, datetime]
    """By key, oldest partition first."""
    outside: frozenset[str] = frozenset()
    """In words, those that the definition does not have."""


def room_for_each(tables: int) -> int:
    """How many partitions of one table may be pending."""
    return max(20, min(PENDING_OF_A_TABLE, PENDING_OF_ALL // max(1, tables)))


# -- decisions ------------------------------------------------------------------------------------


def taken_in(
    cursor: PartitionCursor,
    changed: Changed,
    keys: PartitionKeys,
    *,
    policy: ProgressPolicy,
    room: int,
) -> PartitionCursor:
    """The cursor after a snapshot; if not all of it fits, after the part that does."""
    pending = dict(cursor.pending)
    begun = cursor.within_snapshot or (changed.snapshot, changed.committed_at)
    position = keys.order(cursor.within) if cursor.within is not None else None
    within = cursor.within
    for key, at in changed.changed_at.items():
        if position is not None and keys.order(key) <= position:
            continue
        if key not in pending and len(pending) >= room:
            return cursor.model_copy(
                update={"pending": pending, "within": within, "within_snapshot": begun}
            )
        known = pending.get(key)
        pending[key] = Pending(
            changed.snapshot,
            known.since if known else at,
            at,
            (known.late if known else True) and _is_late(keys, key, at, changed, policy),
        )
        within = key
    # If the snapshot in which reading began expired meanwhile, what came after it is read again.
    return cursor.model_copy(
        update={
            "pending": pending,
            "within": None,
            "within_snapshot": None,
            "seen": begun[0],
            "seen_at": begun[1],
            "watermark": changed.watermark,
        }
    )


def _is_late(
    keys: PartitionKeys, key: str, at: datetime, changed: Changed, policy: ProgressPolicy
) -> bool:
    window = keys.window(key)
    if window is None:
        return False
    closes_at = window[1] + policy.spans["partition_grace"]
    return (changed.watermark or at) > closes_at


def due(
    cursor: PartitionCursor, keys: PartitionKeys, *, now: datetime, policy: ProgressPolicy
) -> list[str]:
    """The pending partitions that are to be told of now, oldest first."""
    found = (
        key
        for key, item in cursor.pending.items()
        if keys.listed(key, now) and _is_due(item, keys.window(key), cursor.watermark, now, policy)
    )
    return sorted(found, key=keys.order)


def _is_due(
    item: Pending,
    window: tuple[datetime, datetime] | None,
    watermark: datetime | None,
    now: datetime,
    policy: ProgressPolicy,
) -> bool:
    quiet = policy.spans["partition_quiet"]
    waits_since = item.since
    if window is not None and window[1] <= now:
        closes_at = window[1] + policy.spans["partition_grace"]
        if not item.late and (watermark or now) >= closes_at:
            return True
        if now < closes_at:
            return False
        waits_since = max(item.since, closes_at)
    return now - item.changed_at >= quiet or now - waits_since >= PATIENCE * quiet


def shared_out(due_by_table: Mapping[str, list[str]], most: int) -> dict[str, list[str]]:
    """At most so many of the due partitions, in turn from each table, in the tables' order."""
    chosen: dict[str, list[str]] = {table: [] for table in due_by_table}
    left = {table: iter(keys) for table, keys in due_by_table.items()}
    taken = 0
    while left and taken < most:
        for table in list(left):
            key = next(left[table], None)
            if key is None:
                del left[table]
            elif taken < most:
                chosen[table].append(key)
                taken += 1
    return {table: keys for table, keys in chosen.items() if keys}


def told(cursor: PartitionCursor, keys: Iterable[str]) -> PartitionCursor:
    """The cursor after these partitions were told of."""
    gone = set(keys)
    left = {key: item for key, item in cursor.pending.items() if key not in gone}
    return cursor.model_copy(update={"pending": left})


# -- reading --------------------------------------------------------------------------------------


@dataclass
class PartitionReader:
    """Reads changes of partitions; keeps the last listing of a table while it is worked through."""

    policy: ProgressPolicy
    listings: dict[str, tuple[int, tuple[tuple[Mapping[str, object], datetime], ...]]] = field(
        default_factory=dict
    )

    def catch_up(
        self,
        table: TableReader,
        keys: PartitionKeys,
        cursor: PartitionCursor,
        *,
        now: datetime,
        room: int,
        known: Callable[[], Set[str]],
        enough: Callable[[], bool] = lambda: False,
    ) -> PartitionCursor:
        """Read what came since the cursor, as far as there is room for it.

        Args:
            table: the table.
            keys: its partitions.
            cursor: how far they have been read.
            now: the present.
            room: at most so many partitions are pending.
            known: the partitions that Dagster has an event of; asked at the first sight of a table
                whose first snapshots have expired.
            enough: asked before each snapshot, whether to leave the rest to the next tick.

        Raises:
            CatalogError: the table cannot be read.
        """
        newest = table.latest_snapshot_id() or 0
        declared = short_hash(repr((keys.declared, tuple(keys.columns.items()))))
        if newest < cursor.seen or declared != cursor.declared:
            cursor = PartitionCursor(declared=declared, outside_told=cursor.outside_told)
        # Read in large steps: each step into a long listing costs the same.
        if cursor.within is not None and len(cursor.pending) > room // 2:
            return cursor
        outside: set[str] = set()
        for _ in range(SNAPSHOTS_AT_ONCE):
            if cursor.seen >= newest:
                self.listings.pop(table.name, None)
                break
            if enough():
                break
            changed = self._next(table, keys, cursor, now, known)
            outside |= changed.outside
            before = cursor.seen
            cursor = taken_in(cursor, changed, keys, policy=self.policy, room=room)
            if cursor.seen == before:
                break
        if outside - set(cursor.outside) and cursor.outside_count <= OUTSIDE_NAMED:
            found = outside_now(table, keys, now)
            update = {"outside": found[:OUTSIDE_NAMED], "outside_count": len(found)}
            cursor = cursor.model_copy(update=update)
        return cursor

    def _next(
        self,
        table: TableReader,
        keys: PartitionKeys,
        cursor: PartitionCursor,
        now: datetime,
        known: Callable[[], Set[str]],
    ) -> Changed:
        try:
            return self._changes(table, keys, cursor.seen + 1, now)
        except SnapshotNotFoundError:
            oldest = table.oldest_snapshot_id()
            if oldest is None or oldest <= cursor.seen + 1:
                raise
        snapshot = table.snapshot(oldest)
        if snapshot is None:
            raise SnapshotNotFoundError(f"Snapshots of {table.name} expire as they are read.")
        return self._listing(table, keys, snapshot, cursor.seen_at, now, known)

    def _changes(
        self, table: TableReader, keys: PartitionKeys, number: int, now: datetime
    ) -> Changed:
        found = table.changes(number)
        snapshot = found.snapshot
        # A compaction rewrites rows that were there already.
        partitions = () if snapshot.commit_kind == "COMPACT" else found.partitions
        changed = [(p.partition, snapshot.committed_at) for p in partitions]
        return _changed(snapshot, *_sorted_out(keys, changed, now))

    def _listing(
        self,
        table: TableReader,
        keys: PartitionKeys,
        snapshot: Snapshot,
        since: datetime | None,
        now: datetime,
        known: Callable[[], Set[str]],
    ) -> Changed:
        """What the oldest snapshot has: at first sight all that was not told of, else the new."""
        cached = self.listings.get(table.name)
        if cached is None or cached[0] != snapshot.id:
            files = tuple((p.partition, p.newest_file_at) for p in table.partitions(snapshot.id))
            cached = self.listings[table.name] = (snapshot.id, files)
        changed = (
            (partition, min(made, snapshot.committed_at))
            for partition, made in cached[1]
            if since is None or made > since - _ZONES
        )
        inside, outside = _sorted_out(keys, changed, now)
        if since is None:
            told_before = known()
            inside = {key: at for key, at in inside.items() if key not in told_before}
        return _changed(snapshot, inside, outside)


def outside_now(table: TableReader, keys: PartitionKeys, now: datetime) -> tuple[str, ...]:
    """The partitions that the table has now and its definition does not, in words.

    Raises:
        CatalogError: the table cannot be read.
    """
    newest = table.latest_snapshot_id()
    if newest is None:
        return ()
    partitions = ((p.partition, p.newest_file_at) for p in table.partitions(newest))
    return tuple(sorted(_sorted_out(keys, partitions, now)[1]))


def _changed(snapshot: Snapshot, inside: Mapping[str, datetime], outside: Set[str]) -> Changed:
    return Changed(
        snapshot.id, snapshot.committed_at, snapshot.watermark, inside, frozenset(outside)
    )


def _sorted_out(
    keys: PartitionKeys,
    partitions: Iterable[tuple[Mapping[str, object], datetime]],
    now: datetime,
) -> tuple[dict[str, datetime], set[str]]:
    """The keys of those inside the definition, oldest first, and the others in words."""
    inside: dict[str, datetime] = {}
    outside: set[str] = set()
    for partition, at in partitions:
        key = keys.key_of(partition)
        if key is None or not keys.has_begun(key, now):
            outside.add(in_words(partition))
        else:
            inside[key] = max(at, inside.get(key, at))
    return dict(sorted(inside.items(), key=lambda item: keys.order(item[0]))), outside

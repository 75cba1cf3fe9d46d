"""What is known about a table's files, snapshots, tags, branches and consumers.

The sums over live files are kept up to date from delta manifests alone and remembered by a
:class:`FactStore`; they are made anew from all manifests when there is a gap, when history was
rewritten (a rollback, a table made again), or when what counts as a small file changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol, TypeAlias

from lakehouse_dagster.paimon.bucket_facts import BucketKey, BucketSums
from lakehouse_dagster.sizes import bytes_of

SMALL_SHARE = 0.7
"""A file is small below this share of ``target-file-size``: Paimon merges no larger ones of append
tables (``compaction.small-file-ratio``)."""
DYNAMIC_BUCKETS = -1
POSTPONED_BUCKETS = -2


PartitionText: TypeAlias = tuple[tuple[str, str | None], ...]
"""Column and value as text (ISO for dates), in the table's order; None for NULL."""


class TableKind(str, Enum):
    """What maintenance tells tables apart by."""

    PRIMARY_KEY = "primary key"
    """Merges by key: deduplicate, partial-update or aggregation."""
    FIRST_ROW = "first row"
    APPEND = "append"


def target_file_bytes(options: Mapping[str, str], kind: TableKind) -> int:
    """A table's ``target-file-size``; Paimon's default of it where the options have none."""
    default = (256 if kind is TableKind.APPEND else 128) * 1024**2
    return bytes_of(options.get("target-file-size", "")) or default


@dataclass(frozen=True)
class BucketFacts:
    """The live files of one bucket.

    Args:
        partition: column and value.
        bucket: its number; -2 where rows wait to be put into buckets (``bucket = -2``).
        records: rows in files, before merging by key.
        level0_files: those on level 0, where all files of an append table lie.
        small_files: those below :data:`SMALL_SHARE` of ``target-file-size``.
        settled_bytes: what lies on the highest level in use; a full compaction leaves all there.
        deleted_records: rows that deletion vectors mark.
    """

    partition: PartitionText
    bucket: int
    files: int
    size_bytes: int
    records: int
    level0_files: int
    level0_bytes: int
    small_files: int
    small_bytes: int
    settled_bytes: int
    levels: int
    deleted_records: int = 0


@dataclass(frozen=True)
class TagFacts:
    """A tag; ``time_retained_seconds`` is None where it has no end of its own."""

    snapshot_id: int
    created_at: datetime | None
    time_retained_seconds: float | None


@dataclass(frozen=True)
class BranchFacts:
    """A branch: the oldest and newest snapshot that it has of its own, and its tags.

    Args:
        from_snapshot_id: the table's snapshot that it was made from, whose files it reads; None
            for a branch that was made empty.
    """

    oldest_snapshot_id: int | None
    newest_snapshot_id: int | None
    tags: tuple[str, ...]
    from_snapshot_id: int | None = None


@dataclass(frozen=True)
class ConsumerFacts:
    """A reader that recorded how far it has read: the next snapshot that it needs."""

    next_snapshot: int
    modified_at: datetime | None


@dataclass(frozen=True)
class TableFacts:
    """Everything that decides what maintenance a table needs.

    Args:
        snapshot_id: newest snapshot that the facts are of; None for a table without any.
        total_buckets: the option ``bucket`` of the newest schema (-1 dynamic or unaware, -2
            postponed).
        snapshot_count: snapshots that exist now; ``oldest_snapshot_id`` is the first of them.
        changelog_count: changelogs kept longer than their snapshots; ``oldest_changelog_at`` is
            when the snapshot of the oldest was committed.
        manifest_files, manifest_bytes: of the newest snapshot.
        options: of the newest schema, secrets masked.
        problem: why the table cannot be looked into (files deleted by hand, …); nothing may then
            be done to it.
    """

    table: str
    kind: TableKind = TableKind.APPEND
    snapshot_id: int | None = None
    schema_id: int | None = None
    buckets: tuple[BucketFacts, ...] = ()
    total_buckets: int = DYNAMIC_BUCKETS
    partition_keys: tuple[str, ...] = ()
    oldest_snapshot_id: int | None = None
    oldest_snapshot_at: datetime | None = None
    newest_snapshot_at: datetime | None = None
    snapshot_count: int = 0
    changelog_count: int = 0
    oldest_changelog_id: int | None = None
    oldest_changelog_at: datetime | None = None
    tags: Mapping[str, TagFacts] = field(default_factory=dict, hash=False)
    branches: Mapping[str, BranchFacts] = field(default_factory=dict, hash=False)
    consumers: Mapping[str, ConsumerFacts] = field(default_factory=dict, hash=False)
    manifest_files: int = 0
    manifest_bytes: int = 0
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    problem: str | None = None

    @property
    def files(self) -> int:
        """Live data files."""
        return sum(bucket.files for bucket in self.buckets)

    @property
    def size_bytes(self) -> int:
        """Bytes of the live data files."""
        return sum(bucket.size_bytes for bucket in self.buckets)

    @property
    def small_files(self) -> int:
        """Live data files that are small."""
        return sum(bucket.small_files for bucket in self.buckets)

    @property
    def level0_files(self) -> int:
        """Live data files that nothing has merged by key yet; none of an append table's wait."""
        if self.kind is TableKind.APPEND:
            return 0
        return sum(bucket.level0_files for bucket in self.buckets)

    @property
    def figures(self) -> dict[str, int]:
        """What an action or a writer may change, by the names that Dagster and the JSON show.

        ``level0_files`` only where files have levels, which is in tables with a key.
        """
        keyed = {} if self.kind is TableKind.APPEND else {"level0_files": self.level0_files}
        return {
            "files": self.files,
            "bytes": self.size_bytes,
            "small_files": self.small_files,
            **keyed,
            "partitions": len({bucket.partition for bucket in self.buckets}),
            "snapshots": self.snapshot_count,
            "changelogs": self.changelog_count,
            "tags": len(self.tags),
            "manifests": self.manifest_files,
        }

    @property
    def unprotected_branches(self) -> Mapping[str, int]:
        """Branches whose tag was deleted, with the snapshot that they were made from.

        They cannot be read any more once that snapshot has expired.
        """
        tagged = {tag.snapshot_id for tag in self.tags.values()}
        return {
            name: branch.from_snapshot_id
            for name, branch in self.branches.items()
            if branch.from_snapshot_id is not None and branch.from_snapshot_id not in tagged
        }

    @property
    def write_only(self) -> bool:
        """Whether writers leave compaction to a job of its own."""
        return self.options.get("write-only", "false").lower() == "true"

    @property
    def compacted_by_writers(self) -> bool:
        """Whether writers compact it: rows that wait to be put into buckets they do not."""
        return not self.write_only and self.total_buckets != POSTPONED_BUCKETS

    @property
    def deletion_vectors(self) -> bool:
        """Whether deleted rows are marked instead of rewritten."""
        return self.options.get("deletion-vectors.enabled", "false").lower() == "true"

    @property
    def changelog_producer(self) -> str:
        """What makes the changelog that streaming readers get."""
        return self.options.get("changelog-producer", "none").lower()

    @property
    def changelog_by_compaction(self) -> bool:
        """Whether streaming readers get nothing of a row before it has been compacted."""
        return self.changelog_producer in ("lookup", "full-compaction")

    @property
    def is_marked_by_compaction(self) -> bool:
        """Whether rows are marked as deleted by whoever compacts, so that only one may.

        The marks that one sets on a file are lost if another has rewritten the file meanwhile:
        the rows come back (Paimon 1.3.1 and 2.0.0 see no conflict in it).
        """
        return self.deletion_vectors and self.kind is not TableKind.APPEND


@dataclass(frozen=True)
class StoredSums:
    """The sums of one snapshot, and by what it is known again.

    Args:
        fingerprint: of the snapshot's file: a snapshot of the same number but another history has
            another one.
        small_below_bytes: what counted as small.
        partitions: column and value of each partition by its binary row, as far as decoded: of
            many thousands only those that are new are to be decoded after a commit.
        shown: what was worked out from the sums, for as long as they stay at hand.
    """

    snapshot_id: int
    fingerprint: str
    small_below_bytes: int
    sums: Mapping[BucketKey, BucketSums] = field(hash=False)
    partitions: dict[str, PartitionText] = field(default_factory=dict, compare=False, repr=False)
    shown: tuple[tuple[BucketFacts, ...], tuple[int, ...]] | None = field(
        default=None, compare=False, repr=False
    )

    def keep_partitions(self, earlier: StoredSums) -> None:
        """Take over what was decoded of the partitions that are still there."""
        rows = {row for row, _ in self.sums}
        self.partitions.update((r, t) for r, t in earlier.partitions.items() if r in rows)


class FactStore(Protocol):
    """Remembers the sums of each table between looks, and from one process to the next."""

    def load(self, table: str) -> StoredSums | None:
        """What was saved last; None if nothing was, or if it cannot be used any more."""
        ...

    def save(self, table: str, sums: StoredSums) -> None:
        """Remember the sums in place of earlier ones."""
        ...


class InMemory:
    """A store that forgets with its process."""

    def __init__(self) -> None:
        self._sums: dict[str, StoredSums] = {}

    def load(self, table: str) -> StoredSums | None:
        """What was saved last."""
        return self._sums.get(table)

    def save(self, table: str, sums: StoredSums) -> None:
        """Remember the sums."""
        self._sums[table] = sums

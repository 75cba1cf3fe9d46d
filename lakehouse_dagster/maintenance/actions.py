"""What maintenance can do to a table, and what is known when it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from lakehouse_dagster.paimon.file_facts import PartitionText
from lakehouse_dagster.streaming.foreign_commits import ForeignWriter
from lakehouse_dagster.system_db import Lease

Partition: TypeAlias = PartitionText


class ActionKind(str, Enum):
    """One piece of maintenance work; the order is that in which a table gets them."""

    COMPACT = "compact"
    COMPACT_FULL = "full compaction"
    EXPIRE_TAGS = "tag expiry"
    EXPIRE_PARTITIONS = "partition expiry"
    EXPIRE_SNAPSHOTS = "snapshot expiry"
    EXPIRE_CHANGELOGS = "changelog expiry"
    COMPACT_MANIFESTS = "manifest compaction"
    FIND_ORPHANS = "orphan search"
    """A dry run: what a removal would take, before anything is taken."""
    REMOVE_ORPHANS = "orphan removal"


@dataclass(frozen=True)
class Action:
    """A piece of work that is due.

    Args:
        partitions: those concerned; None for the whole table.
        names: tags concerned.
        keep: the least number of newest snapshots or changelogs that stay.
        older_than: nothing younger is touched; times bound what expires, as numbers of snapshots
            move on with every commit.
        needed_from: the first snapshot that somebody still needs; it and all later ones stay.
        reason: why it is due, in one sentence with the figures.
        figures: the figures behind it, by name, as shown.
        rewrite_bytes: what it is expected to rewrite; 0 where it only deletes.
        benefit: files that a full scan need not open, or that vanish from the disk.
    """

    table: str
    kind: ActionKind
    reason: str
    partitions: tuple[Partition, ...] | None = None
    names: tuple[str, ...] = ()
    keep: int | None = None
    older_than: datetime | None = None
    needed_from: int | None = None
    figures: Mapping[str, str] = field(default_factory=dict, hash=False)
    rewrite_bytes: int = 0
    benefit: float = 0.0


def describe(action: Action) -> str:
    """An action in one line, with the figures behind it."""
    said = f"{action.table}: {action.kind.value}: {action.reason}"
    return f"{said}{in_brackets(action.figures)}"


def in_brackets(figures: Mapping[str, str]) -> str:
    """Figures as they stand behind a sentence; nothing where there are none."""
    told = ", ".join(f"{name} {value}" for name, value in figures.items())
    return f" ({told})" if told else ""


@dataclass(frozen=True)
class Holder:
    """Who still needs snapshots from one on: a consumer, or one of our jobs.

    ``snapshot_id`` is the first that it needs, and ``committed_at`` when that was committed. Where
    either is None it is not known, or the snapshot is gone already, and then nothing may expire.
    """

    kind: str
    name: str
    snapshot_id: int | None
    committed_at: datetime | None = None
    moved_at: datetime | None = None
    """When it last moved on, where that is known."""

    def __str__(self) -> str:
        at = "an unknown snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        moved = f", last moved {self.moved_at:%Y-%m-%d %H:%M} UTC" if self.moved_at else ""
        return f"{self.kind} {self.name} (needs {at}{moved})"


@dataclass(frozen=True)
class Past:
    """What became of a kind of action on a table so far."""

    done_at: datetime | None = None
    failed_at: datetime | None = None
    failures: int = 0
    """In a row, since the last success."""
    error: str | None = None
    """Why it failed last, in one line."""
    writer_restarts: int = 0
    """Of the table's writers, during all of them on record."""
    found_files: int = 0
    """By the last search for orphans."""
    found_bytes: int = 0
    older_than: datetime | None = None
    """The bound of the last search for orphans."""


@dataclass(frozen=True)
class Situation:
    """What besides the files decides: who needs what, who writes, what was done.

    Args:
        holders: who still needs old snapshots.
        protected_tags: tags on which branches stand.
        compaction_job: the streaming job that the policy declares for its compaction, if any.
        compacts_by_itself: such a job is to run now.
        foreign_compactors: who else compacts the table, where a compaction must not meet another.
        held_by: the lease of who acts on the table now; None if nobody does.
        past: what became of each kind of action.
    """

    holders: tuple[Holder, ...] = ()
    protected_tags: frozenset[str] = frozenset()
    compaction_job: str | None = None
    compacts_by_itself: bool = False
    foreign_compactors: tuple[ForeignWriter, ...] = ()
    held_by: Lease | None = None
    past: Mapping[ActionKind, Past] = field(default_factory=dict, hash=False)

    def of(self, kind: ActionKind) -> Past:
        """What became of this kind of action."""
        return self.past.get(kind, Past())


@dataclass(frozen=True)
class Blocked:
    """What cannot be done now, as somebody else acts on the table, it is damaged, or it failed.

    ``kind`` is None where nothing at all can be done; ``remedy`` then says what a person can do.
    """

    kind: ActionKind | None
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Decision:
    """What a table is due for, and what is not done though it would be due, and why.

    ``figures`` are the table's, by name, as shown where nothing is due.
    ``blocked`` is what of that ends by itself or by a person's word; ``advice`` is what a person
    could do about the table's layout.
    """

    table: str
    actions: tuple[Action, ...] = ()
    held_back: tuple[str, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    advice: tuple[str, ...] = ()
    figures: Mapping[str, str] = field(default_factory=dict, compare=False)

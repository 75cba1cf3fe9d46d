"""Who still needs old snapshots of a table: consumers, branches, and our jobs.

What a job of ours would read again stands in the restore points that its next start may choose
(``read_again.py``). Where that cannot be known, everything is kept rather than too little.

A writer needs its own newest commit. Restored, it commits once more what its restore point holds,
and Paimon leaves that out only where it finds a snapshot of the same commit user that is as new:
without one the same files are added twice, and every restart fails for the conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from lakehouse_dagster.maintenance.actions import Holder
from lakehouse_dagster.maintenance.read_again import ReadAgain, read_again
from lakehouse_dagster.maintenance.spec import ExpireSpec, TablePolicy, slack, span
from lakehouse_dagster.paimon import Snapshot, TableReader
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.commits import newest_commit
from lakehouse_dagster.streaming.runtime import Runtime

_COMMITS_LOOKED_AT = 1_000
_SKEW = timedelta(minutes=5)
"""By so much the clocks of Flink and of the place of its checkpoints may differ."""


@dataclass(frozen=True)
class Readers:
    """The jobs of ours that read tables, looked up once for a look at many tables."""

    runtime: Runtime

    def holders(self, facts: TableFacts) -> tuple[Holder, ...]:
        """Everybody who may still read an old snapshot of the table.

        Paimon itself keeps what consumers need; they are here so that it can be told who holds
        back. Tags keep their files whatever becomes of their snapshots.
        """
        table = self.runtime.catalog.open().table(facts.table)
        return (*_consumers(facts, table), *_branches(facts, table), *self._jobs(facts, table))

    def _jobs(self, facts: TableFacts, table: TableReader) -> Iterator[Holder]:
        for job in self._by_table.get(facts.table, ()):
            yield _holder("streaming job", job.name, job.tables[facts.table], facts, table)
        for job in self._of_any:
            if facts.table not in job.tables:
                yield _holder("streaming job", job.name, None, facts, table)
        for job in self._all:
            if facts.table in job.writes and job.commit_user:
                commit = _to_be_found_again(job, table)
                if commit is not None:
                    yield Holder("writer", job.name, commit.id, commit.committed_at)

    @cached_property
    def _all(self) -> tuple[ReadAgain, ...]:
        return read_again(self.runtime)

    @cached_property
    def _of_any(self) -> tuple[ReadAgain, ...]:
        return tuple(job for job in self._all if job.may_read_others)

    @cached_property
    def _by_table(self) -> dict[str, list[ReadAgain]]:
        found: dict[str, list[ReadAgain]] = {}
        for job in self._all:
            for table in job.tables:
                found.setdefault(table, []).append(job)
        return found


def _to_be_found_again(job: ReadAgain, table: TableReader) -> Snapshot | None:
    """A writer's newest commit, if it may have to start again from before that commit."""
    oldest = job.oldest
    # What a checkpoint holds is committed after it is complete.
    since = None if oldest is None else oldest.completed_at - _SKEW
    commit = newest_commit(table, job.commit_user, most=_COMMITS_LOOKED_AT, since=since)
    if commit is None or oldest is None or commit.commit_identifier >= oldest.checkpoint_id:
        return commit
    return None


def may_expire(facts: TableFacts, policy: TablePolicy, now: datetime) -> bool:
    """Whether anything can be due for expiry at all, so that it matters who needs what."""
    oldest, spec = facts.oldest_snapshot_at, policy.expire
    return _beyond(policy.changelogs, facts.changelog_count) or (
        spec is not None
        and oldest is not None
        and _beyond(spec, facts.snapshot_count)
        and oldest < now - span(spec.keep_for) - slack(spec)
    )


def _beyond(spec: ExpireSpec | None, count: int) -> bool:
    return spec is not None and count > spec.keep_at_least


def protected_tags(facts: TableFacts) -> frozenset[str]:
    """The tags that branches stand on: without them a branch cannot be read after an expiry."""
    return frozenset(tag for branch in facts.branches.values() for tag in branch.tags)


def _consumers(facts: TableFacts, table: TableReader) -> Iterator[Holder]:
    for name, consumer in sorted(facts.consumers.items()):
        yield _holder(
            "consumer", name, consumer.next_snapshot, facts, table, moved_at=consumer.modified_at
        )


def _branches(facts: TableFacts, table: TableReader) -> Iterator[Holder]:
    """Branches whose tag was deleted, as long as what they stand on is still there."""
    for name, snapshot in sorted(facts.unprotected_branches.items()):
        if snapshot >= (facts.oldest_snapshot_id or 0):
            yield _holder("branch", name, snapshot, facts, table)


def _holder(
    kind: str,
    name: str,
    needed: int | None,
    facts: TableFacts,
    table: TableReader,
    moved_at: datetime | None = None,
) -> Holder:
    if needed is None or needed > (facts.snapshot_id or 0):
        return Holder(kind, name, needed, moved_at=moved_at)
    snapshot = table.snapshot(needed)
    at = None if snapshot is None else snapshot.committed_at
    return Holder(kind, name, needed, at, moved_at)

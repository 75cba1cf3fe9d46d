"""Who still needs old snapshots of a table: consumers, branches, and our jobs.

What a job of ours would read again stands in the restore points that its next start may choose
(``read_again.py``). Where that cannot be known, everything is kept rather than too little.

A writer needs its own newest commit. Restored, it commits once more what its restore point holds,
and Paimon leaves that out only where it finds a snapshot of the same commit user that is as new:
without one the same files are added twice, and every restart fails for the conflict. The commits
of adopted jobs bear no mark: all that may be theirs are kept. Of writers that are not ours nobody
knows the restore points: theirs are kept for a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice

from lakehouse_dagster.maintenance.actions import Holder
from lakehouse_dagster.maintenance.read_again import ReadAgain, read_again
from lakehouse_dagster.maintenance.spec import ExpireSpec, TablePolicy, slack, span
from lakehouse_dagster.maintenance.strangers import FOREIGN_WRITERS_COUNT_FOR, lately_writing
from lakehouse_dagster.paimon import Snapshot, TableReader
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.foreign_commits import foreign_writers, marks_of_ours
from lakehouse_dagster.streaming.runtime import Runtime

_COMMITS_LOOKED_AT = 1_000
_SKEW = timedelta(minutes=5)
"""By so much the clocks of Flink and of the place of its checkpoints may differ."""


@dataclass(frozen=True)
class Readers:
    """The jobs of ours that read tables, looked up once for a look at many tables."""

    runtime: Runtime

    def holders(self, facts: TableFacts, policy: TablePolicy) -> tuple[Holder, ...]:
        """Everybody who may still read an old snapshot of the table.

        Paimon itself keeps what consumers need; they are here so that it can be told who holds
        back. Tags keep their files whatever becomes of their snapshots.
        """
        table = self.runtime.catalog.open().table(facts.table)
        ours = tuple(self._jobs(facts, table))
        foreign = self._foreign(facts, policy, {holder.snapshot_id for holder in ours})
        return (*_consumers(facts, table), *_branches(facts, table), *ours, *foreign)

    def _jobs(self, facts: TableFacts, table: TableReader) -> Iterator[Holder]:
        for job in self._by_table.get(facts.table, ()):
            yield _holder("streaming job", job.name, job.tables[facts.table], facts, table)
        for job in self._of_any:
            if facts.table not in job.tables:
                yield _holder("streaming job", job.name, None, facts, table)
        for job in self._all:
            if facts.table in job.writes:
                for commit in self._to_be_found_again(job, facts, table):
                    yield Holder("writer", job.name, commit.id, commit.committed_at)

    def _foreign(
        self, facts: TableFacts, policy: TablePolicy, held: Collection[int | None]
    ) -> Iterator[Holder]:
        """Writers that are not ours, where the policy would let go of their newest commit."""
        if policy.expire is None or span(policy.expire.keep_for) >= FOREIGN_WRITERS_COUNT_FOR:
            return
        for writer in lately_writing(self.runtime, facts, most=_COMMITS_LOOKED_AT):
            newest = writer.newest
            if newest.id not in held:
                yield Holder("foreign writer", writer.commit_user, newest.id, newest.committed_at)

    def _to_be_found_again(
        self, job: ReadAgain, facts: TableFacts, table: TableReader
    ) -> Iterator[Snapshot]:
        """A writer's newest commit, if it may have to start again from before that commit.

        Of an adopted one the newest of every user that may be its own.
        """
        oldest = job.oldest
        # What a checkpoint holds is committed after it is complete.
        since = None if oldest is None else oldest.completed_at - _SKEW
        first = facts.oldest_snapshot_id or 1
        newest = table.newest_first(_COMMITS_LOOKED_AT, oldest=first, since=since)
        if job.commit_user:
            own = (s for s in newest if s.commit_user.startswith(job.commit_user))
            commits = list(islice(own, 1))
        else:
            commits = [writer.newest for writer in foreign_writers(newest, self._marks)]
        for commit in commits:
            if oldest is None or commit.commit_identifier >= oldest.checkpoint_id:
                yield commit

    @cached_property
    def _marks(self) -> tuple[str, ...]:
        return marks_of_ours(self.runtime)

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

"""What a table is due for: a function from facts to actions, each with its reason.

Nothing here asks anybody anything: facts, policy, situation and time come in, a decision goes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.maintenance.actions import (
    Action,
    ActionKind,
    Blocked,
    Decision,
    Partition,
    Situation,
)
from lakehouse_dagster.maintenance.advice import advice_on
from lakehouse_dagster.maintenance.case import Case, partition_in_words
from lakehouse_dagster.maintenance.decide_expiry import DueToGo
from lakehouse_dagster.maintenance.spec import Compaction, CompactSpec, TablePolicy
from lakehouse_dagster.paimon.file_facts import (
    POSTPONED_BUCKETS,
    BucketFacts,
    TableFacts,
    TableKind,
    target_file_bytes,
)
from lakehouse_dagster.sizes import size_bytes
from lakehouse_dagster.system_db.records import wait_for_lease

_NOT_BESIDE = (
    "{kind} is not done beside {whom}: rows that they mark as deleted meanwhile (deletion vectors) "
    "would come back. {remedy}"
)
_Wants: TypeAlias = Callable[[BucketFacts, CompactSpec], str | None]
"""Whether a bucket is due, and why."""


def decide(facts: TableFacts, policy: TablePolicy, situation: Situation, now: datetime) -> Decision:
    """Tell what is due.

    Args:
        facts: of the table's files and snapshots.
        policy: of the table.
        situation: who needs, writes and did what.
        now: the time, aware.
    """
    if facts.problem is not None:
        reason = f"Nothing is done to it: {facts.problem}"
        return Decision(facts.table, (), (reason,), (Blocked(None, reason),))
    if situation.held_by is not None:
        reason = f"Another action on it is under way: {situation.held_by.holder}."
        at_a_stand = Blocked(None, reason, wait_for_lease(situation.held_by.expires_at))
        return Decision(facts.table, (), (reason,), (at_a_stand,), figures=figures_of(facts, now))
    if facts.snapshot_id is None:
        return Decision(facts.table)
    case = Case(facts, policy, situation, now)
    going = DueToGo(case)
    merged = _DueToMerge(case, going.past_partitions).due()
    actions = (*([merged] if merged else []), *going.due())
    held_back, blocked = tuple(case.held_back), tuple(case.blocked)
    advice = advice_on(facts, situation)
    return Decision(facts.table, actions, held_back, blocked, advice, figures_of(facts, now))


def matters_who_compacts(
    facts: TableFacts, policy: TablePolicy, situation: Situation, now: datetime
) -> bool:
    """Whether a compaction would be due that must not meet another one, whosever it is."""
    if facts.problem is not None:
        return False
    case = Case(facts, policy, situation, now)
    return _DueToMerge(case, frozenset()).marks_at_stake() is not None


def figures_of(facts: TableFacts, now: datetime) -> dict[str, str]:
    """What decides on a table, as people read it."""
    oldest = facts.oldest_snapshot_at
    age = "" if oldest is None else f", the oldest {in_words((now - oldest).total_seconds())} old"
    merged = {"level 0": str(facts.level0_files)} if facts.kind is not TableKind.APPEND else {}
    changelogs = {"changelogs": str(facts.changelog_count)} if facts.changelog_count else {}
    return {
        "files": str(facts.files),
        "bytes": str(facts.size_bytes),
        **merged,
        "small files": str(facts.small_files),
        "snapshots": f"{facts.snapshot_count}{age}",
        **changelogs,
        "manifests": str(facts.manifest_files),
    }


@dataclass(frozen=True)
class _DueToMerge:
    """``past``: partitions that are due to go, and not worth being rewritten before that."""

    case: Case
    past: frozenset[Partition]

    @property
    def facts(self) -> TableFacts:
        return self.case.facts

    def due(self) -> Action | None:
        spec = self._spec
        if spec is None:
            return None
        kind, others = self.marks_at_stake(), self.case.situation.foreign_compactors
        if self._is_left_to_writers or (kind is not None and others):
            if kind is not None:
                self.case.held_back.append(self._why_not(kind))
            return None
        full = self._chosen(spec, ActionKind.COMPACT_FULL, self._wants_full)
        return full or self._chosen(spec, ActionKind.COMPACT, self._wants_minor)

    @property
    def _spec(self) -> CompactSpec | None:
        """When it is due; None if it is not for us to compact."""
        policy = self.case.policy
        if policy.compaction is Compaction.OFF or self._declared_otherwise:
            return None
        return None if self.case.situation.compacts_by_itself else policy.compact

    def marks_at_stake(self) -> ActionKind | None:
        """The compaction that would be due, and by which marks of another one would be lost."""
        spec = self._spec
        if spec is None or not self.facts.is_marked_by_compaction:
            return None
        if any(self._wants_full(bucket, spec) for bucket in self.facts.buckets):
            return ActionKind.COMPACT_FULL
        # Writers merge what is new by themselves.
        minor = not self._is_left_to_writers and any(
            self._wants_minor(bucket, spec) for bucket in self.facts.buckets
        )
        return ActionKind.COMPACT if minor else None

    def _why_not(self, kind: ActionKind) -> str:
        named = "; ".join(map(str, self.case.situation.foreign_compactors))
        if self._is_left_to_writers:
            whom = "writers that compact the table themselves"
            named = f", such as a foreign one ({named})" if named else ""
            remedy = "Give it a compaction job of its own (compaction: dedicated)."
        else:
            whom = "foreign writers that compact the table though it is write-only"
            named = f" ({named})"
            remedy = "Stop or restart them: they began before it was."
        return _NOT_BESIDE.format(kind=kind.value, whom=f"{whom}{named}", remedy=remedy)

    def _chosen(self, spec: CompactSpec, kind: ActionKind, wants: _Wants) -> Action | None:
        due = [
            (bucket, reason)
            for bucket in self.facts.buckets
            if (reason := wants(bucket, spec)) is not None and bucket.partition not in self.past
        ]
        if not due or not self.case.may_begin(kind, spec):
            return None
        partitions = _worst_first(bucket for bucket, _ in due)
        chosen = partitions[: spec.partitions_a_run]
        them = frozenset(chosen)
        concerned = [b for b in self.facts.buckets if b.partition in them]
        if kind is ActionKind.COMPACT:
            rewrite = sum(
                max(b.level0_bytes if self._keyed else 0, b.small_bytes) for b in concerned
            )
        else:
            rewrite = sum(b.size_bytes for b in concerned)
        reason = due[0][1] if len(due) == 1 else f"{due[0][1]}; so do {len(due) - 1} buckets more"
        if len(partitions) > len(chosen):
            reason += f"; {len(partitions) - len(chosen)} partitions wait for the next run"
        return Action(
            self.facts.table,
            kind,
            f"{reason}.",
            partitions=tuple(chosen) if self.facts.partition_keys else None,
            figures={
                "buckets due": str(len(due)),
                "files": str(sum(b.files for b in concerned)),
                "bytes": str(sum(b.size_bytes for b in concerned)),
                "bytes to rewrite": str(rewrite),
            },
            rewrite_bytes=rewrite,
            benefit=sum(b.files - _files_after(b, self._target_file_bytes) for b in concerned),
        )

    def _wants_full(self, bucket: BucketFacts, spec: CompactSpec) -> str | None:
        if not self._keyed or bucket.bucket == POSTPONED_BUCKETS:
            return None
        unsettled = bucket.size_bytes - bucket.settled_bytes
        if bucket.levels > 1 and unsettled >= max(
            spec.unsettled_share * bucket.size_bytes, size_bytes(spec.unsettled_size)
        ):
            return (
                f"{_place(bucket)} has {unsettled / bucket.size_bytes:.0%} of "
                f"{bucket.size_bytes} bytes outside its highest level"
            )
        if bucket.records and bucket.deleted_records >= spec.deleted_share * bucket.records:
            return (
                f"{_place(bucket)} has {bucket.deleted_records} of {bucket.records} rows marked "
                "as deleted"
            )
        return None

    def _wants_minor(self, bucket: BucketFacts, spec: CompactSpec) -> str | None:
        if bucket.bucket == POSTPONED_BUCKETS:
            return f"{_place(bucket)} has {bucket.files} files that no reader sees yet"
        if self._keyed:
            if bucket.level0_files > max(spec.level0_files, self._compaction_trigger):
                return f"{_place(bucket)} has {bucket.level0_files} unmerged files"
            return None
        if (
            bucket.small_files >= max(spec.small_files, self._fewest_files)
            and bucket.small_files >= spec.small_share * bucket.files
            and self._is_worth_it(bucket, spec)
        ):
            return f"{_place(bucket)} has {bucket.small_files} small files of {bucket.files}"
        return None

    def _is_worth_it(self, bucket: BucketFacts, spec: CompactSpec) -> bool:
        """Whether merging makes whole files, or rewrites little for each file that vanishes.

        Else the rest of earlier merges, still small, would be written again for every few files.
        """
        limit = bucket.small_files * size_bytes(spec.size_a_small_file)
        return bucket.small_bytes <= limit or bucket.small_bytes >= self._target_file_bytes

    @property
    def _is_left_to_writers(self) -> bool:
        """Whether writers compact it themselves, and would lose marks against a compaction."""
        return self.facts.is_marked_by_compaction and self.facts.compacted_by_writers

    @property
    def _declared_otherwise(self) -> bool:
        """Whether a job of its own is to compact it, though none may do so yet or any more.

        Its writers do, or a person stopped that job: a batch compaction is not what was declared.
        """
        declared = self.case.situation.compaction_job is not None
        return declared and self.facts.total_buckets != POSTPONED_BUCKETS

    @property
    def _keyed(self) -> bool:
        return self.facts.kind is not TableKind.APPEND

    @property
    def _compaction_trigger(self) -> int:
        """Below so many sorted runs a minor compaction does nothing."""
        return self._number("num-sorted-run.compaction-trigger", 5)

    @property
    def _fewest_files(self) -> int:
        """Fewer small files than this Paimon does not merge."""
        return self._number("compaction.min.file-num", 5)

    def _number(self, option: str, default: int) -> int:
        written = self.facts.options.get(option, "")
        return int(written) if written.isdigit() else default

    @property
    def _target_file_bytes(self) -> int:
        return target_file_bytes(self.facts.options, self.facts.kind)


def _worst_first(buckets: Iterable[BucketFacts]) -> list[Partition]:
    """The partitions of these buckets; those with the most files first."""
    files: dict[Partition, int] = {}
    for bucket in buckets:
        files[bucket.partition] = files.get(bucket.partition, 0) + bucket.files
    return sorted(files, key=lambda partition: (-files[partition], str(partition)))


def _files_after(bucket: BucketFacts, target_file_bytes: int) -> int:
    return min(bucket.files, max(1, math.ceil(bucket.size_bytes / target_file_bytes)))


def _place(bucket: BucketFacts) -> str:
    where = partition_in_words(bucket.partition)
    return f"{where}, bucket {bucket.bucket}" if where else f"bucket {bucket.bucket}"

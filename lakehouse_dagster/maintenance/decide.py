"""What a table is due for: a function from facts to actions, each with its reason.

Nothing here asks anybody anything: facts, policy, situation and time come in, a decision goes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import TypeAlias

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.maintenance.actions import (
    Action,
    ActionKind,
    Decision,
    Holder,
    Partition,
    Situation,
)
from lakehouse_dagster.maintenance.spec import (
    Compaction,
    CompactSpec,
    ExpireSpec,
    ManifestSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
    size_bytes,
    span,
    window_of,
)
from lakehouse_dagster.paimon.file_facts import (
    POSTPONED_BUCKETS,
    BucketFacts,
    TableFacts,
    TableKind,
)

_Wants: TypeAlias = Callable[[BucketFacts, CompactSpec], str | None]
"""Whether a bucket is due, and why."""

_TARGET_FILE_SIZE = {TableKind.APPEND: 256 * 1024**2}
_TARGET_FILE_SIZE_WITH_KEY = 128 * 1024**2
_LONGEST_BACKOFF = timedelta(hours=6)
_FIRST_BACKOFF = timedelta(minutes=5)
_BETWEEN_SEARCH_AND_REMOVAL = timedelta(days=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
"""What is needed is kept from so much earlier on: whoever committed it has a clock of its own."""


def decide(facts: TableFacts, policy: TablePolicy, situation: Situation, now: datetime) -> Decision:
    """Tell what is due.

    Args:
        facts: of the table's files and snapshots.
        policy: of the table.
        situation: who needs, writes and did what.
        now: the time, aware.
    """
    if facts.problem is not None:
        return Decision(facts.table, held_back=(f"Nothing is done to it: {facts.problem}",))
    if situation.running:
        return Decision(facts.table, held_back=("Another action on it is under way.",))
    if facts.snapshot_id is None:
        return Decision(facts.table)
    decider = _Decider(facts, policy, situation, now)
    actions = tuple(decider.due())
    return Decision(facts.table, actions, tuple(decider.held_back))


class _Decider:
    def __init__(
        self, facts: TableFacts, policy: TablePolicy, situation: Situation, now: datetime
    ) -> None:
        self.facts = facts
        self.policy = policy
        self.situation = situation
        self.now = now
        self.held_back: list[str] = []

    def due(self) -> Iterator[Action]:
        policy = self.policy
        if policy.compact is not None and policy.compaction is not Compaction.OFF:
            yield from self._compaction(policy.compact)
        if policy.tags is not None:
            yield from self._tags(policy.tags)
        if policy.partitions is not None:
            yield from self._partitions(policy.partitions)
        if policy.expire is not None:
            yield from self._snapshots(policy.expire)
        if policy.changelogs is not None:
            yield from self._changelogs(policy.changelogs)
        if policy.manifests is not None:
            yield from self._manifests(policy.manifests)
        if policy.orphans is not None:
            yield from self._orphans(policy.orphans)

    # compaction

    def _compaction(self, spec: CompactSpec) -> Iterator[Action]:
        if self.situation.compacts_by_itself:
            return
        full = self._chosen(spec, ActionKind.COMPACT_FULL, self._wants_full)
        if full is not None:
            yield full
            return
        minor = self._chosen(spec, ActionKind.COMPACT, self._wants_minor)
        if minor is not None:
            yield minor

    def _chosen(self, spec: CompactSpec, kind: ActionKind, wants: _Wants) -> Action | None:
        due = [
            (bucket, reason)
            for bucket in self.facts.buckets
            if (reason := wants(bucket, spec)) is not None
        ]
        if not due or not self._may_begin(kind, spec):
            return None
        partitions = _worst_first(bucket for bucket, _ in due)
        chosen = partitions[: spec.partitions_a_run]
        concerned = [b for b in self.facts.buckets if b.partition in set(chosen)]
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
            bucket.small_files >= spec.small_files
            and bucket.small_files >= spec.small_share * bucket.files
        ):
            return f"{_place(bucket)} has {bucket.small_files} small files of {bucket.files}"
        return None

    # expiry

    def _snapshots(self, spec: ExpireSpec) -> Iterator[Action]:
        facts = self.facts
        if facts.snapshot_count <= spec.keep_at_least or facts.oldest_snapshot_at is None:
            return
        older_than = self.now - span(spec.keep_for)
        if facts.oldest_snapshot_at >= older_than:
            return
        holding = [h for h in self.situation.holders if self._holds(h, older_than)]
        if holding:
            held_from = min(h.committed_at or facts.oldest_snapshot_at for h in holding)
            older_than = held_from - _CLOCKS_DIFFER
            self.held_back.append(f"Old snapshots are kept for {'; '.join(map(str, holding))}.")
        if facts.oldest_snapshot_at >= older_than:
            return
        if not self._may_begin(ActionKind.EXPIRE_SNAPSHOTS, spec):
            return
        age = in_words((self.now - facts.oldest_snapshot_at).total_seconds())
        yield Action(
            facts.table,
            ActionKind.EXPIRE_SNAPSHOTS,
            f"{facts.snapshot_count} snapshots, the oldest {age} old.",
            keep=spec.keep_at_least,
            older_than=older_than,
            figures={
                "snapshots": str(facts.snapshot_count),
                "keep at least": str(spec.keep_at_least),
                "older than": f"{older_than:%Y-%m-%d %H:%M:%S} UTC",
            },
            benefit=float(facts.snapshot_count - spec.keep_at_least),
        )

    def _holds(self, holder: Holder, older_than: datetime) -> bool:
        """Whether something that it needs would go."""
        if holder.snapshot_id is None:
            return True
        if holder.snapshot_id > (self.facts.snapshot_id or 0):
            return False
        return holder.committed_at is None or holder.committed_at <= older_than + _CLOCKS_DIFFER

    def _changelogs(self, spec: ExpireSpec) -> Iterator[Action]:
        facts = self.facts
        if facts.changelog_count <= spec.keep_at_least or facts.oldest_changelog_id is None:
            return
        keep = spec.keep_at_least
        newest = facts.oldest_changelog_id + facts.changelog_count - 1
        for holder in self.situation.holders:
            needed = holder.snapshot_id
            if needed is None or needed <= newest:
                keep = max(keep, newest - max(needed or 0, facts.oldest_changelog_id) + 1)
        if keep >= facts.changelog_count:
            self.held_back.append("All changelogs are still needed.")
            return
        if not self._may_begin(ActionKind.EXPIRE_CHANGELOGS, spec):
            return
        yield Action(
            facts.table,
            ActionKind.EXPIRE_CHANGELOGS,
            f"{facts.changelog_count} changelogs beside {facts.snapshot_count} snapshots.",
            keep=keep,
            older_than=self.now - span(spec.keep_for),
            figures={"changelogs": str(facts.changelog_count), "keep": str(keep)},
            benefit=float(facts.changelog_count - keep),
        )

    def _partitions(self, spec: PartitionExpirySpec) -> Iterator[Action]:
        column = spec.column or next(iter(self.facts.partition_keys), None)
        if column not in self.facts.partition_keys:
            self.held_back.append(
                f"Partitions cannot expire: {column or 'the table'} is no partition column."
            )
            return
        past: list[tuple[datetime, Partition]] = []
        unread: list[str] = []
        bound = self.now - span(spec.keep_for)
        for partition in sorted({b.partition for b in self.facts.buckets}, key=str):
            at = _time_of(dict(partition)[column], spec.format)
            if at is None:
                unread.append(_in_words(partition))
            elif at < bound:
                past.append((at, partition))
        if unread:
            self.held_back.append(
                f"{len(unread)} partitions stay, as {column} is not of the format {spec.format}: "
                f"{', '.join(unread[:10])}."
            )
        if not past or not self._may_begin(ActionKind.EXPIRE_PARTITIONS, spec):
            return
        oldest_first = sorted(past, key=lambda dated: dated[0])
        chosen = tuple(partition for _, partition in oldest_first[: spec.partitions_a_run])
        files = sum(b.files for b in self.facts.buckets if b.partition in set(chosen))
        yield Action(
            self.facts.table,
            ActionKind.EXPIRE_PARTITIONS,
            f"{len(past)} partitions are older than {_in_days(spec.keep_for)}"
            + (f"; the oldest {len(chosen)} go now." if len(past) > len(chosen) else "."),
            partitions=chosen,
            older_than=bound,
            figures={"partitions": str(len(past)), "files": str(files)},
            benefit=float(files),
        )

    def _tags(self, spec: TagSpec) -> Iterator[Action]:
        bound = self.now - span(spec.keep_for)
        old = [
            name
            for name, tag in sorted(self.facts.tags.items())
            if fnmatchcase(name, spec.names)
            and tag.created_at is not None
            and tag.created_at < bound
        ]
        kept = [name for name in old if name in self.situation.protected_tags]
        if kept:
            self.held_back.append(f"Tags stay, as branches stand on them: {', '.join(kept)}.")
        names = tuple(name for name in old if name not in self.situation.protected_tags)
        if names and self._may_begin(ActionKind.EXPIRE_TAGS, None):
            yield Action(
                self.facts.table,
                ActionKind.EXPIRE_TAGS,
                f"{len(names)} tags are older than {_in_days(spec.keep_for)}.",
                names=names,
                figures={"tags": str(len(names))},
                benefit=float(len(names)),
            )

    # what lies about

    def _manifests(self, spec: ManifestSpec) -> Iterator[Action]:
        count = self.facts.manifest_files
        if count > spec.files and self._may_begin(ActionKind.COMPACT_MANIFESTS, None):
            yield Action(
                self.facts.table,
                ActionKind.COMPACT_MANIFESTS,
                f"The newest snapshot has {count} manifests.",
                figures={"manifests": str(count)},
                rewrite_bytes=self.facts.manifest_bytes,
                benefit=float(count - 1),
            )

    def _orphans(self, spec: OrphanSpec) -> Iterator[Action]:
        """First a search; a day later, if it found no more than may go, the removal of these."""
        search = self.situation.of(ActionKind.FIND_ORPHANS)
        removed_at = self.situation.of(ActionKind.REMOVE_ORPHANS).done_at
        if search.done_at is None or self.now - search.done_at >= span(spec.every):
            if self._may_begin(ActionKind.FIND_ORPHANS, None):
                yield Action(
                    self.facts.table,
                    ActionKind.FIND_ORPHANS,
                    f"No search for orphans in the last {_in_days(spec.every)}.",
                    older_than=self.now - span(spec.older_than),
                )
            return
        if not search.found_files or (removed_at is not None and removed_at >= search.done_at):
            return
        found = f"{search.found_files} files ({search.found_bytes} bytes) that no snapshot knows"
        too_many = search.found_files > spec.most_files
        if too_many or search.found_bytes > size_bytes(spec.most_size):
            self.held_back.append(
                f"{found} are more than may be removed without a person "
                f"({spec.most_files} files, {spec.most_size} bytes)."
            )
            return
        old_enough = self.now - search.done_at >= _BETWEEN_SEARCH_AND_REMOVAL
        if old_enough and self._may_begin(ActionKind.REMOVE_ORPHANS, None):
            yield Action(
                self.facts.table,
                ActionKind.REMOVE_ORPHANS,
                f"{found}, found at {search.done_at:%Y-%m-%d %H:%M} UTC.",
                older_than=search.older_than,
                figures={"files": str(search.found_files), "bytes": str(search.found_bytes)},
                benefit=float(search.found_files),
            )

    # whether now

    def _may_begin(
        self, kind: ActionKind, spec: CompactSpec | ExpireSpec | PartitionExpirySpec | None
    ) -> bool:
        past = self.situation.of(kind)
        if past.failed_at is not None and self.now < past.failed_at + _backoff(past.failures):
            again = past.failed_at + _backoff(past.failures)
            self.held_back.append(
                f"{kind.value} failed {past.failures} times in a row; tried again after "
                f"{again:%Y-%m-%d %H:%M} UTC."
            )
            return False
        window = None if spec is None else window_of(spec)
        if window is not None and not window.is_open(self.now):
            self.held_back.append(f"{kind.value} is due and waits for its window ({window.cron}).")
            return False
        return True

    @property
    def _keyed(self) -> bool:
        return self.facts.kind is not TableKind.APPEND

    @property
    def _compaction_trigger(self) -> int:
        """Below so many sorted runs a minor compaction does nothing."""
        written = self.facts.options.get("num-sorted-run.compaction-trigger", "")
        return int(written) if written.isdigit() else 5

    @property
    def _target_file_bytes(self) -> int:
        written = self.facts.options.get("target-file-size")
        if written is not None:
            return size_bytes(written, what="target-file-size")
        return _TARGET_FILE_SIZE.get(self.facts.kind, _TARGET_FILE_SIZE_WITH_KEY)


def _worst_first(buckets: Iterable[BucketFacts]) -> list[Partition]:
    """The partitions of these buckets; those with the most files first."""
    files: dict[Partition, int] = {}
    for bucket in buckets:
        files[bucket.partition] = files.get(bucket.partition, 0) + bucket.files
    return sorted(files, key=lambda partition: (-files[partition], str(partition)))


def _files_after(bucket: BucketFacts, target_file_bytes: int) -> int:
    return min(bucket.files, max(1, math.ceil(bucket.size_bytes / target_file_bytes)))


def _backoff(failures: int) -> timedelta:
    doubled: int = 2 ** min(max(failures - 1, 0), 20)
    return min(_FIRST_BACKOFF * doubled, _LONGEST_BACKOFF)


def _in_days(setting: timedelta | str) -> str:
    return in_words(span(setting).total_seconds())


def _time_of(value: str | None, written: str) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.strptime(value, written).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _place(bucket: BucketFacts) -> str:
    where = _in_words(bucket.partition)
    return f"{where}, bucket {bucket.bucket}" if where else f"bucket {bucket.bucket}"


def _in_words(partition: Sequence[tuple[str, str | None]]) -> str:
    return "/".join(f"{c}={'NULL' if v is None else v}" for c, v in partition)

"""What of a table's history is due to go: snapshots, changelogs, partitions, tags, orphans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.listing import some
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Holder, Partition
from lakehouse_dagster.maintenance.calls import is_plain
from lakehouse_dagster.maintenance.case import Case, partition_in_words
from lakehouse_dagster.maintenance.changelogs import kept_longer
from lakehouse_dagster.maintenance.partition_times import time_of
from lakehouse_dagster.maintenance.spec import (
    ExpireSpec,
    ManifestSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TagSpec,
    slack,
    span,
)
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.sizes import bytes_of, size_bytes

TAGS_A_RUN = 100
"""Each tag takes a CALL of its own; the others wait for the next run."""
_BETWEEN_SEARCH_AND_REMOVAL = timedelta(days=1)
_A_SEARCH_COUNTS = timedelta(days=2)
"""What was found and waits for its removal is not searched for anew before."""


@dataclass(frozen=True)
class _Dated:
    """Partitions by what their values say of their time: ``past`` ones, the oldest first.

    ``all_past``: these as well, where no younger one is beside them; then none goes.
    """

    past: tuple[Partition, ...] = ()
    all_past: tuple[Partition, ...] = ()
    unread: tuple[Partition, ...] = ()
    awkward: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class DueToGo:
    """What is due of one table; what is held back is noted in the case."""

    case: Case

    @property
    def facts(self) -> TableFacts:
        """Of the table."""
        return self.case.facts

    def due(self) -> Iterator[Action]:
        """In the order in which it is done."""
        policy = self.case.policy
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

    def _snapshots(self, spec: ExpireSpec) -> Iterator[Action]:
        facts = self.facts
        if facts.snapshot_count <= spec.keep_at_least or facts.oldest_snapshot_at is None:
            return
        older_than = self.case.now - span(spec.keep_for)
        if facts.oldest_snapshot_at >= older_than - slack(spec):
            return
        if longer := kept_longer(facts.options):
            # A commit of a writer makes changelogs of the snapshots that it lets go; a CALL that
            # lets them go deletes what was changed along with them.
            self.case.held_back.append(
                "Old snapshots are left to the table's writers and its snapshot.* options: "
                "Paimon's procedure would take the changelogs with them that "
                f"{longer} keeps longer."
            )
            return
        holding = [h for h in self.case.situation.holders if self._holds(h, older_than)]
        if holding:
            older_than = min(h.committed_at or facts.oldest_snapshot_at for h in holding)
            self.case.held_back.append(
                f"Old snapshots are kept for {some([*map(str, holding)], '; ')}."
            )
        if facts.oldest_snapshot_at >= older_than - slack(spec):
            return
        if not self.case.may_begin(ActionKind.EXPIRE_SNAPSHOTS, spec):
            return
        age = in_words((self.case.now - facts.oldest_snapshot_at).total_seconds())
        yield Action(
            facts.table,
            ActionKind.EXPIRE_SNAPSHOTS,
            f"{facts.snapshot_count} snapshots, the oldest {age} old.",
            keep=spec.keep_at_least,
            older_than=older_than,
            needed_from=_first_needed(holding),
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
        return holder.committed_at is None or holder.committed_at < older_than

    def _changelogs(self, spec: ExpireSpec) -> Iterator[Action]:
        facts = self.facts
        if facts.changelog_count <= spec.keep_at_least or facts.oldest_changelog_id is None:
            return
        keep, bound = spec.keep_at_least, self.case.now - span(spec.keep_for)
        if facts.oldest_changelog_at is None or facts.oldest_changelog_at >= bound - slack(spec):
            return
        newest = facts.oldest_changelog_id + facts.changelog_count - 1
        holding = [
            holder
            for holder in self.case.situation.holders
            if holder.snapshot_id is None or holder.snapshot_id <= newest - keep
        ]
        if holding:
            self.case.held_back.append(
                f"Old changelogs are kept for {some([*map(str, holding)], '; ')}."
            )
        # As with snapshots, it is worth its while from a tenth on.
        least = facts.oldest_changelog_id + facts.changelog_count / 10
        if any((holder.snapshot_id or 0) < least for holder in holding):
            return
        if not self.case.may_begin(ActionKind.EXPIRE_CHANGELOGS, spec):
            return
        yield Action(
            facts.table,
            ActionKind.EXPIRE_CHANGELOGS,
            f"{facts.changelog_count} changelogs beside {facts.snapshot_count} snapshots.",
            keep=keep,
            older_than=bound,
            needed_from=_first_needed(holding),
            figures={"changelogs": str(facts.changelog_count), "keep": str(keep)},
            benefit=float(facts.changelog_count - keep),
        )

    def _partitions(self, spec: PartitionExpirySpec) -> Iterator[Action]:
        column = spec.column or next(iter(self.facts.partition_keys), None)
        if column not in self.facts.partition_keys:
            self.case.held_back.append(
                "Partitions cannot expire: "
                + (f"{column} is no partition column." if column else "the table has none.")
            )
            return
        dated = self._dated
        if dated.unread:
            self.case.held_back.append(
                f"{len(dated.unread)} partitions stay, as {column} is not of the format "
                f"{spec.format}: {_some(dated.unread)}."
            )
        if dated.awkward:
            # As an argument of the procedure it could be read as another partition.
            self.case.held_back.append(
                f"{len(dated.awkward)} partitions stay, as a comma, quotation mark or '=' stands "
                f"in their values: {_some(dated.awkward)}."
            )
        if dated.all_past:
            self.case.held_back.append(
                f"{len(dated.all_past)} partitions are older than {_in_days(spec.keep_for)}, and "
                f"none is younger, so all of them stay: {_some(dated.all_past)}. Drop them by hand "
                "if they are to go; else raise partitions.keep_for."
            )
        past = dated.past
        if not past or not self.case.may_begin(ActionKind.EXPIRE_PARTITIONS, spec):
            return
        chosen = past[: spec.partitions_a_run]
        them = frozenset(chosen)
        buckets = [b for b in self.facts.buckets if b.partition in them]
        files = sum(b.files for b in buckets)
        rows = sum(b.records - b.deleted_records for b in buckets)
        yield Action(
            self.facts.table,
            ActionKind.EXPIRE_PARTITIONS,
            f"{len(past)} partitions are older than {_in_days(spec.keep_for)}"
            + (f"; the oldest {len(chosen)} go now" if len(past) > len(chosen) else "")
            + f": {_some(chosen)}.",
            partitions=chosen,
            older_than=self.case.now - span(spec.keep_for),
            figures={"partitions": str(len(past)), "rows": str(rows), "files": str(files)},
            benefit=float(files),
        )

    @property
    def past_partitions(self) -> frozenset[Partition]:
        """All whose time is over and that can be let go, now or in later runs."""
        return frozenset(self._dated.past)

    @cached_property
    def _dated(self) -> _Dated:
        spec = self.case.policy.partitions
        keys = self.facts.partition_keys
        column = None if spec is None else spec.column or next(iter(keys), None)
        if spec is None or column not in keys:
            return _Dated()
        place = keys.index(column)
        bound = self.case.now - span(spec.keep_for)
        past: list[tuple[datetime, Partition]] = []
        unread: list[Partition] = []
        awkward: list[Partition] = []
        any_young = False
        for partition in {b.partition for b in self.facts.buckets}:
            at = time_of(partition[place][1], spec.format)
            if at is None:
                unread.append(partition)
            elif at >= bound:
                any_young = True
            elif is_plain(partition):
                past.append((at, partition))
            else:
                awkward.append(partition)
        past.sort(key=lambda one: (one[0], str(one[1])))
        oldest_first = tuple(partition for _, partition in past)
        return _Dated(
            oldest_first if any_young else (),
            () if any_young else oldest_first,
            tuple(sorted(unread, key=str)),
            tuple(sorted(awkward, key=str)),
        )

    def _tags(self, spec: TagSpec) -> Iterator[Action]:
        bound = self.case.now - span(spec.keep_for)
        old = [
            name
            for name, tag in sorted(self.facts.tags.items())
            if fnmatchcase(name, spec.names)
            and tag.created_at is not None
            and tag.created_at < bound
        ]
        kept = [name for name in old if name in self.case.situation.protected_tags]
        if kept:
            self.case.held_back.append(f"Tags stay, as branches stand on them: {some(kept)}.")
        going = [name for name in old if name not in self.case.situation.protected_tags]
        names = tuple(going[:TAGS_A_RUN])
        if names and self.case.may_begin(ActionKind.EXPIRE_TAGS, None):
            yield Action(
                self.facts.table,
                ActionKind.EXPIRE_TAGS,
                f"{len(going)} tags are older than {_in_days(spec.keep_for)}"
                + (f"; {len(names)} go now." if len(going) > len(names) else "."),
                names=names,
                figures={"tags": str(len(going))},
                benefit=float(len(names)),
            )

    # what lies about

    def _manifests(self, spec: ManifestSpec) -> Iterator[Action]:
        count = self.facts.manifest_files
        # Those of a very large table are many, whole as they are, also right after a merge.
        target = bytes_of(self.facts.options.get("manifest.target-file-size", "")) or 8 * 1024**2
        worth_it = count >= 2 * self.facts.manifest_bytes / target
        if (
            count > spec.files
            and worth_it
            and self.case.may_begin(ActionKind.COMPACT_MANIFESTS, None)
        ):
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
        search = self.case.situation.of(ActionKind.FIND_ORPHANS)
        removed_at = self.case.situation.of(ActionKind.REMOVE_ORPHANS).done_at
        waiting = search.found_files > 0 and not (
            removed_at and search.done_at and removed_at >= search.done_at
        )
        too_many = search.found_files > spec.most_files or (
            search.found_bytes > size_bytes(spec.most_size)
        )
        # A search more often than that would put off the removal of what it finds, for ever.
        counts_for = _A_SEARCH_COUNTS if waiting and not too_many else timedelta(0)
        again = max(span(spec.every), counts_for)
        if search.done_at is None or self.case.now - search.done_at >= again:
            if self.case.may_begin(ActionKind.FIND_ORPHANS, spec):
                yield Action(
                    self.facts.table,
                    ActionKind.FIND_ORPHANS,
                    f"No search for orphans in the last {_in_days(spec.every)}.",
                    older_than=self.case.now - span(spec.older_than),
                )
            return
        if not waiting:
            return
        found = f"{search.found_files} files ({search.found_bytes} bytes) that no snapshot knows"
        if too_many:
            self.case.held_back.append(
                f"{found} are more than may be removed without a person "
                f"({spec.most_files} files, {spec.most_size} bytes)."
            )
            return
        old_enough = self.case.now - search.done_at >= _BETWEEN_SEARCH_AND_REMOVAL
        if old_enough and self.case.may_begin(ActionKind.REMOVE_ORPHANS, spec):
            yield Action(
                self.facts.table,
                ActionKind.REMOVE_ORPHANS,
                f"{found}, found at {search.done_at:%Y-%m-%d %H:%M} UTC.",
                older_than=search.older_than,
                figures={"files": str(search.found_files), "bytes": str(search.found_bytes)},
                benefit=float(search.found_files),
            )


def _in_days(setting: timedelta | str) -> str:
    return in_words(span(setting).total_seconds())


def _first_needed(holding: Iterable[Holder]) -> int | None:
    return min((h.snapshot_id for h in holding if h.snapshot_id is not None), default=None)


def _some(partitions: Sequence[Partition]) -> str:
    return some([partition_in_words(partition) for partition in partitions])

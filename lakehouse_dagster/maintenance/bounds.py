"""Does maintenance keep up with a table? Functions from facts to outcomes; nobody is asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.advice import on_its_compaction_job
from lakehouse_dagster.maintenance.case import partition_in_words
from lakehouse_dagster.maintenance.spec import (
    CheckBounds,
    Compaction,
    CompactSpec,
    ExpireSpec,
    OrphanSpec,
    TablePolicy,
    slack,
    span,
)
from lakehouse_dagster.paimon.file_facts import POSTPONED_BUCKETS, BucketFacts, TableKind
from lakehouse_dagster.streaming.checks import ERROR, WARN, CheckOutcome

if TYPE_CHECKING:
    from lakehouse_dagster.maintenance.survey import Looked

SMALL_FILES = "small_files"
EXPIRY_LAG = "expiry_lag"
ORPHAN_FILES = "orphan_files"
COMPACTION_BACKLOG = "compaction_backlog"
_OLD_SNAPSHOTS = "Old snapshots"

DESCRIPTIONS = {
    SMALL_FILES: "Not too many of the files are small.",
    EXPIRY_LAG: "Old snapshots go when the policy says so; else: who holds them back.",
    ORPHAN_FILES: "No files lie about that no snapshot knows.",
    COMPACTION_BACKLOG: "Compaction keeps up with what is written.",
}


def check_names(policy: TablePolicy) -> tuple[str, ...]:
    """The checks that a table of this policy has: of what it gets at all."""
    if policy.bounds is None:
        return ()
    compacted = policy.compact is not None and policy.compaction is not Compaction.OFF
    return (
        *((SMALL_FILES, COMPACTION_BACKLOG) if compacted else ()),
        *((EXPIRY_LAG,) if policy.expire is not None else ()),
        *((ORPHAN_FILES,) if policy.orphans is not None else ()),
    )


def outcomes(looked: Looked, policy: TablePolicy, now: datetime) -> Mapping[str, CheckOutcome]:
    """The outcome of each of the table's checks; a corrupt table fails them all."""
    names = check_names(policy)
    if looked.facts.problem is not None:
        corrupt = CheckOutcome(False, ERROR, f"The table is corrupt: {looked.facts.problem}")
        return dict.fromkeys(names, corrupt)
    bounds = policy.bounds or CheckBounds()
    found: dict[str, CheckOutcome] = {}
    for name in names:
        if name == SMALL_FILES:
            found[name] = _small_files(looked, bounds)
        elif name == COMPACTION_BACKLOG:
            found[name] = _backlog(looked, bounds, policy.compact)
        elif name == EXPIRY_LAG and policy.expire is not None:
            found[name] = _expiry(looked, policy.expire, bounds, now)
        elif policy.orphans is not None:
            found[name] = _orphans(looked, policy.orphans, bounds)
    return found


def _small_files(looked: Looked, bounds: CheckBounds) -> CheckOutcome:
    facts = looked.facts
    small = facts.small_files
    share = small / facts.files if facts.files else 0.0
    text = f"{small} of {facts.files} files are small."
    fails = small > bounds.small_files and share > bounds.small_share
    if fails:
        text += (
            f" At most {bounds.small_files} may be, or {bounds.small_share:.0%}."
            f"{_why_not_compacted(looked)}"
        )
    figures = {"small_files": small, "files": facts.files, "small_share": round(share, 3)}
    return CheckOutcome(not fails, WARN, text, figures)


def _backlog(looked: Looked, bounds: CheckBounds, spec: CompactSpec | None) -> CheckOutcome:
    facts = looked.facts
    # All files of an append table lie on level 0, and are merged with nothing.
    keyed = facts.buckets if facts.kind is not TableKind.APPEND else ()
    worst = max(keyed, key=lambda bucket: bucket.level0_files, default=None)
    level0 = worst.level0_files if worst is not None else 0
    postponed = sum(b.files for b in facts.buckets if b.bucket == POSTPONED_BUCKETS)
    figures = {"level0_files": level0, "postponed_files": postponed}
    said = _why_not_compacted(looked)
    if postponed > bounds.postponed_files:
        text = f"{postponed} files are seen by no reader before they are compacted.{said}"
        return CheckOutcome(False, ERROR, text, figures)
    if worst is not None and level0 > bounds.level0_files:
        text = f"{_place(worst)} has {level0} unmerged files; at most {bounds.level0_files}.{said}"
        if spec is not None and not looked.facts.write_only and level0 <= spec.level0_files:
            text += f" Compaction is due at more than {spec.level0_files}: raise the bound."
        return CheckOutcome(
            False, ERROR if level0 > 2 * bounds.level0_files else WARN, text, figures
        )
    if facts.kind is TableKind.APPEND:
        return CheckOutcome(True, WARN, "No files of an append table wait to be merged by key.")
    return CheckOutcome(True, WARN, f"At most {level0} unmerged files in a bucket.", figures)


def _expiry(looked: Looked, spec: ExpireSpec, bounds: CheckBounds, now: datetime) -> CheckOutcome:
    facts = looked.facts
    if facts.oldest_snapshot_at is None or facts.snapshot_count <= spec.keep_at_least:
        count = {"snapshots": facts.snapshot_count}
        return CheckOutcome(True, WARN, f"{facts.snapshot_count} snapshots.", count)
    age = now - facts.oldest_snapshot_at
    lag = (age - span(spec.keep_for) - slack(spec)).total_seconds()
    figures = {
        "snapshots": facts.snapshot_count,
        "oldest_snapshot_age_seconds": round(age.total_seconds(), 1),
        "expiry_lag_seconds": round(max(0.0, lag), 1),
    }
    text = f"{facts.snapshot_count} snapshots, the oldest {in_words(age.total_seconds())} old."
    if lag <= span(bounds.expiry_lag).total_seconds():
        kept = "".join(f" {why}" for why in snapshots_are_kept(looked))
        return CheckOutcome(True, WARN, text + kept, figures)
    text += f" It is {in_words(lag)} over its time."
    reasons = _held_back(looked, ActionKind.EXPIRE_SNAPSHOTS)
    # Somebody needs it: that person is to be asked. Else maintenance itself does not do its work.
    return CheckOutcome(False, WARN if reasons else ERROR, text + reasons, figures)


def _orphans(looked: Looked, spec: OrphanSpec, bounds: CheckBounds) -> CheckOutcome:
    search = looked.situation.of(ActionKind.FIND_ORPHANS)
    if search.done_at is None:
        return CheckOutcome(True, WARN, "Nobody has looked for orphans yet.")
    removed_at = looked.situation.of(ActionKind.REMOVE_ORPHANS).done_at
    at = f"{search.done_at:%Y-%m-%d %H:%M} UTC"
    if removed_at is not None and removed_at >= search.done_at:
        return CheckOutcome(True, WARN, f"What was found at {at} is removed.", {"orphan_files": 0})
    figures = {"orphan_files": search.found_files, "orphan_bytes": search.found_bytes}
    text = f"{search.found_files} files ({search.found_bytes} bytes) were found at {at}."
    if search.found_files > spec.most_files:
        text += f" They are more than {spec.most_files}: a person must look before they go."
        return CheckOutcome(False, ERROR, text, figures)
    return CheckOutcome(search.found_files <= bounds.orphan_files, WARN, text, figures)


def _why_not_compacted(looked: Looked) -> str:
    """Who keeps it from being compacted, as far as that is known."""
    missing = on_its_compaction_job(looked.facts, looked.situation)
    held_back = _held_back(looked, ActionKind.COMPACT, ActionKind.COMPACT_FULL)
    return "".join(f" {why}" for why in missing) + held_back


def snapshots_are_kept(looked: Looked) -> tuple[str, ...]:
    """Why old snapshots stay, as far as that does not end by itself."""
    return tuple(w for w in looked.decision.held_back if w.startswith(_OLD_SNAPSHOTS))


def _held_back(looked: Looked, *kinds: ActionKind) -> str:
    """Why it is not done, as far as the decision says; empty where it is due or nobody knows."""
    words = {ActionKind.EXPIRE_SNAPSHOTS: (_OLD_SNAPSHOTS,)}
    signs = [sign for kind in kinds for sign in (kind.value, *words.get(kind, ()))]
    told = [why for why in looked.decision.held_back if why.startswith((*signs, "Another"))]
    return "".join(f" {why}" for why in told)


def _place(bucket: BucketFacts) -> str:
    where = partition_in_words(bucket.partition)
    return f"{where}, bucket {bucket.bucket}" if where else f"Bucket {bucket.bucket}"

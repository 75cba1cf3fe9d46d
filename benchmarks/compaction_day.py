"""``compaction_day``: a simulated day on 200 tables, the default policy against nightly compaction.

Nothing runs here but our decisions: what commits and compactions do to files is the model of
``day_model.py``, with its assumptions. Both sides have the same tables, traffic and seed. The
baseline compacts every table in full at 03:00. Ours looks every 5 minutes: ``decide`` and
``within_budget`` as they are, with the default policy and limits, where an action takes 20 seconds
and one more for every 50 MB that it rewrites, and its table and its place in the limit until then.

What the totals hide is told beside them, by kind of table. Where writers compact themselves,
nightly compaction leaves a few per cent fewer files, and it empties levels, so that writers rewrite
less; nearly all files that ours saves are those of write-only tables during the day.

The first day brings both sides into their stride; the second one counts. Goals: bytes rewritten
(what writers rewrite by themselves is told beside it), and files that a full scan of all tables
opens, averaged over the day and at its end. The ratios are those of several seeds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from benchmarks.day_model import GIB, MIB, MINUTES_A_DAY, Table, lakehouse
from benchmarks.goal import Goal, say
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Situation
from lakehouse_dagster.maintenance.budget import within_budget
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.system_db import Lease

TABLES = 200
BYTES_A_DAY = 80.0 * GIB
SEEDS = (1, 2, 3)
NIGHTLY_AT_MINUTE = 180
LOOK_EVERY_MINUTES = 5
_MIDNIGHT = datetime(2026, 11, 30, tzinfo=timezone.utc)
_START_SECONDS = 20
_BYTES_A_SECOND = 50 * MIB

Maintenance = Callable[[list[Table], int], int]
"""What is done in a minute (counted from the first midnight); the bytes rewritten."""


@dataclass
class Day:
    """What came of the second day."""

    rewritten: int = 0
    by_writers: int = 0
    files: list[int] = field(default_factory=list)
    """At every look."""
    by_kind: Counter[str] = field(default_factory=Counter)
    """Files at the end."""


def run() -> list[Goal]:
    """One pair of days a seed."""
    pairs = [(_day(seed, Ours().minute), _day(seed, nightly)) for seed in SEEDS]
    for ours, night in pairs:
        say(f"compaction_day: ours    {_told(ours)}\ncompaction_day: nightly {_told(night)}")
    return [
        Goal(
            "compaction_day: bytes rewritten",
            [ours.rewritten / night.rewritten for ours, night in pairs],
            at_most=0.3,
        ),
        Goal(
            "compaction_day: files, averaged over the day",
            [statistics.mean(ours.files) / statistics.mean(night.files) for ours, night in pairs],
            at_most=1.0,
        ),
        Goal(
            "compaction_day: files at its end",
            [ours.files[-1] / night.files[-1] for ours, night in pairs],
            at_most=1.0,
        ),
    ]


def _told(day: Day) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(day.by_kind.items()))
    return (
        f"{day.rewritten / GIB:.1f} GiB rewritten (writers {day.by_writers / GIB:.0f}), "
        f"{statistics.mean(day.files):.0f} files on average, {day.files[-1]} at the end: {kinds}"
    )


def _day(seed: int, maintain: Maintenance) -> Day:
    tables, chance, day = lakehouse(TABLES, BYTES_A_DAY, seed), random.Random(seed), Day()
    for minute in range(2 * MINUTES_A_DAY):
        swing = 1 - 0.7 * math.cos(2 * math.pi * minute / MINUTES_A_DAY)
        for table in tables:
            incoming = table.bytes_a_minute * swing * chance.uniform(0.5, 1.5)
            table.commit(incoming, 1 + minute // MINUTES_A_DAY)
        rewritten = maintain(tables, minute)
        if minute < MINUTES_A_DAY:
            day.by_writers = -sum(table.written_by_writers for table in tables)
            continue
        day.rewritten += rewritten
        if minute % LOOK_EVERY_MINUTES == LOOK_EVERY_MINUTES - 1:
            day.files.append(sum(table.file_count for table in tables))
    day.by_writers += sum(table.written_by_writers for table in tables)
    for table in tables:
        day.by_kind[table.kind] += table.file_count
    return day


def nightly(tables: list[Table], minute: int) -> int:
    """All tables in full at one time of night."""
    if minute % MINUTES_A_DAY != NIGHTLY_AT_MINUTE:
        return 0
    return sum(bucket.compact_full() for table in tables for bucket in table.all_buckets())


class Ours:
    """The default policy, but for what does not compact."""

    def __init__(self) -> None:
        self.policy = MaintenancePolicy(
            default=TablePolicy(expire=None, changelogs=None, manifests=None)
        )
        self._busy: dict[str, float] = {}
        """Minute at which the action on a table ends."""
        self._jobs: list[float] = []

    def minute(self, tables: list[Table], minute: int) -> int:
        if minute % LOOK_EVERY_MINUTES:
            return 0
        self._busy = {name: end for name, end in self._busy.items() if end > minute}
        self._jobs = [end for end in self._jobs if end > minute]
        now = _MIDNIGHT + timedelta(minutes=minute)
        lease = Lease("table", "a run", 1, now, 60.0)
        by_name = {table.name: table for table in tables}
        decisions = [
            decide(
                table.facts(),
                self.policy.for_table(table.name),
                Situation(held_by=lease if table.name in self._busy else None),
                now,
            )
            for table in tables
        ]
        plan = within_budget(decisions, self.policy.limits, running=len(self._jobs))
        places, total = self.policy.limits.concurrent - len(self._jobs), 0
        # One group after the other, each in the place that is free first.
        free = [float(minute)] * places
        for group in plan.groups:
            rewritten = sum(_carry_out(by_name[a.table], a) for a in group.actions)
            place = free.index(min(free))
            free[place] += (_START_SECONDS + rewritten / _BYTES_A_SECOND) / 60
            self._busy |= dict.fromkeys(group.tables, free[place])
            total += rewritten
        self._jobs += [end for end in free if end > minute]
        return total


def _carry_out(table: Table, action: Action) -> int:
    buckets = [
        bucket
        for name, of_partition in table.parts.items()
        if action.partitions is None or (("dt", name),) in action.partitions
        for bucket in of_partition
    ]
    if action.kind is ActionKind.COMPACT_FULL:
        return sum(bucket.compact_full() for bucket in buckets)
    assert action.kind is ActionKind.COMPACT, action.kind
    return sum(bucket.compact() for bucket in buckets)

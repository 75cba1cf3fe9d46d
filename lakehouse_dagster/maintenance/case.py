"""One table whose maintenance is decided: all that decides on it, and what is held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakehouse_dagster.maintenance.actions import ActionKind, Blocked, Situation
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    window_of,
)
from lakehouse_dagster.paimon.file_facts import TableFacts

_LONGEST_VALUE = 60
"""Characters of a partition's value in texts for people."""
_LONGEST_BACKOFF = timedelta(hours=6)
_FIRST_BACKOFF = timedelta(minutes=5)


@dataclass
class Case:
    """What is known, and what is found to be due but not done."""

    facts: TableFacts
    policy: TablePolicy
    situation: Situation
    now: datetime
    held_back: list[str] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)

    def may_begin(
        self,
        kind: ActionKind,
        spec: CompactSpec | ExpireSpec | PartitionExpirySpec | OrphanSpec | None,
    ) -> bool:
        """Whether it may begin now; why it may not is noted."""
        past = self.situation.of(kind)
        if past.failed_at is not None and self.now < past.failed_at + backoff(past.failures):
            again = past.failed_at + backoff(past.failures)
            often = f"{past.failures} times in a row" if past.failures > 1 else "once"
            reason = f"{kind.value} failed {often}; tried again after {again:%Y-%m-%d %H:%M} UTC."
            if past.error is not None:
                reason = f"{reason} It failed with: {past.error}"
            self.held_back.append(reason)
            self.blocked.append(Blocked(kind, reason))
            return False
        window = None if spec is None else window_of(spec)
        if window is not None and not window.is_open(self.now):
            opens = f"{window.opens_at(self.now):%Y-%m-%d %H:%M} UTC"
            self.held_back.append(
                f"{kind.value} is due and waits for its window ({window.cron}), which opens at "
                f"{opens}."
            )
            return False
        return True


def backoff(failures: int) -> timedelta:
    """How long to wait after so many failures in a row."""
    doubled: int = 2 ** min(max(failures - 1, 0), 20)
    return min(_FIRST_BACKOFF * doubled, _LONGEST_BACKOFF)


def partition_in_words(partition: Sequence[tuple[str, str | None]]) -> str:
    """A partition as its folder is called: ``dt=2026-11-30/hour=3``; long values are cut."""
    return "/".join(f"{c}={'NULL' if v is None else _cut(v)}" for c, v in partition)


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"

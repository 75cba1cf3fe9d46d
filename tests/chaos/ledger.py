"""The ledger of faults: one JSON line each, on the disk before the next fault begins."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from tests.chaos.plan import PlannedFault


class Outcome(str, Enum):
    """How a fault went."""

    PASSED = "passed"
    FAILED = "failed"
    HUNG = "hung"
    NOT_RUNNABLE = "not yet runnable"

    @property
    def is_bad(self) -> bool:
        return self in (Outcome.FAILED, Outcome.HUNG)


@dataclass(frozen=True)
class Entry:
    """One fault that was carried out; ``moment`` says where exactly it struck."""

    seed: int
    engine: str
    index: int
    row: str
    variant: str
    moment: str
    outcome: Outcome
    seconds: float
    detail: str

    @property
    def key(self) -> tuple[int, str, int, str, str]:
        return (self.seed, self.engine, self.index, self.row, self.variant)

    @classmethod
    def of(
        cls, fault: PlannedFault, outcome: Outcome, *, moment: str, seconds: float, detail: str
    ) -> Entry:
        return cls(*fault.key, moment, outcome, round(seconds, 1), detail)


class Ledger:
    """Appends entries to a file and knows those that stand in it already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.entries: list[Entry] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self.entries = [_read(line) for line in path.read_text().splitlines() if _whole(line)]

    def append(self, entry: Entry) -> None:
        """Returns when the line is on the disk."""
        with self._lock, self.path.open("a") as file:
            torn = self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
            file.write(("\n" if torn else "") + json.dumps(asdict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())
            self.entries.append(entry)

    def lacks(self, fault: PlannedFault, *, again: bool = False) -> bool:
        """Whether it is still to do: never played, or not runnable then.

        A failed one is done, unless it is to be played ``again``.
        """
        done = [entry for entry in self.entries if entry.key == fault.key]
        if not done:
            return True
        last = done[-1].outcome
        return last is Outcome.NOT_RUNNABLE or (again and last.is_bad)


def _whole(line: str) -> bool:
    """A line that was cut off by a crash does not count."""
    return line.startswith("{") and line.endswith("}")


def _read(line: str) -> Entry:
    values = json.loads(line)
    return Entry(**{**values, "outcome": Outcome(values["outcome"])})


def summary(entries: Iterable[Entry]) -> str:
    """A table of rows and outcomes."""
    counts: Counter[tuple[str, Outcome]] = Counter()
    seconds: Counter[str] = Counter()
    for entry in entries:
        counts[entry.row, entry.outcome] += 1
        seconds[entry.row] += entry.seconds  # type: ignore[assignment]
    names = list(seconds)
    lines = ["row            " + "".join(f"{o.value:>18}" for o in Outcome) + "     seconds each"]
    for row in names:
        done = [counts[row, outcome] for outcome in Outcome]
        each = seconds[row] / max(1, sum(done))
        lines.append(f"{row:<15}" + "".join(f"{n:>18}" for n in done) + f"{each:>17.1f}")
    totals = [sum(counts[row, outcome] for row in names) for outcome in Outcome]
    lines.append(f"{'all':<15}" + "".join(f"{n:>18}" for n in totals))
    return "\n".join(lines)

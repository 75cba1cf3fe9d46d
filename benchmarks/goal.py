"""One goal and whether it holds."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Ratios of several runs; their median is held against ``at_least`` or ``at_most``."""

    name: str
    ratios: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def holds(self) -> bool:
        above = self.at_least is None or self.ratio >= self.at_least
        return above and (self.at_most is None or self.ratio <= self.at_most)

    def line(self) -> str:
        """The JSON line; ``spread`` is the smallest and the largest ratio."""
        goal = f">= {self.at_least}" if self.at_least is not None else f"<= {self.at_most}"
        return json.dumps(
            {
                "name": self.name,
                "ratio": round(self.ratio, 3),
                "goal": goal,
                "spread": [round(min(self.ratios), 3), round(max(self.ratios), 3)],
                "holds": self.holds,
            }
        )


def say(text: str) -> None:
    """Progress, beside the results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()

"""Which fault comes when: follows from the seed alone, so a run can be repeated and resumed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count, islice


class Row(str, Enum):
    """The rows of the fault table, in its order."""

    KILLED = "killed"
    ANSWERS = "answers"
    RIVALS = "rivals"
    BY_HAND = "by hand"
    UNREACHABLE = "unreachable"
    RESTORE_POINT = "restore point"
    INCOMPATIBLE = "incompatible"
    SICK = "sick"
    DATABASE = "database"
    SLOTS = "slots"
    FLEET = "fleet"


_DEAR = (Row.FLEET,)
"""Minutes rather than seconds each: after the first rounds only in every third."""
_FULL_ROUNDS = 3


@dataclass(frozen=True)
class PlannedFault:
    """One fault of a plan; all its chances come from ``random``."""

    seed: int
    engine: str
    index: int
    row: Row
    variant: str

    @property
    def key(self) -> tuple[int, str, int, str, str]:
        """What makes it the same fault in another run."""
        return (self.seed, self.engine, self.index, self.row.value, self.variant)

    def random(self) -> random.Random:
        """The source of every decision within the fault."""
        return random.Random("/".join(map(str, self.key)))

    def __str__(self) -> str:
        return f"#{self.index} {self.row.value}: {self.variant}"


def plan(
    faults: int,
    seed: int,
    engine: str,
    variants: dict[Row, Sequence[str]],
) -> tuple[PlannedFault, ...]:
    """The first ``faults`` faults of a seed; more of them begin with the same ones.

    Every row comes once a round, and the variants of a row one after the other in an order of the
    seed's, so that the first rounds already cover much.
    """
    orders = {row: _shuffled(names, seed, row) for row, names in variants.items()}
    return tuple(
        PlannedFault(seed, engine, index, row, orders[row][time % len(orders[row])])
        for index, (row, time) in enumerate(islice(_rows(variants), faults), start=1)
    )


def _shuffled(names: Sequence[str], seed: int, row: Row) -> list[str]:
    order = list(names)
    random.Random(f"{seed}/{row.value}").shuffle(order)
    return order


def _rows(variants: dict[Row, Sequence[str]]) -> Iterator[tuple[Row, int]]:
    """Row after row with how often each came before, without end."""
    came = dict.fromkeys(variants, 0)
    for number in count():
        for row in variants:
            rests = row in _DEAR and number >= _FULL_ROUNDS and number % 3
            if rests and len(variants) > 1:
                continue
            yield row, came[row]
            came[row] += 1

"""What a scenario is, and all there are, by row and variant."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos import scenarios
from tests.chaos.plan import Row
from tests.chaos.scene import Scene

Play = Callable[[Scene], None]


@dataclass(frozen=True)
class Scenario:
    """One variant of a row. ``play`` arranges, strikes and waits; what holds for all is proved
    afterwards."""

    row: Row
    variant: str
    play: Play
    cluster_wide: bool = False
    """Strikes at the cluster that all share, so it is played alone."""
    limit_seconds: float = 150.0


_known: dict[tuple[Row, str], Scenario] = {}


def scenario(
    row: Row, variant: str, *, cluster_wide: bool = False, limit_seconds: float = 150.0
) -> Callable[[Play], Play]:
    """Register a function as one variant of a row."""

    def register(play: Play) -> Play:
        assert (row, variant) not in _known, f"{row.value}: {variant} twice"
        _known[row, variant] = Scenario(row, variant, play, cluster_wide, limit_seconds)
        return play

    return register


def _load() -> None:
    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")


def scenario_of(row: Row, variant: str) -> Scenario:
    _load()
    return _known[row, variant]


def variants(rows: Sequence[Row] = tuple(Row)) -> dict[Row, Sequence[str]]:
    """The variants of each row, in the order of their definition."""
    _load()
    found: dict[Row, list[str]] = {row: [] for row in rows}
    for row, variant in _known:
        if row in found:
            found[row].append(variant)
    return {row: names for row, names in found.items() if names}

"""One look at one table: its facts, its situation, and what both say is due."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance.actions import Decision, Situation
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.situation import Surroundings
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.paimon.file_facts import TableFacts


@dataclass(frozen=True)
class Looked:
    """What was seen of a table, and what follows from it."""

    facts: TableFacts
    situation: Situation
    decision: Decision


def look_at(
    keeper: Keeper,
    policy: TablePolicy,
    table: str,
    surroundings: Surroundings,
    *,
    held: bool = False,
) -> Looked:
    """Look at one table now.

    Args:
        surroundings: of all tables that are looked at together.
        held: whether it is we who act on it, so that nobody else does.

    Raises:
        LakehouseError: it cannot be looked at.
    """
    facts = surroundings.damage.seen_in(keeper.facts(table))
    now = keeper.runtime.clock.now()
    situation = surroundings.situation(facts, policy, now)
    if held:
        situation = replace(situation, held_by=None)
    return Looked(facts, situation, decide(facts, policy, situation, now))


def survey(
    keeper: Keeper, policy: MaintenancePolicy, tables: Sequence[str], *, seconds: float = math.inf
) -> Iterator[tuple[str, Looked | LakehouseError | None]]:
    """Look at tables one after the other, until so many seconds have passed.

    A table that does not exist (yet) gives None, one that cannot be looked at its error.
    """
    over = keeper.runtime.clock.deadline(seconds)
    surroundings = Surroundings(keeper)
    catalog = keeper.runtime.catalog.open()
    for table in tables:
        try:
            there = catalog.table(table).exists()
            found = look_at(keeper, policy.for_table(table), table, surroundings) if there else None
            yield table, found
        except LakehouseError as error:
            yield table, error
        if over():
            return

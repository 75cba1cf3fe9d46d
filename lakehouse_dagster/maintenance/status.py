"""Files, snapshots and due actions of tables at a glance, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.spec import Compaction, MaintenancePolicy, TablePolicy
from lakehouse_dagster.maintenance.survey import Looked, survey

NOTHING = MaintenancePolicy(
    TablePolicy(Compaction.OFF, compact=None, expire=None, changelogs=None, manifests=None)
)
"""The policy of whoever has none."""
_SECONDS = 60.0


@dataclass(frozen=True)
class TableFiles:
    """The files of one table; all None of one that does not exist or cannot be looked at.

    ``due`` are the kinds of actions that are due; ``held_back`` says what is not done and why;
    ``problem`` why it cannot be looked at.
    """

    name: str
    files: int | None = None
    bytes: int | None = None
    level0_files: int | None = None
    small_files: int | None = None
    snapshots: int | None = None
    oldest_snapshot_at: datetime | None = None
    oldest_snapshot_age_seconds: float | None = None
    tags: int | None = None
    branches: int | None = None
    consumers: int | None = None
    due: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    problem: str | None = None


def table_files(
    keeper: Keeper, policy: MaintenancePolicy | None, tables: Sequence[str]
) -> tuple[TableFiles, ...]:
    """Look at tables, for at most a minute; what was not reached says so."""
    found = dict(survey(keeper, policy or NOTHING, tables, seconds=_SECONDS))
    return tuple(
        _of(keeper, table, found[table])
        if table in found
        else TableFiles(table, problem="not looked at: there was no more time")
        for table in tables
    )


def _of(keeper: Keeper, table: str, looked: Looked | LakehouseError | None) -> TableFiles:
    if looked is None:
        return TableFiles(table, problem="there is no such table yet")
    if isinstance(looked, LakehouseError):
        return TableFiles(table, problem=looked.message)
    facts, decision = looked.facts, looked.decision
    if facts.problem is not None and facts.snapshot_id is None:
        return TableFiles(table, problem=facts.problem)
    at = facts.oldest_snapshot_at
    age = None if at is None else round((keeper.runtime.clock.now() - at).total_seconds(), 1)
    return TableFiles(
        table,
        files=facts.files,
        bytes=facts.size_bytes,
        level0_files=facts.level0_files,
        small_files=facts.small_files,
        snapshots=facts.snapshot_count,
        oldest_snapshot_at=at,
        oldest_snapshot_age_seconds=age,
        tags=len(facts.tags),
        branches=len(facts.branches),
        consumers=len(facts.consumers),
        due=tuple(action.kind.value for action in decision.actions),
        # Of a problem that is all it says.
        held_back=() if facts.problem is not None else decision.held_back,
        advice=decision.advice,
        problem=facts.problem,
    )

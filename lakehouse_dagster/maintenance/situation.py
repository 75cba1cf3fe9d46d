"""What besides a table's files decides on its maintenance: readers, writers, and what was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.maintenance.actions import ActionKind, Past, Situation
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.needs import holders, protected_tags
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import DesiredState
from lakehouse_dagster.system_db.maintenance_actions import ActionState

PastOfTables = Mapping[str, Mapping[ActionKind, Past]]

_KINDS = {kind.value: kind for kind in ActionKind}


def past_of_tables(keeper: Keeper) -> PastOfTables:
    """What became of each kind of action on each table, from the records."""
    found: dict[str, dict[ActionKind, Past]] = {}
    for table, kind, state, ended_at in keeper.actions.all_outcomes():
        if kind not in _KINDS or ended_at is None:
            continue
        kinds = found.setdefault(table, {})
        kinds[_KINDS[kind]] = _after(kinds.get(_KINDS[kind], Past()), state, ended_at)
    return found


def situation_of(keeper: Keeper, facts: TableFacts, past: PastOfTables) -> Situation:
    """The situation of one table as of now."""
    of_table = dict(past.get(facts.table, {}))
    if of_table.get(ActionKind.FIND_ORPHANS, Past()).done_at is not None:
        of_table[ActionKind.FIND_ORPHANS] = _with_found(
            keeper, facts.table, of_table[ActionKind.FIND_ORPHANS]
        )
    return Situation(
        holders=holders(keeper.runtime, facts),
        protected_tags=protected_tags(facts),
        compacts_by_itself=is_compacted(keeper.runtime, facts.table),
        running=keeper.is_held(facts.table),
        past=of_table,
    )


def is_compacted(runtime: Runtime, table: str) -> bool:
    """Whether a compaction job of ours is to run for the table."""
    records = runtime.memory.state().records
    return any(
        table in job.compacts and name in records and records[name].desired is DesiredState.RUNNING
        for name, job in runtime.jobs.items()
    )


def _after(past: Past, state: ActionState, ended_at: datetime) -> Past:
    if state is ActionState.DONE:
        return Past(done_at=ended_at)
    if state is ActionState.FAILED:
        return Past(past.done_at, ended_at, past.failures + 1)
    return past


@dataclass(frozen=True)
class _Search:
    files: int
    size_bytes: int
    older_than: datetime | None


def _with_found(keeper: Keeper, table: str, past: Past) -> Past:
    """The past of searches for orphans, with what the last one found."""
    for record in keeper.actions.of_table(table):
        if record.kind == ActionKind.FIND_ORPHANS.value and record.state is ActionState.DONE:
            search = _search(record.after, record.details)
            return Past(
                past.done_at,
                past.failed_at,
                past.failures,
                search.files,
                search.size_bytes,
                search.older_than,
            )
    return past


def _search(after: str | None, details: str) -> _Search:
    figures = json.loads(after or "{}")
    older_than = json.loads(details).get("older_than")
    return _Search(
        int(figures.get("orphan_files", 0)),
        int(figures.get("orphan_bytes", 0)),
        datetime.fromisoformat(older_than) if older_than else None,
    )


def tables_to_look_at(keeper: Keeper, wanted: Iterable[str] | None = None) -> tuple[str, ...]:
    """The tables that exist, of those wanted or of all that jobs of ours write or read."""
    names = wanted
    if names is None:
        jobs = keeper.runtime.jobs.values()
        names = {t.key for job in jobs for t in (*job.definition.sinks, *job.definition.reads)}
    catalog = keeper.runtime.catalog.open()
    return tuple(name for name in sorted(names) if catalog.table(name).exists())

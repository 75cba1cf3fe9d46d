"""What besides a table's files decides on its maintenance: readers, writers, and what was done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from lakehouse_dagster.maintenance.actions import ActionKind, Past, Situation
from lakehouse_dagster.maintenance.damage import Damage
from lakehouse_dagster.maintenance.decide import matters_who_compacts
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.needs import Readers, may_expire, protected_tags
from lakehouse_dagster.maintenance.spec import TablePolicy
from lakehouse_dagster.maintenance.strangers import foreign_compactors
from lakehouse_dagster.maintenance.writers import job_on_record
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import DesiredState, Lease
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

_LONGEST_ERROR = 300
"""Characters of an error in texts for people."""
_KINDS = {kind.value: kind for kind in ActionKind}


@dataclass(frozen=True)
class Surroundings:
    """What is asked once for a look at many tables, each part when it is first needed.

    Args:
        at_once: whether what failed is tried again without a pause, as a person says so.
    """

    keeper: Keeper
    at_once: bool = False

    def situation(self, facts: TableFacts, policy: TablePolicy, now: datetime) -> Situation:
        """The situation of one table.

        Who needs old snapshots is found out only where some could be due to go, and who else
        compacts only where we would.
        """
        found = Situation(
            holders=self._readers.holders(facts, policy) if may_expire(facts, policy, now) else (),
            protected_tags=protected_tags(facts),
            compaction_job=self._compaction_jobs.get(facts.table),
            compacts_by_itself=facts.table in self._compacted,
            held_by=self._leases.get(self.keeper.lease_key(facts.table)),
            past=self._past.get(facts.table, {}),
        )
        if not matters_who_compacts(facts, policy, found, now):
            return found
        return replace(found, foreign_compactors=foreign_compactors(self.keeper.runtime, facts))

    @cached_property
    def damage(self) -> Damage:
        """Which files actions have found to be gone."""
        return Damage(self.keeper)

    @cached_property
    def _readers(self) -> Readers:
        return Readers(self.keeper.runtime)

    @cached_property
    def _leases(self) -> Mapping[str, Lease]:
        return self.keeper.runtime.leases.all_current(self.keeper.lease_key(""))

    @cached_property
    def _compaction_jobs(self) -> Mapping[str, str]:
        jobs = self.keeper.runtime.jobs.items()
        return {table: name for name, job in jobs for table in job.compacts}

    @cached_property
    def _compacted(self) -> frozenset[str]:
        return _compacted_tables(self.keeper.runtime)

    @cached_property
    def _past(self) -> Mapping[str, Mapping[ActionKind, Past]]:
        found: dict[str, dict[ActionKind, Past]] = {}
        errors = {} if self.at_once else self.keeper.actions.last_errors()
        for outcome in self.keeper.actions.outcomes():
            if outcome.kind in _KINDS:
                failed_at = None if self.at_once else outcome.failed_at
                said = errors.get((outcome.table_name, outcome.kind)) if failed_at else None
                error = said.splitlines()[0][:_LONGEST_ERROR] if said else None
                past = Past(
                    outcome.done_at, failed_at, outcome.failures, error, outcome.writer_restarts
                )
                found.setdefault(outcome.table_name, {})[_KINDS[outcome.kind]] = past
        searched = self.keeper.actions.last_done(ActionKind.FIND_ORPHANS.value)
        for table, record in searched.items():
            of_table = found.setdefault(table, {})
            past = of_table.get(ActionKind.FIND_ORPHANS, Past())
            of_table[ActionKind.FIND_ORPHANS] = _with_found(past, record)
        return found


def is_compacted(runtime: Runtime, table: str) -> bool:
    """Whether a compaction job of ours is to run for the table."""
    return table in _compacted_tables(runtime)


def _compacted_tables(runtime: Runtime) -> frozenset[str]:
    state = runtime.memory.state()
    wanted = (n for n, record in state.records.items() if record.desired is DesiredState.RUNNING)
    jobs = (job_on_record(runtime, name, state.latest.get(name)) for name in wanted)
    return frozenset(table for job in jobs if job is not None for table in job.compacts)


def _with_found(past: Past, search: ActionRecord) -> Past:
    """The past of searches for orphans, with what the last one found.

    It may have ended a moment ago, in another process, and not be in the past yet.
    """
    figures = json.loads(search.after or "{}")
    older_than = json.loads(search.details).get("older_than")
    return replace(
        past,
        done_at=search.ended_at,
        found_files=int(figures.get("orphan_files", 0)),
        found_bytes=int(figures.get("orphan_bytes", 0)),
        older_than=datetime.fromisoformat(older_than) if older_than else None,
    )


def tables_to_look_at(keeper: Keeper, wanted: Iterable[str] | None = None) -> tuple[str, ...]:
    """The tables that exist, of those wanted or of all that jobs of ours write or read."""
    names = wanted
    if names is None:
        jobs = keeper.runtime.jobs.values()
        names = {t.key for job in jobs for t in (*job.definition.sinks, *job.definition.reads)}
    catalog = keeper.runtime.catalog.open()
    return tuple(name for name in sorted(names) if catalog.table(name).exists())

"""Looks at tables, decides what is due, and does it within the limits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lakehouse_dagster.errors import LakehouseError, LeaseHeldError
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Decision
from lakehouse_dagster.maintenance.budget import ActionGroup, Postponed, within_budget
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.perform import Performing, perform
from lakehouse_dagster.maintenance.situation import (
    past_of_tables,
    situation_of,
    tables_to_look_at,
)
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.streaming.apply import CancelledByUserError
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord


@dataclass(frozen=True)
class Failure:
    """A table that could not be looked at, or an action that could not be begun or followed."""

    tables: tuple[str, ...]
    error: LakehouseError


@dataclass(frozen=True)
class Maintained:
    """What one run found due, did, and left for later.

    Args:
        decisions: of all tables that were looked at.
        done: the records of what was carried out, whatever became of it.
        postponed: what did not fit into the limits.
        failures: what could not be looked at or begun.
    """

    decisions: tuple[Decision, ...]
    done: tuple[ActionRecord, ...] = ()
    postponed: tuple[Postponed, ...] = ()
    failures: tuple[Failure, ...] = ()


def look(
    keeper: Keeper, policy: MaintenancePolicy, tables: Iterable[str] | None = None
) -> tuple[tuple[Decision, ...], tuple[Failure, ...]]:
    """What each table is due for now; a table that cannot be looked at is a failure."""
    past = past_of_tables(keeper)
    decisions, failures = [], []
    for table in tables_to_look_at(keeper, tables):
        try:
            facts = keeper.facts(table)
            situation = situation_of(keeper, facts, past)
            now = keeper.runtime.clock.now()
            decisions.append(decide(facts, policy.for_table(table), situation, now))
        except LakehouseError as error:
            failures.append(Failure((table,), error))
    return tuple(decisions), tuple(failures)


def maintain(
    keeper: Keeper,
    policy: MaintenancePolicy,
    tables: Iterable[str] | None = None,
    *,
    holder: str,
    kinds: frozenset[ActionKind] = frozenset(ActionKind),
    how: Performing | None = None,
    log: logging.Logger = LOGGER,
) -> Maintained:
    """Do what is due, once, within the policy's limits.

    On KeyboardInterrupt or Dagster's interruption every action is cancelled, with its Flink job,
    before this returns.

    Args:
        keeper: of the lakehouse.
        policy: when what is due.
        tables: those to look at; by default all that jobs of ours write or read.
        holder: who it is, for the leases and records.
        kinds: which kinds of action may be done.
        how: for tests; by default as the policy says.
    """
    decisions, failures = look(keeper, policy, tables)
    wanted = [
        replace(decision, actions=tuple(a for a in decision.actions if a.kind in kinds))
        for decision in decisions
    ]
    plan = within_budget(wanted, policy.limits, running=len(keeper.actions.running()))
    crew = _Crew(keeper, policy, holder, how, log)
    done = crew.do(plan.groups)
    return Maintained(decisions, tuple(done), plan.postponed, (*failures, *crew.failures))


@dataclass
class _Crew:
    keeper: Keeper
    policy: MaintenancePolicy
    holder: str
    how: Performing | None
    log: logging.Logger
    failures: list[Failure] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.keeper.runtime.with_sleep(self._sleep))

    def _sleep(self, seconds: float) -> None:
        if self.cancelled.wait(seconds):
            raise CancelledByUserError

    def do(self, groups: Sequence[ActionGroup]) -> list[ActionRecord]:
        with ThreadPoolExecutor(max_workers=self.policy.limits.concurrent) as pool:
            futures = []
            try:
                futures = [pool.submit(self._one, group) for group in groups]
                return [record for future in futures for record in future.result()]
            except BaseException:
                self.cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _one(self, group: ActionGroup) -> tuple[ActionRecord, ...]:
        try:
            with self.keeper.hold(group.tables, self.holder) as held:
                still_due = self._still_due(group)
                if not still_due.actions:
                    return ()
                return perform(held, still_due, self._how(still_due))
        except LeaseHeldError as error:
            self.log.info("%s", error)
        except LakehouseError as error:
            self.log.error("%s", error)
            self.failures.append(Failure(group.tables, error))
        return ()

    def _still_due(self, group: ActionGroup) -> ActionGroup:
        """Decided once more, under lease: by its turn, what was decided may be old."""
        kept = []
        past = past_of_tables(self.keeper)
        for action in group.actions:
            facts = self.keeper.facts(action.table)
            situation = replace(situation_of(self.keeper, facts, past), running=False)
            decision = decide(
                facts,
                self.policy.for_table(action.table),
                situation,
                self.keeper.runtime.clock.now(),
            )
            kept += [again for again in decision.actions if again.kind is action.kind]
        return ActionGroup(tuple(kept))

    def _how(self, group: ActionGroup) -> Performing:
        if self.how is not None:
            return self.how
        compact = self.policy.for_table(group.tables[0]).compact
        return Performing(attempts=compact.attempts if compact else 1, log=self.log)


def describe(action: Action) -> str:
    """An action in one line, with the figures behind it."""
    figures = ", ".join(f"{name} {value}" for name, value in action.figures.items())
    return f"{action.table}: {action.kind.value}: {action.reason}" + (
        f" ({figures})" if figures else ""
    )

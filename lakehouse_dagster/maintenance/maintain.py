"""Looks at tables, decides what is due, and does it within the limits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lakehouse_dagster.errors import LakehouseError, LeaseHeldError, MaintenanceError
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Decision
from lakehouse_dagster.maintenance.budget import ActionGroup, Postponed, Spent, within_budget
from lakehouse_dagster.maintenance.damage import Damage
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.perform import Performing, perform, settle_all
from lakehouse_dagster.maintenance.situation import Surroundings, tables_to_look_at
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.maintenance.strangers import (
    FOREIGN_WRITERS_COUNT_FOR,
    foreign_compactors,
)
from lakehouse_dagster.maintenance.survey import look_at
from lakehouse_dagster.maintenance.writers import compactors_of
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.apply import CancelledByUserError
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.system_db.maintenance_actions import (
    REMEMBERED,
    ActionRecord,
    ActionState,
)

DONE = ActionState.DONE
_SNAPSHOTS_LOOKED_AT = 1_000
"""For who else compacts: a person who asks once can wait longer than the sensor."""


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
        held: what was not begun because somebody else acted on the table.
    """

    decisions: tuple[Decision, ...]
    done: tuple[ActionRecord, ...] = ()
    postponed: tuple[Postponed, ...] = ()
    failures: tuple[Failure, ...] = ()
    held: tuple[Failure, ...] = ()


def look(
    keeper: Keeper,
    policy: MaintenancePolicy,
    tables: Iterable[str] | None = None,
    *,
    at_once: bool = False,
) -> tuple[tuple[Decision, ...], tuple[Failure, ...]]:
    """What each table is due for now; a table that cannot be looked at is a failure."""
    surroundings = Surroundings(keeper, at_once)
    decisions, failures = [], []
    for table in tables_to_look_at(keeper, tables):
        try:
            decisions.append(look_at(keeper, policy.for_table(table), table, surroundings).decision)
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
    at_once: bool = False,
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
        at_once: whether what failed not long ago is tried again without a pause.
        how: for tests; by default as the policy says.
    """
    _bring_to_an_end(keeper, holder, log)
    planned, groups = plan(keeper, policy, tables, kinds=kinds, at_once=at_once)
    return _Crew(keeper, policy, holder, how, log, at_once=at_once).carry_out(planned, groups)


def _bring_to_an_end(keeper: Keeper, holder: str, log: logging.Logger) -> None:
    """What earlier runs left behind, and records that are of no use any more."""
    keeper.actions.prune(keeper.runtime.clock.now() - REMEMBERED)
    for error in settle_all(keeper, holder, log):
        log.error("%s", error)


@dataclass(frozen=True)
class Turns:
    """Who had its turn in a run: each kind of action at most once on a table.

    A table that is written all the time is due again as soon as something was done to it; without
    this a run would never end, and what is due after that never begin.

    Args:
        had: tables and kinds.
        left: those of them that were not begun, as somebody else did it or acts on the table.
        failed: tables on which something failed; the next run goes on with them.
        spent: of the run's limits.
    """

    had: frozenset[tuple[str, str]] = frozenset()
    left: frozenset[tuple[str, str]] = frozenset()
    failed: frozenset[str] = frozenset()
    spent: Spent = field(default_factory=Spent)

    def after(self, groups: Sequence[ActionGroup], outcome: Maintained) -> Turns:
        """The same when these were carried out, whatever became of them."""
        actions = [action for group in groups for action in group.actions]
        failed = {record.table_name for record in outcome.done if record.state is not DONE}
        failed.update(table for failure in outcome.failures for table in failure.tables)
        had = self.had | {_turn(action) for action in actions}
        begun = {(record.table_name, record.kind) for record in outcome.done}
        return Turns(
            had,
            self.left | (had - self.had - begun),
            self.failed | failed,
            self.spent.and_for(groups),
        )

    def why_over(self, action: Action) -> str | None:
        """Why it waits for the next run; None if it does not."""
        if action.table in self.failed:
            return "Something failed on the table in this run; the next one goes on."
        if _turn(action) in self.left:
            return "Somebody else did it meanwhile, or acts on the table; the next run goes on."
        if _turn(action) in self.had:
            return "It had its turn in this run; the next one goes on."
        return None


def _turn(action: Action) -> tuple[str, str]:
    return action.table, action.kind.value


def plan(
    keeper: Keeper,
    policy: MaintenancePolicy,
    tables: Iterable[str] | None = None,
    *,
    kinds: frozenset[ActionKind] = frozenset(ActionKind),
    at_once: bool = False,
    turns: Turns | None = None,
) -> tuple[Maintained, tuple[ActionGroup, ...]]:
    """What is due and fits the limits now, in groups that one Flink job does each; nothing is done.

    Only actions of these kinds are among the decisions. ``turns``: those of the same run so far.
    """
    turns = turns or Turns()
    decisions, failures = look(keeper, policy, tables, at_once=at_once)
    wanted = tuple(
        replace(decision, actions=tuple(a for a in decision.actions if a.kind in kinds))
        for decision in decisions
    )
    over = {a: why for d in wanted for a in d.actions if (why := turns.why_over(a)) is not None}
    run = within_budget(
        [replace(d, actions=tuple(a for a in d.actions if a not in over)) for d in wanted],
        policy.limits,
        running=len(keeper.actions.running()),
        spent=turns.spent,
    )
    postponed = (*(Postponed(action, why) for action, why in over.items()), *run.postponed)
    return Maintained(wanted, (), postponed, failures), run.groups


def maintain_in_rounds(
    keeper: Keeper,
    policy: MaintenancePolicy,
    tables: Iterable[str] | None = None,
    *,
    holder: str,
    kinds: frozenset[ActionKind] = frozenset(ActionKind),
    at_once: bool = False,
    log: logging.Logger = LOGGER,
) -> Maintained:
    """Do all that is due, action by action, as what is next is decided by what was done.

    Each kind of action has its turn once on a table, within the limits of one run; what waits for
    the next run is among what is postponed, and why. A table on which something fails is left alone
    from then on. Decisions and what was postponed are those of the last look.
    """
    _bring_to_an_end(keeper, holder, log)
    names = tables_to_look_at(keeper, tables)
    turns, rounds = Turns(), list[Maintained]()
    while True:
        planned, groups = plan(keeper, policy, names, kinds=kinds, at_once=at_once, turns=turns)
        crew = _Crew(keeper, policy, holder, None, log, at_once=at_once)
        rounds.append(last := crew.carry_out(planned, groups))
        turns = turns.after(groups, last)
        unseen = {table for failure in planned.failures for table in failure.tables}
        names = tuple(name for name in names if name not in unseen)
        if not groups:
            break
    return replace(
        last,
        done=tuple(record for one in rounds for record in one.done),
        failures=tuple(failure for one in rounds for failure in one.failures),
        held=tuple(failure for one in rounds for failure in one.held),
    )


def compact_now(
    keeper: Keeper,
    policy: MaintenancePolicy,
    tables: Iterable[str],
    *,
    partitions: Sequence[Mapping[str, str | None]] = (),
    holder: str,
    log: logging.Logger = LOGGER,
) -> Maintained:
    """Compact chosen tables in full because a person says so, whether or not they are due.

    Args:
        partitions: only these; each names the values of some or all partition columns.

    What cannot be compacted is a failure, and the other tables are compacted.
    """
    groups, failures = [], []
    damage = Damage(keeper)
    for table in tables:
        try:
            facts = damage.seen_in(keeper.facts(table))
            _refuse_beside_others(keeper, facts)
            action = _full_compaction(facts, partitions)
            groups.append(ActionGroup((action,)))
        except LakehouseError as error:
            failures.append(Failure((table,), error))
    crew = _Crew(keeper, policy, holder, None, log, only_if_due=False)
    done = crew.do(groups)
    return Maintained((), tuple(done), (), (*failures, *crew.failures, *crew.held))


def _refuse_beside_others(keeper: Keeper, facts: TableFacts) -> None:
    if not facts.is_marked_by_compaction:
        return
    ours = compactors_of(keeper.runtime, facts)
    foreign = foreign_compactors(keeper.runtime, facts, most=_SNAPSHOTS_LOOKED_AT)
    if not ours and not foreign:
        return
    remedies = [f"Stop it first: lakehouse jobs stop {' '.join(ours)}."] if ours else []
    if foreign:
        gone_at = foreign[0].newest.committed_at + FOREIGN_WRITERS_COUNT_FOR
        remedies.append(
            "Stop what commits under a user that is none of our jobs', and try again after "
            f"{gone_at:%Y-%m-%d %H:%M} UTC: only then is it clear that it is gone."
        )
    raise MaintenanceError(
        f"{facts.table} is compacted by {'; '.join([*ours, *map(str, foreign)])}: rows that are "
        "marked as deleted during another compaction (deletion vectors) would come back.",
        remedy=" ".join(remedies),
    )


def _full_compaction(facts: TableFacts, wanted: Sequence[Mapping[str, str | None]]) -> Action:
    if facts.problem is not None:
        raise MaintenanceError(f"Nothing is done to {facts.table}: {facts.problem}")
    there = dict.fromkeys(bucket.partition for bucket in facts.buckets)
    chosen = [p for p in there if any(said.items() <= dict(p).items() for said in wanted)]
    if wanted and not chosen:
        raise MaintenanceError(
            f"{facts.table} has none of the partitions {[dict(w) for w in wanted]}.",
            remedy=f"Its partition columns are {', '.join(facts.partition_keys) or 'none'}.",
        )
    buckets = [b for b in facts.buckets if not wanted or b.partition in set(chosen)]
    size = sum(bucket.size_bytes for bucket in buckets)
    return Action(
        facts.table,
        ActionKind.COMPACT_FULL,
        "A person asked for it.",
        partitions=tuple(chosen) if wanted else None,
        figures={"files": str(sum(b.files for b in buckets)), "bytes": str(size)},
        rewrite_bytes=size,
    )


@dataclass
class _Crew:
    keeper: Keeper
    policy: MaintenancePolicy
    holder: str
    how: Performing | None
    log: logging.Logger
    only_if_due: bool = True
    at_once: bool = False
    failures: list[Failure] = field(default_factory=list)
    held: list[Failure] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.keeper.runtime.with_sleep(self._sleep))

    def _sleep(self, seconds: float) -> None:
        if self.cancelled.wait(seconds):
            raise CancelledByUserError

    def carry_out(self, planned: Maintained, groups: Sequence[ActionGroup]) -> Maintained:
        """What was planned, with what became of it."""
        done = tuple(self.do(groups))
        failures = (*planned.failures, *self.failures)
        return replace(planned, done=done, failures=failures, held=tuple(self.held))

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
                still_due = self._still_due(group) if self.only_if_due else group
                if not still_due.actions:
                    return ()
                return perform(held, still_due, self._how(still_due))
        except LeaseHeldError as error:
            self.log.info("%s", error)
            self.held.append(Failure(group.tables, error))
        except LakehouseError as error:
            self.log.error("%s", error)
            self.failures.append(Failure(group.tables, error))
        return ()

    def _still_due(self, group: ActionGroup) -> ActionGroup:
        """Decided once more, under lease: by its turn, what was decided may be old."""
        kept = []
        surroundings = Surroundings(self.keeper, self.at_once)
        for action in group.actions:
            policy = self.policy.for_table(action.table)
            looked = look_at(self.keeper, policy, action.table, surroundings, held=True)
            kept += [again for again in looked.decision.actions if again.kind is action.kind]
        return ActionGroup(tuple(kept))

    def _how(self, group: ActionGroup) -> Performing:
        if self.how is not None:
            return self.how
        compact = self.policy.for_table(group.tables[0]).compact
        return Performing(
            attempts=compact.attempts if compact else 1, on_progress=self.log.info, log=self.log
        )

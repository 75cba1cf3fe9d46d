"""The sensor that looks at tables in turn, tells their checks, and asks for runs; thin."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg
from pydantic import BaseModel, Field

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance.actions import Action, Decision, describe
from lakehouse_dagster.maintenance.bounds import EXPIRY_LAG, snapshots_are_kept
from lakehouse_dagster.maintenance.budget import RunPlan, within_budget
from lakehouse_dagster.maintenance.case import backoff
from lakehouse_dagster.maintenance.checks import evaluate, evaluation
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.launchpad import Launchpads
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, span
from lakehouse_dagster.streaming.cursor import Cursor
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.runtime import dagster_run

if TYPE_CHECKING:
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.maintenance.survey import Looked
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, Latest

LOOK_SECONDS = 20.0
"""Far below the 60 s that Dagster gives a tick; what is left over has its turn in the next."""
EVALUATIONS_PER_TICK = 100
"""Dagster records some tens of events a second."""
TOLD_AGAIN_AFTER = timedelta(hours=1)
CANCELLED_RESTS = timedelta(hours=1)
"""Whoever cancels an action does not want it to begin again at once."""
SILENT_RUN_IS_OVER = timedelta(hours=1)
"""A run that began so long ago and holds no table now is not waited for."""
PROBLEMS_TOLD = 5

Seen: TypeAlias = "Mapping[str, Looked | LakehouseError | None]"

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


class Asked(BaseModel):
    """That a run was asked for a table: with how many actions on record, how often, and when."""

    records: int
    times: int
    at: datetime


class MaintenanceCursor(Cursor):
    """Whose turn it is, for which tables runs were asked, and what was told of the checks."""

    position: int = 0
    asked: dict[str, Asked] = Field(default_factory=dict)
    told: dict[str, tuple[str, datetime]] = Field(default_factory=dict)


def waits(
    table: str,
    asked: Mapping[str, Asked],
    latest: "Latest | None",
    under_way: frozenset[str] | None,
    now: datetime,
) -> str | None:
    """Why no run is asked for a table that is due; None if one may be.

    Args:
        asked: the runs that were asked for.
        latest: the newest action on it, and how many are on record.
        under_way: tables of unfinished runs; None for all.
        now: the time, aware.
    """
    if under_way is None or table in under_way:
        return "a run for it is under way"
    cancelled = latest is not None and latest.state.value == "cancelled"
    at = latest.ended_at if latest is not None and cancelled else None
    if at is not None and now < at + CANCELLED_RESTS:
        return f"cancelled at {at:%H:%M} UTC, and left alone for an hour"
    before = asked.get(table)
    if before is not None and before.records == (latest.records if latest else 0):
        # The last run did nothing to it: the cluster was away, or somebody else held it.
        again = before.at + backoff(before.times)
        if now < again:
            return f"asked for in vain; again after {again:%H:%M} UTC"
    return None


def maintenance_sensor(
    keeper: Keeper,
    policy: MaintenancePolicy,
    graph: AssetGraph,
    tables: Sequence[str],
    job: dg.JobDefinition,
    *,
    status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """The sensor that asks for one run of ``job`` when something is due; it changes nothing."""
    name = f"{dagster_name(keeper.runtime.lakehouse)}_maintenance"

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=max(1, int(span(policy.limits.tick_interval).total_seconds())),
        default_status=status,
        description="Looks at the files of every table; asks for a run when something is due.",
    )
    def maintain_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        from lakehouse_dagster.maintenance.survey import survey

        cursor = MaintenanceCursor.parse(context.cursor)
        now = keeper.runtime.clock.now()
        position = cursor.position % max(1, len(tables))
        in_order = [*tables[position:], *tables[:position]]
        seen = dict(survey(keeper, policy, in_order, seconds=LOOK_SECONDS))
        launchpads = Launchpads.of_tick(context, keeper.runtime.lakehouse)
        latest = keeper.actions.latest()
        news = _News(keeper, policy, graph, now, launchpads)
        evaluations, told = news.of_checks(seen, cursor.told, latest)
        left_behind = keeper.left_behind()
        under_way = _under_way(keeper, context.instance, job, left_behind)
        asking = _asking(keeper, policy, seen, cursor.asked, latest, under_way, len(left_behind))
        said = _summary(seen, asking, len(tables))
        context.log.info("%s", said)
        stored = MaintenanceCursor(
            position=position + len(seen), asked=asking.asked, told=told
        ).stored()
        if not asking.plan.groups:
            return dg.SensorResult(skip_reason=said, cursor=stored, asset_events=evaluations)
        request = _request(job, keeper, asking)
        return dg.SensorResult(run_requests=[request], cursor=stored, asset_events=evaluations)

    return maintain_tables


@dataclass(frozen=True)
class Asking:
    """What this tick asks for, what it leaves for later, and who has to wait and why."""

    plan: RunPlan
    asked: dict[str, Asked]
    waiting: Mapping[str, str]
    due: tuple[Action, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        """What the run is asked to do."""
        return tuple(action for group in self.plan.groups for action in group.actions)


def _asking(
    keeper: Keeper,
    policy: MaintenancePolicy,
    seen: Seen,
    asked: Mapping[str, Asked],
    latest: "Mapping[str, Latest]",
    under_way: frozenset[str] | None,
    left_behind: int,
) -> Asking:
    from lakehouse_dagster.maintenance.survey import Looked

    now = keeper.runtime.clock.now()
    decisions = [looked.decision for looked in seen.values() if isinstance(looked, Looked)]
    due = [decision for decision in decisions if decision.actions]
    reasons = {d.table: waits(d.table, asked, latest.get(d.table), under_way, now) for d in due}
    waiting = {table: why for table, why in reasons.items() if why is not None}
    free: list[Decision] = [decision for decision in due if decision.table not in waiting]
    # What a dead run left behind is settled by the next one: it must not keep that from running.
    running = len(keeper.actions.running()) - left_behind
    plan = within_budget(free, policy.limits, running=max(0, running))
    still = {d.table for d in due}
    kept = {table: a for table, a in asked.items() if table not in seen or table in still}
    for action in (action for group in plan.groups for action in group.actions):
        records = latest[action.table].records if action.table in latest else 0
        before = kept.get(action.table)
        times = before.times + 1 if before is not None and before.records == records else 1
        kept[action.table] = Asked(records=records, times=times, at=now)
    return Asking(plan, kept, waiting, tuple(d.actions[0] for d in due))


def _under_way(
    keeper: Keeper,
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    left_behind: "Sequence[ActionRecord]",
) -> frozenset[str] | None:
    """The tables of runs that have not ended; None for all.

    A run whose process was killed stays unfinished for Dagster, for ever where runs are not
    monitored: it must not keep its tables from being maintained.
    """
    (op_name,) = job.graph.node_dict
    dead = {record.holder for record in left_behind}
    leases = keeper.runtime.leases.all_current(keeper.lease_key(""))
    at_work = {lease.holder for lease in leases.values()}
    long_ago = keeper.runtime.clock.now() - SILENT_RUN_IS_OVER
    found: set[str] = set()
    for record in instance.get_run_records(
        filters=dg.RunsFilter(job_name=job.name, statuses=_UNFINISHED), limit=100
    ):
        holder = dagster_run(record.dagster_run.run_id)
        began = record.start_time
        is_old = began is not None and began < long_ago.timestamp()
        if holder in dead or (is_old and holder not in at_work):
            continue
        config: dict[str, Any] = dict(record.dagster_run.run_config)
        for part in ("ops", op_name, "config"):
            config = config.get(part) or {}
        if not config.get("tables"):
            return None
        found.update(config["tables"])
    return frozenset(found)


def _request(job: dg.JobDefinition, keeper: Keeper, asking: Asking) -> dg.RunRequest:
    """The same request has the same key; one that came to nothing is asked for under another."""
    (op_name,) = job.graph.node_dict
    parts = [
        f"{action.table}/{action.kind.value}/{asked.records}/{asked.times}"
        for action in sorted(asking.actions, key=lambda action: action.table)
        if (asked := asking.asked[action.table])
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    tables = sorted({action.table for action in asking.actions})
    return dg.RunRequest(
        job_name=job.name,
        run_key=f"{keeper.runtime.lakehouse}-maintain-{digest}",
        run_config={"ops": {op_name: {"config": {"tables": tables}}}},
        tags={
            "lakehouse/tables": ", ".join(tables)[:200],
            "lakehouse/reason": "; ".join(map(describe, asking.actions))[:500],
        },
    )


def _summary(seen: Seen, asking: Asking, of_tables: int) -> str:
    said = f"{len(seen)} of {of_tables} tables looked at, {len(asking.due)} due"
    told = [describe(action) for action in asking.due]
    told += [f"{table}: {why}" for table, why in asking.waiting.items()]
    told += [f"later: {p.action.table}: {p.reason}" for p in asking.plan.postponed]
    told += [f"{t}: {found.message}" for t, found in seen.items() if isinstance(found, Exception)]
    more = len(told) - 2 * PROBLEMS_TOLD
    text = "; ".join([f"{said}", *told[: 2 * PROBLEMS_TOLD]])
    return f"{text}; and {more} more." if more > 0 else f"{text}."


@dataclass(frozen=True)
class _News:
    keeper: Keeper
    policy: MaintenancePolicy
    graph: AssetGraph
    now: datetime
    launchpads: Launchpads | None

    def of_checks(
        self,
        seen: Seen,
        told: Mapping[str, tuple[str, datetime]],
        latest: "Mapping[str, Latest]",
    ) -> tuple[list[dg.AssetCheckEvaluation], dict[str, tuple[str, datetime]]]:
        """The checks that changed, were not told of for long, or speak of what an action changed.

        At most so many a tick.
        """
        from lakehouse_dagster.maintenance.survey import Looked

        events: list[dg.AssetCheckEvaluation] = []
        known = dict(told)
        for table, looked in seen.items():
            if looked is None or len(events) >= EVALUATIONS_PER_TICK:
                continue
            outcomes = evaluate(self.keeper, self.policy, table, looked)
            signs = "".join("p" if outcome.passed else "f" for outcome in outcomes.values())
            if EXPIRY_LAG in outcomes and isinstance(looked, Looked):
                # Somebody holds them back, and the check says who.
                signs += "k" if snapshots_are_kept(looked) else ""
            if not signs or not self._is_news(signs, known.get(table), latest.get(table)):
                continue
            known[table] = (signs, self.now.replace(microsecond=0))
            events += [
                evaluation(self.graph, table, name, outcome, self.launchpads)
                for name, outcome in outcomes.items()
            ]
        return events, known

    def _is_news(
        self, signs: str, told: tuple[str, datetime] | None, latest: "Latest | None"
    ) -> bool:
        if told is None or told[0] != signs or self.now - told[1] >= TOLD_AGAIN_AFTER:
            return True
        ended = latest.ended_at if latest is not None else None
        return ended is not None and ended > told[1]

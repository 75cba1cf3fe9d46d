"""The sensors that watch the cluster and the tables, and the runs that they ask for; thin."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import dagster as dg

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.streaming.apply import verb
from lakehouse_dagster.streaming.assets import CANCELLABLE, health_check_keys
from lakehouse_dagster.streaming.definitions import act_on, one_op_job
from lakehouse_dagster.streaming.events import (
    DATA_VERSION,
    evaluations_of,
    progress_materialization,
)
from lakehouse_dagster.streaming.foreign_commits import ForeignCommits, foreign_commits
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.observe import Observation
from lakehouse_dagster.streaming.partition_events import PartitionReporter
from lakehouse_dagster.streaming.progress import ProgressCursor, ProgressEvent, advance, moved
from lakehouse_dagster.streaming.reported import changes
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import ProgressPolicy
from lakehouse_dagster.streaming.supervise import (
    Action,
    SupervisorCursor,
    claim,
    look,
)
from lakehouse_dagster.streaming.table_checks import foreign_evaluation
from lakehouse_dagster.system_db import JobRecord

EVENTS_LOOKED_AT = 100
"""Among so many events of a partitioned table its own latest one is looked for."""
Figures: TypeAlias = Callable[[Sequence[str]], Mapping[str, Mapping[str, int]]]
"""From tables to figures of each, by name."""
PROBLEMS_TOLD = 5
"""The progress sensor says of so many tables why they cannot be read."""


class Work(dg.Config):
    """One job and what to do to it."""

    job: str
    verb: str


class Reconcile(dg.Config):
    """What the supervisor asks for."""

    work: list[Work]


class Waiting(dg.Config):
    """The jobs that wait for a person, and why."""

    jobs: dict[str, str]


def supervisor(
    runtime: Runtime, graph: AssetGraph, *, status: dg.DefaultSensorStatus
) -> tuple[dg.SensorDefinition, tuple[dg.JobDefinition, ...]]:
    """The sensor that watches the cluster, and the jobs it asks for when something is due."""
    prefix = dagster_name(runtime.lakehouse)
    keys = health_check_keys(runtime, graph)

    @dg.op(name=f"{prefix}_reconcile", tags=CANCELLABLE)
    def reconcile(context: dg.OpExecutionContext, config: Reconcile) -> None:
        act_on(runtime, context, [(w.job, verb(w.verb)) for w in config.work])

    job = one_op_job(
        f"{prefix}_reconcile_streaming_jobs",
        reconcile,
        "Bring streaming jobs to their desired state; the supervisor asks for it.",
    )
    alarm = _alarm(prefix)

    @dg.sensor(
        name=f"{prefix}_supervisor",
        jobs=[job, alarm],
        minimum_interval_seconds=max(1, int(runtime.policy.seconds("tick_interval"))),
        default_status=status,
        description="Watches the Flink cluster and keeps every streaming job as it should be.",
    )
    def supervise(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen = look(runtime, SupervisorCursor.parse(context.cursor))
        changed, told = changes(runtime, seen.observations, seen.cursor.health)
        evaluations = [
            evaluation
            for observation, record in changed
            if observation.name in keys
            for evaluation in evaluations_of(runtime, keys, observation, record)
        ]
        cursor = seen.cursor.model_copy(update={"health": told}).model_dump_json()
        requests = []
        if seen.actions:
            run_key = claim(runtime, seen.actions)
            requests.append(_request(job, reconcile.name, run_key, seen.actions))
        if seen.alerts:
            requests.append(_alert(runtime, alarm, prefix, seen.alerts))
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=cursor, asset_events=evaluations)
        return dg.SensorResult(skip_reason=seen.summary(), cursor=cursor, asset_events=evaluations)

    return supervise, (job, alarm)


def _alarm(prefix: str) -> dg.JobDefinition:
    """A run that fails on purpose: what people alert on is a failed run."""

    @dg.op(name=f"{prefix}_wait_for_a_person")
    def wait_for_a_person(config: Waiting) -> None:
        raise dg.Failure(
            "\n".join(f"{job} waits for a person: {why}" for job, why in config.jobs.items()),
            metadata=dict(config.jobs),
            allow_retries=False,
        )

    return one_op_job(
        f"{prefix}_streaming_jobs_need_a_person",
        wait_for_a_person,
        "Fails once for jobs that could not be brought to their desired state: alert on it.",
    )


def _alert(
    runtime: Runtime, alarm: dg.JobDefinition, prefix: str, alerts: Sequence[Observation]
) -> dg.RunRequest:
    now = runtime.clock.now()
    for observation in alerts:
        runtime.memory.set_alerted(observation.name, now)
    records = runtime.memory.state().records
    why = {o.name: _why(o, records[o.name]) for o in alerts}
    return dg.RunRequest(
        job_name=alarm.name,
        run_key=f"{runtime.lakehouse}-alert-{now:%Y%m%dT%H%M%S.%f}",
        run_config={"ops": {f"{prefix}_wait_for_a_person": {"config": {"jobs": why}}}},
        tags={"lakehouse/jobs": ", ".join(why)[:200]},
    )


def _why(observation: Observation, record: JobRecord) -> str:
    text = (
        f"should be {observation.desired.value}, is {observation.observed.value} "
        f"({observation.reason}); {record.attempts} attempts failed"
    )
    return f"{text}, the last because: {record.last_error}" if record.last_error else text


def progress_sensor(
    runtime: Runtime,
    graph: AssetGraph,
    policy: ProgressPolicy,
    *,
    status: dg.DefaultSensorStatus,
    figures: Figures | None = None,
) -> dg.SensorDefinition:
    """The sensor that moves the assets forward as Flink commits snapshots.

    ``figures`` gives what else is told of tables, for as many of them as it has time for.
    """

    reporter = PartitionReporter(runtime, graph, policy)
    order = {spec.key: number for number, spec in enumerate(graph.tables.values())}

    @dg.sensor(
        name=f"{dagster_name(runtime.lakehouse)}_progress",
        minimum_interval_seconds=max(1, int(policy.seconds("tick_interval"))),
        default_status=status,
        description="Reports new snapshots of every table as progress of its asset.",
    )
    def report_progress(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = ProgressCursor.parse(context.cursor)
        now = runtime.clock.now()
        news = moved(runtime.catalog.open(), tuple(graph.tables), cursor, now=now, policy=policy)
        reported = _reported(context.instance, [graph.key(event.table) for event in news.events])
        more = figures([event.table for event in news.events]) if figures else {}
        events = [
            progress_materialization(key, event, now, more.get(event.table))
            for event in news.events
            # A repeat adds nothing to an asset whose latest event is of this snapshot.
            if reported.get(key := graph.key(event.table)) != event.data_version
        ]
        foreign = _foreign_news(context, runtime, cursor, news.events)
        said = f"{len(events)} of {len(graph.tables)} tables moved"
        if news.left_over:
            said += f", {news.left_over} more wait for the next tick"
        of_partitions = reporter.news(context.instance, cursor.partitions, now)
        if of_partitions.events or of_partitions.left_over:
            said += f", {len(of_partitions.events)} partitions told of"
        if of_partitions.left_over:
            said += f", {of_partitions.left_over} more wait"
        said += _in_words({**of_partitions.problems, **news.problems})
        return dg.SensorResult(
            skip_reason=said + ".",
            cursor=advance(
                cursor.model_copy(update={"partitions": dict(of_partitions.cursors)}),
                news.events,
                now,
                {t: found.users or () for t, found in foreign.items()},
            ).stored(),
            asset_events=[
                # Upstream first, and of a table its partitions first: what it shows is the last.
                *sorted([*of_partitions.events, *events], key=lambda e: order[e.asset_key]),
                *(foreign_evaluation(graph.key(t), found) for t, found in foreign.items()),
                *of_partitions.checks,
            ],
        )

    return report_progress


def _in_words(problems: Mapping[str, str]) -> str:
    """What is wrong with the tables: all of a few, the first of many (a catalog that is down)."""
    named = sorted(problems.items())
    told = "".join(f"; {table}: {problem}" for table, problem in named[:PROBLEMS_TOLD])
    more = len(named) - PROBLEMS_TOLD
    return told if more <= 0 else f"{told}; and {more} more tables cannot be read"


def _foreign_news(
    context: dg.SensorEvaluationContext,
    runtime: Runtime,
    cursor: ProgressCursor,
    events: Sequence[ProgressEvent],
) -> dict[str, ForeignCommits]:
    """Of the tables that moved and that our jobs write: who else committed, if that is news."""
    written = {table for job in runtime.jobs.values() for table in job.sink_keys}
    news: dict[str, ForeignCommits] = {}
    for event in events:
        if event.table not in written:
            continue
        try:
            found = foreign_commits(runtime, event.table, event.writing_users)
        except SystemDatabaseError as error:  # progress does not wait for it
            context.log.warning("Who wrote %s is not known: %s", event.table, error.message)
            continue
        known = cursor.tables.get(event.table)
        told = known.foreign if known is not None else None
        if found.users is not None and found.users != told:
            news[event.table] = found
    return news


def _reported(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, str | None]:
    """The data version of the latest event of each asset that has one; asked in one go."""
    versions: dict[dg.AssetKey, str | None] = {}
    for record in instance.get_asset_records(keys) if keys else ():
        entry = record.asset_entry.last_materialization
        latest = entry.asset_materialization if entry is not None else None
        if latest is not None and latest.partition is not None:
            latest = _of_whole_table(instance, latest.asset_key)
        if latest is not None:
            versions[latest.asset_key] = (latest.tags or {}).get(DATA_VERSION)
    return versions


def _of_whole_table(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> dg.AssetMaterialization | None:
    """The latest event that is not of one partition, if it is among the latest at all."""
    for record in instance.fetch_materializations(key, limit=EVENTS_LOOKED_AT).records:
        event = record.asset_materialization
        if event is not None and event.partition is None:
            return event
    return None


def _request(
    job: dg.JobDefinition, op_name: str, run_key: str, actions: Sequence[Action]
) -> dg.RunRequest:
    attempts = ",".join(f"{a.job}#{a.attempt}" for a in actions)
    return dg.RunRequest(
        job_name=job.name,
        run_key=run_key,
        run_config={
            "ops": {
                op_name: {
                    "config": {"work": [{"job": a.job, "verb": a.verb.value} for a in actions]}
                }
            }
        },
        tags={
            "lakehouse/jobs": ", ".join(a.job for a in actions)[:200],
            "lakehouse/attempts": attempts[:200],
            "lakehouse/reason": "; ".join(f"{a.job}: {a.reason}" for a in actions)[:500],
        },
    )

"""The Dagster face of the streaming room: jobs and sensors here, assets in ``assets.py``; thin."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import dagster as dg
from pydantic import Field

from lakehouse_dagster.errors import JobNotFoundError, SystemDatabaseError
from lakehouse_dagster.streaming.apply import Allowed, Applied, apply, verb
from lakehouse_dagster.streaming.assets import CANCELLABLE, health_check_keys
from lakehouse_dagster.streaming.events import (
    DATA_VERSION,
    HealthCheckKeys,
    check_evaluations,
    progress_materialization,
)
from lakehouse_dagster.streaming.foreign_commits import ForeignCommits, foreign_commits
from lakehouse_dagster.streaming.graph import AssetGraph, dagster_name
from lakehouse_dagster.streaming.observe import Observation, Verb
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.outcomes import OutcomeRow, in_words, row
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


class ChosenJobs(dg.Config):
    """Which streaming jobs to act on."""

    jobs: list[str] = Field(
        description="Names of streaming jobs. There is no way to say all: name them."
    )


class StartJobs(ChosenJobs):
    """Which streaming jobs to start, and which state may be given up."""

    allow_empty_start: bool = Field(
        default=False,
        description="Start from nothing if no restore point is left; sources are read anew.",
    )
    allow_state_loss: bool = Field(
        default=False,
        description="Start a changed script although some of the kept state does not fit it.",
    )


class ChangeJobs(ChosenJobs):
    """Which streaming jobs to bring to their present script, and whether state may be given up."""

    allow_state_loss: bool = Field(
        default=False,
        description="Go on although some of the kept state does not fit the changed script.",
    )


class AdoptJobs(ChosenJobs):
    """Which running jobs to take over."""

    flink_job_id: str | None = Field(
        default=None,
        description="The Flink job to take over, if it bears another name. Then name one job.",
    )


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


def job_actions(runtime: Runtime) -> list[dg.JobDefinition]:
    """The Dagster jobs by which a person acts on chosen streaming jobs."""
    prefix = dagster_name(runtime.lakehouse)

    def act(context: dg.OpExecutionContext, name: Verb, config: ChosenJobs, **may: Any) -> None:
        _require_known(runtime, config.jobs, orphans_too=verb(name).on_orphans)
        for job in config.jobs:
            runtime.memory.reset_attempts(job)  # a person acts: it no longer waits for one
        chosen = verb(name, Allowed(**may))
        _do(runtime, context, [(job, chosen) for job in config.jobs])

    @dg.op(name=f"{prefix}_start", tags=CANCELLABLE)
    def start(context: dg.OpExecutionContext, config: StartJobs) -> None:
        act(
            context,
            Verb.START,
            config,
            empty_start=config.allow_empty_start,
            state_loss=config.allow_state_loss,
        )

    @dg.op(name=f"{prefix}_stop", tags=CANCELLABLE)
    def stop(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        act(context, Verb.STOP, config)

    @dg.op(name=f"{prefix}_cancel", tags=CANCELLABLE)
    def cancel(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        act(context, Verb.CANCEL, config)

    @dg.op(name=f"{prefix}_restart", tags=CANCELLABLE)
    def restart(context: dg.OpExecutionContext, config: ChangeJobs) -> None:
        act(context, Verb.RESTART, config, state_loss=config.allow_state_loss)

    @dg.op(name=f"{prefix}_upgrade", tags=CANCELLABLE)
    def upgrade(context: dg.OpExecutionContext, config: ChangeJobs) -> None:
        act(context, Verb.UPGRADE, config, state_loss=config.allow_state_loss)

    @dg.op(name=f"{prefix}_adopt", tags=CANCELLABLE)
    def adopt(context: dg.OpExecutionContext, config: AdoptJobs) -> None:
        if config.flink_job_id and len(config.jobs) != 1:
            raise dg.Failure("A Flink job can be adopted as one streaming job only.")
        act(context, Verb.ADOPT, config, flink_job_id=config.flink_job_id)

    @dg.op(name=f"{prefix}_forget", tags=CANCELLABLE)
    def forget(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        act(context, Verb.FORGET, config)

    descriptions = {
        start: "Start chosen streaming jobs, or adopt those that run; resume suspended ones.",
        stop: "Stop chosen streaming jobs with a savepoint, from which the next start goes on.",
        cancel: "Cancel chosen streaming jobs without a savepoint; checkpoints are kept.",
        restart: "Stop chosen streaming jobs with a savepoint and start them from it.",
        upgrade: "Bring changed scripts of chosen streaming jobs to the cluster, upstream first.",
        adopt: "Take over running jobs that are not on record, or that were started by hand.",
        forget: "Forget streaming jobs that do not run, such as those whose script is gone.",
    }
    return [
        _job(f"{op.name}_streaming_jobs", op, description)
        for op, description in descriptions.items()
    ]


def supervisor(
    runtime: Runtime, graph: AssetGraph, *, status: dg.DefaultSensorStatus
) -> tuple[dg.SensorDefinition, tuple[dg.JobDefinition, ...]]:
    """The sensor that watches the cluster, and the jobs it asks for when something is due."""
    prefix = dagster_name(runtime.lakehouse)
    keys = health_check_keys(runtime, graph)

    @dg.op(name=f"{prefix}_reconcile", tags=CANCELLABLE)
    def reconcile(context: dg.OpExecutionContext, config: Reconcile) -> None:
        _do(runtime, context, [(w.job, verb(w.verb)) for w in config.work])

    job = _job(
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
        evaluations = _evaluations(runtime, keys, changed)
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

    return _job(
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
) -> dg.SensorDefinition:
    """The sensor that moves the assets forward as Flink commits snapshots."""

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
        events = [
            progress_materialization(key, event, now)
            for event in news.events
            # A repeat adds nothing to an asset whose latest event is of this snapshot.
            if reported.get(key := graph.key(event.table)) != event.data_version
        ]
        foreign = _foreign_news(context, runtime, cursor, news.events)
        said = f"{len(events)} of {len(graph.tables)} tables moved"
        if news.left_over:
            said += f", {news.left_over} more wait for the next tick"
        for table, problem in sorted(news.problems.items()):
            said += f"; {table}: {problem}"
        return dg.SensorResult(
            skip_reason=said + ".",
            cursor=advance(
                cursor, news.events, now, {t: found.users or () for t, found in foreign.items()}
            ).model_dump_json(),
            asset_events=[
                *events,
                *(foreign_evaluation(graph.key(t), found) for t, found in foreign.items()),
            ],
        )

    return report_progress


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
        if latest is not None:
            versions[latest.asset_key] = (latest.tags or {}).get(DATA_VERSION)
    return versions


def _evaluations(
    runtime: Runtime, keys: HealthCheckKeys, changed: Sequence[tuple[Observation, JobRecord]]
) -> list[dg.AssetCheckEvaluation]:
    """The health checks of the jobs of which there is something new to tell."""
    now = runtime.clock.now()
    return [
        evaluation
        for observation, record in changed
        if observation.name in keys
        for evaluation in check_evaluations(
            keys,
            observation,
            record,
            now,
            runtime.policy,
            runtime.memory.incarnations(observation.name),
            runtime.cluster.rest_url,
        )
    ]


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


def _job(name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    @dg.job(name=name, description=description, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job


def _require_known(runtime: Runtime, names: Sequence[str], *, orphans_too: bool) -> None:
    """Refuse a name that is no job's before anything is done to the others."""
    for name in names:
        try:
            job_or_orphan(runtime, name) if orphans_too else runtime.job(name)
        except JobNotFoundError as error:
            raise dg.Failure(str(error), allow_retries=False) from error


def _do(runtime: Runtime, context: dg.OpExecutionContext, work: Sequence[tuple[str, Any]]) -> None:
    if not work:
        raise dg.Failure(
            "No streaming job was named.",
            metadata={"jobs": ", ".join(sorted(runtime.jobs))},
            allow_retries=False,
        )
    each_once = list(dict(work).items())
    results = apply(runtime, each_once, holder=f"Dagster run {context.run_id}", log=context.log)
    context.add_output_metadata({"jobs": dg.MetadataValue.table(_records(results), schema=_SCHEMA)})
    for result in results:
        if result.outcome is not None:
            context.log.info("%s.", in_words(result.outcome))
    failed = [result for result in results if result.error is not None]
    if failed:
        raise dg.Failure(
            "\n".join(f"{result.job}: {result.error}" for result in failed),
            metadata={result.job: str(result.error) for result in failed},
            allow_retries=False,
        )


_COLUMNS = tuple(column.name for column in fields(OutcomeRow))
_SCHEMA = dg.TableSchema(columns=[dg.TableColumn(name, type="string") for name in _COLUMNS])


def _records(results: Sequence[Applied]) -> list[dg.TableRecord]:
    return [dg.TableRecord(asdict(row(result))) for result in results]

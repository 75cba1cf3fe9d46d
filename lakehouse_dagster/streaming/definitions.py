"""The Dagster face of the streaming room: jobs and sensors here, assets in ``assets.py``; thin."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dagster as dg
from pydantic import Field

from lakehouse_dagster.errors import JobNotFoundError
from lakehouse_dagster.streaming.apply import Applied, apply, verb
from lakehouse_dagster.streaming.assets import CANCELLABLE, health_check_keys
from lakehouse_dagster.streaming.events import (
    DATA_VERSION,
    HealthCheckKeys,
    check_evaluations,
    health,
    progress_materialization,
)
from lakehouse_dagster.streaming.graph import AssetGraph, dagster_name
from lakehouse_dagster.streaming.observe import waits_for_a_person
from lakehouse_dagster.streaming.progress import ProgressCursor, advance, moved
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import ProgressPolicy
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.streaming.supervise import (
    Action,
    Look,
    SupervisorCursor,
    claim,
    look,
)
from lakehouse_dagster.system_db import DesiredState, JobRecord


class ChosenJobs(dg.Config):
    """Which streaming jobs to act on."""

    jobs: list[str] = Field(
        description="Names of streaming jobs. There is no way to say all: name them."
    )


class StartJobs(ChosenJobs):
    """Which streaming jobs to start, and whether lost state may be given up."""

    allow_empty_start: bool = Field(
        default=False,
        description="Start from nothing if no restore point is left; sources are read anew.",
    )


class Work(dg.Config):
    """One job and what to do to it (start, stop or cancel)."""

    job: str
    verb: str


class Reconcile(dg.Config):
    """What the supervisor asks for."""

    work: list[Work]


def job_actions(runtime: Runtime) -> list[dg.JobDefinition]:
    """The Dagster jobs that start, stop, cancel and restart chosen streaming jobs."""
    prefix = dagster_name(runtime.lakehouse)

    @dg.op(name=f"{prefix}_start", tags=CANCELLABLE)
    def start(context: dg.OpExecutionContext, config: StartJobs) -> None:
        chosen = verb("start", allow_empty_start=config.allow_empty_start)
        _forget_attempts(runtime, config.jobs)
        _do(runtime, context, [(name, chosen) for name in config.jobs])

    @dg.op(name=f"{prefix}_stop", tags=CANCELLABLE)
    def stop(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        _require_declared(runtime, config.jobs)
        _do(runtime, context, [(name, verb("stop")) for name in config.jobs])

    @dg.op(name=f"{prefix}_cancel", tags=CANCELLABLE)
    def cancel(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        _require_declared(runtime, config.jobs)
        _do(runtime, context, [(name, verb("cancel")) for name in config.jobs])

    @dg.op(name=f"{prefix}_restart", tags=CANCELLABLE)
    def restart(context: dg.OpExecutionContext, config: ChosenJobs) -> None:
        _forget_attempts(runtime, config.jobs)
        _do(runtime, context, [(name, verb("restart")) for name in config.jobs])

    descriptions = {
        start: "Start chosen streaming jobs, or adopt those that run; resume suspended ones.",
        stop: "Stop chosen streaming jobs with a savepoint, from which the next start goes on.",
        cancel: "Cancel chosen streaming jobs without a savepoint; checkpoints are kept.",
        restart: "Stop chosen streaming jobs with a savepoint and start them from it.",
    }
    return [
        _job(f"{op.name}_streaming_jobs", op, description)
        for op, description in descriptions.items()
    ]


def supervisor(
    runtime: Runtime, graph: AssetGraph, *, status: dg.DefaultSensorStatus
) -> tuple[dg.SensorDefinition, dg.JobDefinition]:
    """The sensor that watches the cluster, and the job it asks for when something is due."""
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

    @dg.sensor(
        name=f"{prefix}_supervisor",
        job=job,
        minimum_interval_seconds=max(1, int(runtime.policy.seconds("tick_interval"))),
        default_status=status,
        description="Watches the Flink cluster and keeps every streaming job as it should be.",
    )
    def supervise(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen = look(runtime, SupervisorCursor.parse(context.cursor))
        evaluations, reported = _changes(runtime, keys, seen)
        cursor = seen.cursor.model_copy(update={"health": reported}).model_dump_json()
        if not seen.actions:
            return dg.SensorResult(
                skip_reason=seen.summary(), cursor=cursor, asset_events=evaluations
            )
        run_key = claim(runtime, seen.actions)
        return dg.SensorResult(
            run_requests=[_request(reconcile.name, run_key, seen.actions)],
            cursor=cursor,
            asset_events=evaluations,
        )

    return supervise, job


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
        events = [
            progress_materialization(graph.key(event.table), event, now)
            for event in news.events
            if not _is_reported(context.instance, graph.key(event.table), event.data_version)
        ]
        said = f"{len(events)} of {len(graph.tables)} tables moved"
        if news.left_over:
            said += f", {news.left_over} more wait for the next tick"
        for table, problem in sorted(news.problems.items()):
            said += f"; {table}: {problem}"
        return dg.SensorResult(
            skip_reason=said + ".",
            cursor=advance(cursor, news.events, now).model_dump_json(),
            asset_events=events,
        )

    return report_progress


def _is_reported(instance: dg.DagsterInstance, key: dg.AssetKey, data_version: str) -> bool:
    """Whether the asset's latest event is of this snapshot: then a repeat adds nothing."""
    latest = instance.get_latest_materialization_event(key)
    if latest is None or latest.asset_materialization is None:
        return False
    return (latest.asset_materialization.tags or {}).get(DATA_VERSION) == data_version


def _changes(
    runtime: Runtime, keys: HealthCheckKeys, seen: Look
) -> tuple[list[dg.AssetCheckEvaluation], dict[str, str]]:
    """Health evaluations of the jobs whose state or error is another than last reported."""
    records = {record.name: record for record in runtime.memory.all()}
    now = runtime.clock.now()
    evaluations: list[dg.AssetCheckEvaluation] = []
    reported: dict[str, str] = {}
    for observation in seen.observations:
        record = records[observation.name]
        passed, _, _ = health(observation, record, now, runtime.policy)
        state = "/".join(
            (
                observation.desired.value,
                observation.observed.value,
                "passed" if passed else "failed",
                "waits" if waits_for_a_person(record, now, runtime.policy) else "acts",
                hashlib.sha256((record.last_error or "").encode()).hexdigest()[:8],
                _since_someone_acted(record, now),
            )
        )
        reported[observation.name] = state
        if seen.cursor.health.get(observation.name) != state:
            evaluations += check_evaluations(keys, observation, record, now, runtime.policy)
    return evaluations, reported


def _since_someone_acted(record: JobRecord, now: datetime) -> str:
    """Changes a few times in the minutes after a run or command acted on the job.

    A run that materialises a table also evaluates its checks, and Dagster shows that result as "not
    evaluated" from the next progress event on; ours, which is tied to no event, must come after it.
    """
    if record.desired is DesiredState.UNMANAGED:
        return "nobody"
    age_seconds = (now - record.updated_at).total_seconds()
    return f"{record.updated_at:%Y%m%dT%H%M%S}+{min(int(age_seconds // 30), 6)}"


def _request(op_name: str, run_key: str, actions: Sequence[Action]) -> dg.RunRequest:
    attempts = ",".join(f"{a.job}#{a.attempt}" for a in actions)
    return dg.RunRequest(
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


def _require_declared(runtime: Runtime, names: Sequence[str]) -> None:
    """Refuse a name that is no job's before anything is done to the others."""
    for name in names:
        try:
            runtime.job(name)
        except JobNotFoundError as error:
            raise dg.Failure(str(error), allow_retries=False) from error


def _forget_attempts(runtime: Runtime, names: Sequence[str]) -> None:
    """A person acts: the job no longer waits for one."""
    _require_declared(runtime, names)
    for name in names:
        runtime.memory.reset_attempts(name)


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
    failed = [result for result in results if result.error is not None]
    if failed:
        raise dg.Failure(
            "\n".join(f"{result.job}: {result.error}" for result in failed),
            metadata={result.job: str(result.error) for result in failed},
            allow_retries=False,
        )


_COLUMNS = ("job", "outcome", "incarnation", "flink_job_id", "restored_from")
_SCHEMA = dg.TableSchema(columns=[dg.TableColumn(name, type="string") for name in _COLUMNS])


def _records(results: Sequence[Applied]) -> list[dg.TableRecord]:
    rows = []
    for result in results:
        outcome = result.outcome
        row = dict.fromkeys(_COLUMNS, "")
        row["job"] = result.job
        if isinstance(outcome, StartOutcome):
            row.update(
                outcome=outcome.how.value,
                incarnation=str(outcome.incarnation),
                flink_job_id=outcome.flink_job_id,
                restored_from=outcome.restored_from or "nothing",
            )
        elif outcome is not None:
            row.update(
                outcome=outcome.how.value,
                incarnation=str(outcome.incarnation or ""),
                restored_from=outcome.savepoint_path or "",
            )
        else:
            row["outcome"] = f"failed: {result.error}"
        rows.append(dg.TableRecord(row))
    return rows

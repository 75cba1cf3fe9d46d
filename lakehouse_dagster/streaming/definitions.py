"""The Dagster jobs by which people act on streaming jobs; sensors are in ``sensors.py``."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import dagster as dg
from pydantic import Field

from lakehouse_dagster.errors import JobNotFoundError
from lakehouse_dagster.streaming.apply import Acts, Allowed, Applied, apply, verb
from lakehouse_dagster.streaming.assets import CANCELLABLE
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.observe import Verb
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.outcomes import OutcomeRow, in_words, row
from lakehouse_dagster.streaming.runtime import Runtime, dagster_run


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


def job_actions(runtime: Runtime) -> list[dg.JobDefinition]:
    """The Dagster jobs by which a person acts on chosen streaming jobs."""
    prefix = dagster_name(runtime.lakehouse)

    def act(context: dg.OpExecutionContext, name: Verb, config: ChosenJobs, **may: Any) -> None:
        _require_known(runtime, config.jobs, orphans_too=verb(name).on_orphans)
        for job in config.jobs:
            runtime.memory.reset_attempts(job)  # a person acts: it no longer waits for one
        chosen = verb(name, Allowed(**may))
        act_on(runtime, context, [(job, chosen) for job in config.jobs])

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
        one_op_job(f"{op.name}_streaming_jobs", op, description)
        for op, description in descriptions.items()
    ]


def one_op_job(name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """A Dagster job of one op, run in the process of its run."""

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


def act_on(
    runtime: Runtime, context: dg.OpExecutionContext, work: Sequence[tuple[str, Acts]]
) -> None:
    """Do each (job name, verb), show what came of it, and fail the run if one failed."""
    if not work:
        raise dg.Failure(
            "No streaming job was named.",
            metadata={"jobs": ", ".join(sorted(runtime.jobs))},
            allow_retries=False,
        )
    each_once = list(dict(work).items())
    results = apply(runtime, each_once, holder=dagster_run(context.run_id), log=context.log)
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

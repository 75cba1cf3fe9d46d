"""Start a streaming job, or adopt it when it runs already: exactly one of it, whatever fails.

The order is what makes it so. The last incarnation is settled; the next one is written down with
its Flink job id and its own gateway session; only then is the INSERT posted, once. If the answer is
lost the job is looked for by that id and never sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lakehouse_dagster.errors import (
    ConfigurationError,
    FlinkError,
    LeaseLostError,
    SqlExecutionError,
    StreamingJobError,
)
from lakehouse_dagster.flink import (
    FlinkJobStatus,
    JobManager,
    Session,
    SqlGateway,
    job_ids_with_checkpoints,
)
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming.engine import refuse_unfit_engine
from lakehouse_dagster.streaming.previous import Settled, now_on_cluster, settle
from lakehouse_dagster.streaming.restore import RestoreChoice, choose_restore_point
from lakehouse_dagster.streaming.running import explained, wait_until_running
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.session import close, fill_in, prepare_session
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    flink_job_id,
)


class StartedHow(str, Enum):
    """Whether a job was there already."""

    STARTED = "started"
    ADOPTED = "adopted"


@dataclass(frozen=True)
class StartOutcome:
    """One job that certainly runs now. ``restored_from`` is None for a start from nothing."""

    job: str
    how: StartedHow
    incarnation: int
    flink_job_id: str
    restored_from: str | None
    reason: str


def start_or_adopt(
    held: HeldJob, *, allow_empty_start: bool = False, log: logging.Logger = LOGGER
) -> StartOutcome:
    """Make sure that exactly one incarnation of the job runs, and return which.

    Raises ``ClusterUnreachableError`` (nothing was started), ``NoRestorePointError``,
    ``SqlExecutionError`` (Flink refused the script), ``StateIncompatibleError`` or another
    ``StreamingJobError``; afterwards either one incarnation runs or none does.
    """
    memory = held.runtime.memory
    before = memory.ensure(held.name).desired
    memory.set_desired(held.name, DesiredState.RUNNING)
    try:
        outcome = _start_or_adopt(held, allow_empty_start, log)
    except Exception:
        raise
    except BaseException:
        # Cancelling a run does not change what is wanted of the job. (CANCELED: see _abandon.)
        if memory.ensure(held.name).desired is DesiredState.RUNNING:
            memory.set_desired(held.name, before)
        raise
    memory.set_error(held.name, None)
    return outcome


def _start_or_adopt(held: HeldJob, allow_empty_start: bool, log: logging.Logger) -> StartOutcome:
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        refuse_unfit_engine(held.runtime.cluster, held.runtime.catalog.warehouse)
        configuration = job_manager.configuration()
        directory = _checkpoint_directory(held, configuration)
        ids = job_ids_with_checkpoints(directory)
        settled = settle(held, job_manager, gateway, log, ids_with_checkpoints=ids)
        if settled.alive:
            return _adopt(held, settled, job_manager, gateway, log)
        choice = choose_restore_point(
            held.name,
            held.runtime.memory.incarnations(held.name),
            checkpoint_directory=directory,
            ids_with_checkpoints=ids,
            allow_empty_start=allow_empty_start,
        )
        log.info("Starting %s: %s.", held.name, choice.reason)
        return _start(held, settled, choice, job_manager, gateway, log)


def _checkpoint_directory(held: HeldJob, configuration: Mapping[str, str]) -> str:
    directory = job_settings.checkpoint_directory(
        configuration, held.job.definition, held.runtime.environ
    )
    if directory is None:
        raise ConfigurationError(
            f"Neither the cluster {held.runtime.cluster.name} nor the script of {held.name} sets "
            "execution.checkpointing.dir, so nothing could be restored after a failure.",
            remedy="Set it in the cluster's configuration, or by SET in the script.",
        )
    if not job_settings.checkpoint_interval_is_set(configuration, held.job.definition):
        raise ConfigurationError(
            f"Neither the cluster {held.runtime.cluster.name} nor the script of {held.name} sets "
            "execution.checkpointing.interval; without checkpoints Paimon never commits.",
            remedy="Add SET 'execution.checkpointing.interval' = '1min'; to the script.",
        )
    return directory


def _adopt(
    held: HeldJob,
    settled: Settled,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> StartOutcome:
    incarnation = settled.incarnation
    assert incarnation is not None
    log.info("Incarnation %d of %s runs already.", incarnation.number, held.name)
    if settled.status is not FlinkJobStatus.RESTARTING:  # restarting is Flink's own work
        wait_until_running(held, incarnation, job_manager, log)
    _close_session(held, incarnation, gateway, log)
    return StartOutcome(
        held.name,
        StartedHow.ADOPTED,
        incarnation.number,
        incarnation.flink_job_id,
        incarnation.restored_from,
        "it runs already",
    )


def _start(
    held: HeldJob,
    settled: Settled,
    choice: RestoreChoice,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> StartOutcome:
    number = settled.highest_number + 1
    job_id = flink_job_id(held.runtime.identity, held.name, number)
    statement = fill_in(held.job.definition.statement, held.runtime.environ)
    config = job_settings.submission_settings(
        held.job.definition,
        environ=held.runtime.environ,
        flink_job_id=job_id,
        catalog=held.runtime.catalog.name,
        restore_from=choice.path,
        flink_restart_attempts=held.runtime.policy.flink_restart_attempts,
    )
    session = prepare_session(held, gateway, log)
    try:
        held.still_ours()
        incarnation = held.runtime.memory.record(
            held.name,
            number=number,
            flink_job_id=job_id,
            fingerprint=held.job.definition.fingerprint,
            restored_from=choice.path,
            fencing=held.lease.fencing,
            session_handle=session.handle,
        )
    except BaseException:
        close(session, log)
        raise
    # From here on the incarnation is on record: whatever happens, it is settled by its id.
    try:
        _submit(held, incarnation, session, statement, config, job_manager, log)
        wait_until_running(held, incarnation, job_manager, log)
    except LeaseLostError:
        raise  # whoever took over decides what becomes of it
    except Exception as error:
        held.runtime.memory.set_error(held.name, str(error))
        raise
    except BaseException:
        _abandon(held, incarnation, session, job_manager, log)
        raise
    _close_session(held, incarnation, gateway, log)
    return StartOutcome(held.name, StartedHow.STARTED, number, job_id, choice.path, choice.reason)


def _submit(
    held: HeldJob,
    incarnation: Incarnation,
    session: Session,
    statement: str,
    config: Mapping[str, str],
    job_manager: JobManager,
    log: logging.Logger,
) -> None:
    """Post the INSERT once and wait until the job is on the cluster."""
    policy, memory = held.runtime.policy, held.runtime.memory
    held.still_ours()
    try:
        operation = session.submit(statement, config=config)
        memory.update(
            held.name,
            incarnation.number,
            state=IncarnationState.SUBMITTED,
            operation_handle=operation.handle,
            submitted_at=held.runtime.clock.now(),
        )
        operation.wait(policy.seconds("submission_timeout"), held.runtime.clock.on_wait)
    except FlinkError as error:
        # Also a refusal is checked: the gateway may have given up on a submission that arrived.
        log.warning(
            "The submission of %s went wrong (%s); looking for Flink job %s.",
            held.name,
            error.message,
            incarnation.flink_job_id,
        )
        _look_for(held, incarnation, session, job_manager, error)


def _look_for(
    held: HeldJob,
    incarnation: Incarnation,
    session: Session,
    job_manager: JobManager,
    error: FlinkError,
) -> None:
    """Find a job whose submission got no answer; kill the submission if it does not show up."""
    clock, policy = held.runtime.clock, held.runtime.policy
    refused = isinstance(error, SqlExecutionError)
    wait = clock.deadline(0 if refused else policy.seconds("submission_timeout") / 4)
    grace = None
    while True:
        if grace is None and wait():
            session.delete()  # what is still under way dies with its session, or shows up at once
            grace = clock.deadline(policy.seconds("late_submission_grace"))
        passed = grace is not None and grace()
        if job_manager.job(incarnation.flink_job_id) is not None:
            return
        if passed:
            break
        clock.sleep(0.5)
    if isinstance(error, SqlExecutionError):
        held.over(incarnation, f"refused: {error.root_cause}")
        raise explained(held, error.root_cause) from error
    held.over(incarnation, "never appeared on the cluster")
    raise StreamingJobError(
        f"The submission of {held.name} got no answer and its Flink job "
        f"{incarnation.flink_job_id} did not appear: {error.message}",
        remedy="The next attempt starts a new incarnation.",
    ) from error


def _abandon(
    held: HeldJob,
    incarnation: Incarnation,
    session: Session,
    job_manager: JobManager,
    log: logging.Logger,
) -> None:
    """Cancelled while starting: stop what we started, and say so.

    Every step is tried whatever became of the one before, and none of the waits is cut short. What
    cannot be stopped now is stopped by the supervisor when it shows up: CANCELED is written first,
    and taken back once it is certain that nothing runs.
    """
    log.warning("Cancelled while starting %s: stopping what was started.", held.name)
    clock, policy = held.runtime.clock, held.runtime.policy
    try:
        held.still_ours()
    except LeaseLostError:
        return  # whoever took over decides what becomes of it
    held.runtime.memory.set_desired(held.name, DesiredState.CANCELED)
    close(session, log)
    end = clock.deadline(policy.seconds("late_submission_grace"))
    while True:
        passed = end()
        try:
            if _is_gone(job_manager, incarnation.flink_job_id, passed):
                held.over(incarnation, "cancelled while starting")
                held.runtime.memory.set_desired(held.name, DesiredState.RUNNING)
                return
        except FlinkError as error:
            if passed:
                log.warning("What was started of %s could not be stopped: %s", held.name, error)
                return
        clock.pause(0.3)


def _is_gone(job_manager: JobManager, job_id: str, late_ones_show: bool) -> bool:
    """Whether the job has ended or will not appear any more; one that lives is cancelled."""
    job = now_on_cluster(job_manager, job_id)
    if job is None:
        return late_ones_show
    if not job.status.is_terminal:
        job_manager.cancel(job_id)
    return job.status.is_terminal


def _close_session(
    held: HeldJob, incarnation: Incarnation, gateway: SqlGateway, log: logging.Logger
) -> None:
    """The INSERT's operation has ended, so its session is of no more use.

    The job runs whether or not the gateway still answers.
    """
    if incarnation.session_handle is None:
        return
    close(gateway.session(incarnation.session_handle), log)
    held.runtime.memory.update(held.name, incarnation.number, session_handle=None)

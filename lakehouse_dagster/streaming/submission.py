"""One incarnation on its way to the cluster: recorded, posted once, looked for by its id.

If the answer to the INSERT is lost the job is looked for by that id and never sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lakehouse_dagster.errors import (
    FlinkError,
    LeaseLostError,
    SqlExecutionError,
    StreamingJobError,
)
from lakehouse_dagster.flink import JobManager, Session, SqlGateway
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming import versions
from lakehouse_dagster.streaming.marker import Marker
from lakehouse_dagster.streaming.previous import now_on_cluster
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.running import explained, wait_until_running
from lakehouse_dagster.streaming.runtime import HeldJob, Runtime
from lakehouse_dagster.streaming.session import Prepared, close
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    flink_job_id,
)


def launch(
    held: HeldJob,
    prepared: Prepared,
    number: int,
    choice: RestoreChoice,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
    *,
    ignore_unclaimed_state: bool = False,
    wanted_while_abandoned: DesiredState = DesiredState.CANCELED,
    same_failure_at_most: int | None = None,
) -> Incarnation:
    """Record the next incarnation, submit it, and wait until all its tasks run.

    The session of ``prepared`` is closed in any case. When the work is cancelled, what was started
    is stopped; ``wanted_while_abandoned`` is what is wanted of the job until that is certain. A job
    that fails more often than ``same_failure_at_most`` by one cause is not waited for any longer.

    Raises what ``start_or_adopt`` raises; afterwards the incarnation runs, or is over, or (when
    nobody answers) is on record and settled by its id.
    """
    job_id = flink_job_id(held.runtime.identity, held.name, number)
    marker = Marker(held.runtime.identity, held.name, number, prepared.operator_name)
    config = job_settings.incarnation_settings(
        prepared.settings,
        marker,
        flink_job_id=job_id,
        restore_from=choice.path,
        ignore_unclaimed_state=ignore_unclaimed_state,
    )
    session = prepared.session
    try:
        held.still_ours()
        versions.remember(held, prepared.plan)
        incarnation = held.runtime.memory.record(
            held.name,
            number=number,
            flink_job_id=job_id,
            fingerprint=held.job.fingerprint,
            restored_from=choice.path,
            fencing=held.lease.fencing,
            session_handle=session.handle,
        )
    except BaseException:
        close(session, log)
        raise
    # From here on the incarnation is on record: whatever happens, it is settled by its id.
    try:
        _submit(held, incarnation, session, prepared.statement, config, job_manager, log)
        close_session(held, incarnation, gateway, log)
        wait_until_running(
            held, incarnation, job_manager, log, same_failure_at_most=same_failure_at_most
        )
    except LeaseLostError:
        raise  # whoever took over decides what becomes of it
    except Exception as error:
        held.runtime.memory.set_error(held.name, str(error))
        raise
    except BaseException:
        close(session, log)
        abandon(held, incarnation, job_manager, log, meanwhile=wanted_while_abandoned)
        raise
    return incarnation


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
    """Find a job whose submission got no answer; if it does not show up, that is the error."""
    refused = isinstance(error, SqlExecutionError)
    patience = 0 if refused else held.runtime.policy.seconds("submission_timeout") / 4
    job_id = incarnation.flink_job_id
    if shows_up(held.runtime, session, job_id, job_manager, patience_seconds=patience):
        return
    if isinstance(error, SqlExecutionError):
        held.over(incarnation, f"refused: {error.root_cause}")
        raise explained(held, error.root_cause) from error
    held.over(incarnation, "never appeared on the cluster")
    raise StreamingJobError(
        f"The submission of {held.name} got no answer and its Flink job {job_id} did not appear: "
        f"{error.message}",
        remedy="The next attempt starts a new incarnation.",
    ) from error


def shows_up(
    runtime: Runtime,
    session: Session,
    job_id: str,
    job_manager: JobManager,
    *,
    patience_seconds: float,
) -> bool:
    """Whether a Flink job whose submission went wrong is on the cluster after all.

    After the patience the session is deleted: what is still under way dies with it, or shows up
    within a grace. So False is certain.

    Raises:
        FlinkError: nobody answers, so nothing is certain.
    """
    clock = runtime.clock
    wait, grace = clock.deadline(patience_seconds), None
    while True:
        passed = grace is not None and grace()
        if job_manager.job(job_id) is not None:
            return True
        if passed:
            return False
        if grace is None and wait():
            session.delete()
            grace = clock.deadline(runtime.policy.seconds("late_submission_grace"))
        clock.sleep(0.5)


def abandon(
    held: HeldJob,
    incarnation: Incarnation,
    job_manager: JobManager,
    log: logging.Logger,
    *,
    meanwhile: DesiredState = DesiredState.CANCELED,
) -> None:
    """Cancelled while starting: stop what we started, and say so.

    Every step is tried whatever became of the one before, and none of the waits is cut short. What
    cannot be stopped now is stopped by the supervisor when it shows up: CANCELED is written first
    (``meanwhile``), and taken back once it is certain that nothing runs.
    """
    log.warning("Cancelled while starting %s: stopping what was started.", held.name)
    clock, policy = held.runtime.clock, held.runtime.policy
    try:
        held.still_ours()
    except LeaseLostError:
        return  # whoever took over decides what becomes of it
    held.runtime.memory.set_desired(held.name, meanwhile)
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


def close_session(
    held: HeldJob, incarnation: Incarnation, gateway: SqlGateway, log: logging.Logger
) -> None:
    """The INSERT's operation has ended, so its session is of no more use.

    The job runs whether or not the gateway still answers.
    """
    if incarnation.session_handle is None:
        return
    close(gateway.session(incarnation.session_handle), log)
    held.runtime.memory.update(held.name, incarnation.number, session_handle=None)

"""Stop a streaming job with a savepoint, or cancel it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lakehouse_dagster.errors import (
    AnswerLostError,
    ConfigurationError,
    OperationTimeoutError,
    StreamingJobError,
)
from lakehouse_dagster.flink import FlinkJobStatus, JobManager, SqlGateway
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming import versions
from lakehouse_dagster.streaming.previous import (
    Settled,
    cancel_and_wait,
    now_on_cluster,
    settle,
    wait_until_over,
)
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.waiting import Waiting
from lakehouse_dagster.system_db import DesiredState, Incarnation, IncarnationState

_NOT_ALL_TASKS_RUN = "Not all required tasks are currently running"
_UNKNOWN_TRIGGER = "the cluster does not know the savepoint's trigger"


class StoppedHow(str, Enum):
    """What was done to the job, if anything."""

    STOPPED = "stopped"
    CANCELLED = "cancelled"
    DID_NOT_RUN = "did not run"


@dataclass(frozen=True)
class StopOutcome:
    """One job that certainly does not run now.

    ``savepoint_path`` is the savepoint of this stop, or, of a job that did not run, the one that
    its newest incarnation left; None where there is none.
    """

    job: str
    how: StoppedHow
    incarnation: int | None
    savepoint_path: str | None


def stop_with_savepoint(held: HeldJob, *, log: logging.Logger = LOGGER) -> StopOutcome:
    """Stop the job with a savepoint from which the next start goes on (SUSPENDED).

    A job that keeps no state is cancelled.
    Raises ``OperationTimeoutError`` when the savepoint does not complete in time; the job then
    goes on running, and its desired state is what it was.
    """
    before = held.runtime.memory.ensure(held.name).desired
    held.runtime.memory.set_desired(held.name, DesiredState.SUSPENDED)
    try:
        with (
            held.runtime.cluster.job_manager() as job_manager,
            held.runtime.cluster.sql_gateway() as gateway,
        ):
            return stop_running(held, job_manager, gateway, log)
    except BaseException:
        held.runtime.memory.set_desired(held.name, before)
        raise


def cancel(held: HeldJob, *, log: logging.Logger = LOGGER) -> StopOutcome:
    """Cancel the job without a savepoint; its retained checkpoints stay."""
    held.runtime.memory.ensure(held.name)
    held.runtime.memory.set_desired(held.name, DesiredState.CANCELED)
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        settled = settle(held, job_manager, gateway, log)
        if not settled.alive or settled.incarnation is None:
            return _did_not_run(held, settled, log)
        return _cancelled(held, settled.incarnation, job_manager, log)


def stop_running(
    held: HeldJob,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
    *,
    gives_up: Callable[[], bool] = lambda: False,
) -> StopOutcome:
    """``stop_with_savepoint`` without a change of what is wanted of the job.

    While Flink restarts its tasks it is asked again, unless ``gives_up()`` then.
    """
    clock, policy = held.runtime.clock, held.runtime.policy
    too_late = clock.deadline(policy.seconds("stop_timeout"))
    directory = _savepoint_directory(held, job_manager) if held.job.keeps_state else None
    while True:
        settled = settle(held, job_manager, gateway, log)
        incarnation = settled.incarnation
        if not settled.alive or incarnation is None:
            return _did_not_run(held, settled, log)
        if not held.job.keeps_state:
            return _cancelled(held, incarnation, job_manager, log)
        _remember_plan(held, incarnation, job_manager)
        path, failure = _savepoint(held, incarnation, directory, job_manager, log)
        if path is not None:
            return _stopped(held, incarnation, path, job_manager, log)
        # A definite failure while Flink restarts tasks: ask anew once they run (facts, operating).
        if too_late() or _NOT_ALL_TASKS_RUN not in (failure or "") or gives_up():
            raise StreamingJobError(
                f"Flink could not stop {held.name} with a savepoint: {failure}",
                remedy="The job runs on. Stop it again, or cancel it: its checkpoints are kept.",
            )
        log.info("%s is restarting; the savepoint is asked for again once it runs.", held.name)
        clock.sleep(2)


def see_stop_through(
    held: HeldJob, incarnation: Incarnation, job_manager: JobManager, log: logging.Logger
) -> bool:
    """Whether a stop that nobody waited for (cancelled, killed) ends this job; waits until it has.

    Raises ``OperationTimeoutError`` when its savepoint does not complete in time.
    """
    trigger_id = incarnation.stop_trigger_id
    if trigger_id is None:
        return False
    path, _ = _wait_for_savepoint(held, incarnation, trigger_id, job_manager, log)
    if path is None:
        held.runtime.memory.update(held.name, incarnation.number, stop_trigger_id=None)
        return False
    _stopped(held, incarnation, path, job_manager, log)
    return True


def _cancelled(
    held: HeldJob, incarnation: Incarnation, job_manager: JobManager, log: logging.Logger
) -> StopOutcome:
    status = cancel_and_wait(held, job_manager, incarnation.flink_job_id)
    held.over(incarnation, status.value if status else "CANCELED")
    log.info("Cancelled %s.", held.name)
    return StopOutcome(held.name, StoppedHow.CANCELLED, incarnation.number, None)


def _remember_plan(held: HeldJob, incarnation: Incarnation, job_manager: JobManager) -> None:
    """Of a job that we did not submit, what its savepoint's operators are is known only now."""
    if versions.plan_of(held.runtime, incarnation) is None:
        plan = job_manager.execution_plan(incarnation.flink_job_id)
        held.runtime.memory.save_version(held.name, incarnation.fingerprint, None, plan.to_json())


def _did_not_run(held: HeldJob, settled: Settled, log: logging.Logger) -> StopOutcome:
    log.info("%s does not run.", held.name)
    latest = settled.incarnation
    return StopOutcome(
        held.name,
        StoppedHow.DID_NOT_RUN,
        latest.number if latest else None,
        latest.savepoint_path if latest else None,
    )


def _savepoint_directory(held: HeldJob, job_manager: JobManager) -> str | None:
    """Where the savepoint goes; None: where the cluster is configured to put it."""
    wanted = job_settings.savepoint_directory(held.job.definition, held.runtime.environ)
    configuration = job_manager.configuration()
    if wanted is None and not any(map(configuration.get, job_settings.SAVEPOINT_DIRECTORIES)):
        raise ConfigurationError(
            f"Neither the cluster {held.runtime.cluster.name} nor the script of {held.name} sets "
            "execution.checkpointing.savepoint-dir, so it cannot be stopped with a savepoint.",
            remedy="Set it in the cluster's configuration, or by SET in the script; or cancel the "
            "job, which then goes on from its newest checkpoint.",
        )
    return wanted


def _savepoint(
    held: HeldJob,
    incarnation: Incarnation,
    directory: str | None,
    job_manager: JobManager,
    log: logging.Logger,
) -> tuple[str | None, str | None]:
    """Trigger a stop under a recorded trigger id and wait for its result: path or failure."""
    memory = held.runtime.memory
    trigger_id = uuid.uuid4().hex
    memory.update(
        held.name,
        incarnation.number,
        state=IncarnationState.STOPPING,
        stop_trigger_id=trigger_id,
    )
    path: str | None = None
    failure: str | None = None
    try:
        held.still_ours()
        log.info("Stopping %s with a savepoint.", held.name)
        try:
            job_manager.stop_with_savepoint(
                incarnation.flink_job_id, trigger_id=trigger_id, target_directory=directory
            )
        except AnswerLostError as error:
            log.warning("%s Following the savepoint by its trigger id.", error.message)
        path, failure = _wait_for_savepoint(held, incarnation, trigger_id, job_manager, log)
        return path, failure
    finally:
        if path is None:
            # The job runs on. Should its savepoint complete after all, the trigger id finds it.
            may_complete = failure in (None, _UNKNOWN_TRIGGER)
            memory.update(
                held.name,
                incarnation.number,
                state=IncarnationState.RUNNING,
                stop_trigger_id=trigger_id if may_complete else None,
            )


def _wait_for_savepoint(
    held: HeldJob,
    incarnation: Incarnation,
    trigger_id: str,
    job_manager: JobManager,
    log: logging.Logger,
) -> tuple[str | None, str | None]:
    clock, policy = held.runtime.clock, held.runtime.policy
    waiting = Waiting(clock, log)
    end = clock.deadline(policy.seconds("stop_timeout"))
    must_be_known = clock.deadline(policy.seconds("late_submission_grace"))
    while not end():
        result = job_manager.savepoint_result(incarnation.flink_job_id, trigger_id)
        if result is None and must_be_known():
            return None, _UNKNOWN_TRIGGER
        if result is not None and result.done:
            return result.location, result.failure
        waiting.say(f"the savepoint of {held.name}")
        clock.sleep(0.2)
    raise OperationTimeoutError(
        f"The savepoint of {held.name} is not complete after {policy.stop_timeout}.",
        remedy="The job runs on. Look at its checkpoints in Flink's web page.",
    )


def _stopped(
    held: HeldJob,
    incarnation: Incarnation,
    path: str,
    job_manager: JobManager,
    log: logging.Logger,
) -> StopOutcome:
    # Written down first: the savepoint is the next restore point whatever happens now.
    held.runtime.memory.update(
        held.name,
        incarnation.number,
        savepoint_path=path,
        savepoint_at=held.runtime.clock.now(),
    )
    too_late = held.runtime.clock.deadline(held.runtime.policy.seconds("start_timeout") / 3)
    while True:
        job = now_on_cluster(job_manager, incarnation.flink_job_id)
        if job is None or job.status.is_terminal:
            break
        if too_late() or job.status is FlinkJobStatus.RESTARTING:
            # A stop can complete its savepoint and leave a restarting job alive: cancel it.
            job_manager.cancel(incarnation.flink_job_id)
            wait_until_over(held, job_manager, incarnation.flink_job_id)
            break
        held.runtime.clock.sleep(0.2)
    held.over(
        incarnation,
        "stopped with savepoint",
        state=IncarnationState.STOPPED,
        savepoint_path=path,
    )
    log.info("Stopped %s; savepoint %s.", held.name, path)
    return StopOutcome(held.name, StoppedHow.STOPPED, incarnation.number, path)

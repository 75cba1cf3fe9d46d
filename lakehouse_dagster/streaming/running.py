"""A submitted job on its way to running: waited for, and what went wrong told with its cause."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lakehouse_dagster.errors import (
    OperationTimeoutError,
    StateIncompatibleError,
    StreamingJobError,
)
from lakehouse_dagster.flink import FlinkJobStatus, JobException, JobManager, JobSummary
from lakehouse_dagster.streaming.previous import now_on_cluster, wait_until_over
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.streaming.waiting import Waiting
from lakehouse_dagster.system_db import Incarnation, IncarnationState

_STATE_DOES_NOT_FIT = (
    "StateMigrationException",
    "Cannot map checkpoint/savepoint state",
    "Failed to rollback to checkpoint/savepoint",
)


SAME_FAILURE_AT_MOST = 2
"""A new version that fails more often than this by one cause, without a checkpoint, is given up."""


def wait_until_running(
    held: HeldJob,
    incarnation: Incarnation,
    job_manager: JobManager,
    log: logging.Logger,
    *,
    same_failure_at_most: int | None = None,
) -> None:
    """Wait until all tasks run; a job that ends or cannot read its state is an error now.

    One that Flink restarts is waited for until it is too late, unless it fails more often than
    ``same_failure_at_most`` by one cause.
    """
    clock, policy = held.runtime.clock, held.runtime.policy
    too_late = clock.deadline(policy.seconds("start_timeout"))
    waiting = Waiting(clock, log)
    while True:
        job = now_on_cluster(job_manager, incarnation.flink_job_id)
        if job is not None and job.status is FlinkJobStatus.FINISHED:
            break  # it read bounded sources to their end
        if job is not None and job.status.is_terminal:
            cause = _root_cause(job_manager.exceptions(incarnation.flink_job_id))
            held.over(incarnation, f"{job.status.value}: {cause}")
            raise explained(held, cause)
        if job is not None and job.status is FlinkJobStatus.RUNNING and job.all_tasks_run:
            break
        if job is not None and job.status is FlinkJobStatus.RESTARTING:
            failures = job_manager.exceptions(incarnation.flink_job_id)
            cause = _root_cause(failures)
            if any(sign in cause for sign in _STATE_DOES_NOT_FIT):
                job_manager.cancel(incarnation.flink_job_id)
                wait_until_over(held, job_manager, incarnation.flink_job_id)
                held.over(incarnation, cause)
                raise explained(held, cause)
            if same_failure_at_most is not None and _again(failures) > same_failure_at_most:
                raise explained(held, cause)
        if too_late():
            raise _not_running_in_time(held, job, job_manager)
        tasks = f"{job.tasks_running}/{job.tasks_total} tasks run" if job else "not there yet"
        waiting.say(held.name, tasks)
        clock.sleep(0.2)
    held.runtime.memory.update(
        held.name,
        incarnation.number,
        state=IncarnationState.RUNNING,
        running_at=incarnation.running_at or clock.now(),
    )


def wait_for_first_checkpoint(
    held: HeldJob, incarnation: Incarnation, job_manager: JobManager, log: logging.Logger
) -> None:
    """Wait until a job has completed a checkpoint of its own, after its last failure if it had one.

    Raises ``StateIncompatibleError``, another ``StreamingJobError`` when it ends or fails again and
    again by the same cause, ``OperationTimeoutError`` when no checkpoint comes in time.
    """
    clock, policy = held.runtime.clock, held.runtime.policy
    too_late = clock.deadline(policy.seconds("first_checkpoint_timeout"))
    job_id, waiting = incarnation.flink_job_id, Waiting(clock, log)
    while True:
        job = now_on_cluster(job_manager, job_id)
        if job is not None and job.status is FlinkJobStatus.FINISHED:
            return
        failures = job_manager.exceptions(job_id) if job is not None else ()
        cause = _root_cause(failures)
        if job is None or job.status.is_terminal:
            held.over(incarnation, f"{job.status.value if job else 'gone'}: {cause}")
            raise explained(held, cause)
        unfit = any(sign in cause for sign in _STATE_DOES_NOT_FIT)
        if unfit or _again(failures) > SAME_FAILURE_AT_MOST:
            raise explained(held, cause)
        newest = job_manager.checkpoints(job_id).latest_completed
        runs = job.status is FlinkJobStatus.RUNNING and job.all_tasks_run
        failed_at = failures[0].occurred_at if failures else None
        if newest and runs and (failed_at is None or newest.completed_at > failed_at):
            return
        if too_late():
            raise OperationTimeoutError(
                f"{held.name} has completed no checkpoint within "
                f"{policy.first_checkpoint_timeout}"
                + (f"; it last failed with {cause}." if failures else "."),
                remedy="Look at its checkpoints in Flink's web page.",
            )
        waiting.say(f"the first checkpoint of {held.name}")
        clock.sleep(0.2)


def explained(held: HeldJob, cause: str) -> StreamingJobError:
    location = held.job.definition.location
    where = f"{location.path}:{location.line}"
    if any(sign in cause for sign in _STATE_DOES_NOT_FIT):
        return StateIncompatibleError(
            f"The kept state of {held.name} does not fit its script ({where}): {cause}",
            remedy=(
                "Undo the change and start again (the restore point is untouched), or give the "
                "job another name (SET 'pipeline.name'): under a new name it starts from nothing."
            ),
        )
    return StreamingJobError(
        f"Flink could not run {held.name} ({where}): {cause}",
        remedy="Correct the script or the cluster, then start the job again.",
    )


def _root_cause(failures: Sequence[JobException]) -> str:
    """Of the newest failure."""
    return failures[0].root_cause if failures else "Flink names no cause"


def _again(failures: Sequence[JobException]) -> int:
    """How often it failed by the cause of its newest failure."""
    return sum(failure.root_cause == failures[0].root_cause for failure in failures)


def _not_running_in_time(
    held: HeldJob, job: JobSummary | None, job_manager: JobManager
) -> OperationTimeoutError:
    text = f"Streaming job {held.name} is "
    text += job.status.value if job else "not on the cluster"
    text += f" after {held.runtime.policy.start_timeout}"
    if job is not None:
        text += f", {job.tasks_running} of {job.tasks_total} tasks running"
        if failures := job_manager.exceptions(job.job_id):
            text += f": {_root_cause(failures)}"
    return OperationTimeoutError(f"{text}.", remedy=_what_it_waits_for(job_manager))


def _what_it_waits_for(job_manager: JobManager) -> str:
    overview = job_manager.overview()
    if overview.slots_available == 0:
        return (
            f"All {overview.slots_total} task slots of the cluster are taken: add a TaskManager "
            "or stop another job."
        )
    return "Look at its tasks in Flink's web page."

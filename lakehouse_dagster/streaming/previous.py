"""What became of a job's earlier incarnations, settled before another may be recorded.

A streaming job has numbered incarnations whose Flink job ids follow from their numbers, so every
incarnation can be looked for on the cluster, also one whose submission got no answer. The next one
may only be recorded when the last is certainly over: that is decided here, and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakehouse_dagster.errors import OperationTimeoutError
from lakehouse_dagster.flink import (
    FlinkJobStatus,
    JobManager,
    JobSummary,
    SqlGateway,
    seconds_until_lost,
)
from lakehouse_dagster.streaming.foreign import marker_of, strangers
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.system_db import Incarnation, IncarnationState, flink_job_id

LOOKAHEAD = 64
"""So many numbers above the highest known are looked for, in case the database is an old one."""
LOOKAHEAD_FROM_NOTHING = 4096
"""The same when nothing is on record, in case the database was lost."""

_OVER = (IncarnationState.STOPPED, IncarnationState.ENDED, IncarnationState.SUPERSEDED)


@dataclass(frozen=True)
class Settled:
    """The newest incarnation, and whether it lives on the cluster.

    ``status`` is None when the cluster certainly does not have it; ``incarnation`` is None when
    the job never ran. ``highest_number`` is the highest number seen anywhere (0: none).
    ``foreign`` are running jobs of the same name that are not ours.
    """

    incarnation: Incarnation | None
    status: FlinkJobStatus | None
    highest_number: int
    foreign: tuple[JobSummary, ...] = ()

    @property
    def alive(self) -> bool:
        return self.status is not None and not self.status.is_terminal


def own_numbers(lakehouse: str, job: str, highest: int) -> dict[str, int]:
    """The Flink job ids that incarnations of this job have or could have, with their numbers."""
    lookahead = LOOKAHEAD if highest else LOOKAHEAD_FROM_NOTHING
    return {flink_job_id(lakehouse, job, n): n for n in range(1, highest + lookahead + 1)}


def known_numbers(lakehouse: str, job: str, recorded: Iterable[Incarnation]) -> dict[str, int]:
    """The same, with those on record: an adopted or renamed job has ids of another making."""
    on_record = {incarnation.flink_job_id: incarnation.number for incarnation in recorded}
    return own_numbers(lakehouse, job, max(on_record.values(), default=0)) | on_record


def settle(
    held: HeldJob,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
    *,
    ids_with_checkpoints: frozenset[str] = frozenset(),
) -> Settled:
    """Find out what the newest incarnation does; cancel older ones that still run.

    Raises ``ClusterUnreachableError`` when the cluster or gateway cannot be asked: then nothing is
    decided and nothing may be started.
    """
    runtime, jobs = held.runtime, job_manager.jobs()
    recorded = runtime.memory.incarnations(held.name)
    numbers = known_numbers(runtime.identity, held.name, recorded)
    unknown = [job for job in jobs if job.job_id not in numbers]
    strange = strangers(runtime, job_manager, held.name, unknown)
    numbers |= {job.job_id: number for number, job in strange.forgotten}
    on_cluster = {numbers[job.job_id]: job for job in jobs if job.job_id in numbers}
    with_checkpoints = {numbers[i]: i for i in ids_with_checkpoints if i in numbers}
    latest = recorded[0] if recorded else None
    latest = _remember_unknown(held, latest, on_cluster, with_checkpoints, job_manager, log)
    for number, job in on_cluster.items():
        if latest is not None and number < latest.number and not job.status.is_terminal:
            log.warning("Incarnation %d of %s is superseded: cancelling it.", number, held.name)
            cancel_and_wait(held, job_manager, job.job_id)
    settled = _settle_latest(held, latest, on_cluster, job_manager, gateway, log)
    return replace(settled, foreign=strange.foreign)


def _settle_latest(
    held: HeldJob,
    latest: Incarnation | None,
    on_cluster: Mapping[int, JobSummary],
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> Settled:
    if latest is None:
        return Settled(None, None, 0)
    if latest.number in on_cluster:
        job = on_cluster[latest.number]
        if job.status is FlinkJobStatus.CANCELLING:
            wait_until_over(held, job_manager, job.job_id)
            job = now_on_cluster(job_manager, job.job_id) or job
        return _seen(held, latest, job, job_manager)
    if latest.state in _OVER:
        return Settled(latest, None, latest.number)
    return _confirm_absent(held, latest, job_manager, gateway, log)


def now_on_cluster(job_manager: JobManager, job_id: str) -> JobSummary | None:
    """A job as it is now; None when the JobManager does not know it.

    The overview is never old, as ``/jobs/:id`` is by up to ``web.refresh-interval`` (3 s); but it
    leaves a job out whose own JobMaster does not answer, so that it is gone only the latter says.
    """
    shown = next((job for job in job_manager.jobs() if job.job_id == job_id), None)
    return shown or job_manager.job(job_id)


def cancel_and_wait(held: HeldJob, job_manager: JobManager, job_id: str) -> FlinkJobStatus | None:
    """Cancel a job that is ours to cancel, and wait until it is over; its status then."""
    held.still_ours()
    job_manager.cancel(job_id)
    return wait_until_over(held, job_manager, job_id)


def wait_until_over(held: HeldJob, job_manager: JobManager, job_id: str) -> FlinkJobStatus | None:
    """Wait until a job has ended or is gone; raises ``OperationTimeoutError`` if it does not."""
    clock, policy = held.runtime.clock, held.runtime.policy
    too_late = clock.deadline(policy.seconds("start_timeout"))
    while True:
        job = now_on_cluster(job_manager, job_id)
        if job is None or job.status.is_terminal:
            return job.status if job else None
        if too_late():
            raise OperationTimeoutError(
                f"Flink job {job_id} of {held.name} is still {job.status.value} after "
                f"{policy.start_timeout}.",
                remedy="Look at its tasks in Flink's web page.",
            )
        clock.sleep(0.3)


def _remember_unknown(
    held: HeldJob,
    latest: Incarnation | None,
    on_cluster: Mapping[int, JobSummary],
    with_checkpoints: Mapping[int, str],
    job_manager: JobManager,
    log: logging.Logger,
) -> Incarnation | None:
    """Write down incarnations that are not in the database (lost, or an older backup).

    They show on the cluster or by the folder of their checkpoints: the job has run, whatever the
    database says, so it must be adopted or restored, never started from nothing.
    """
    seen = {number: job.job_id for number, job in on_cluster.items()} | dict(with_checkpoints)
    for number in sorted(seen):
        if latest is not None and number <= latest.number:
            continue
        log.warning(
            "Incarnation %d of %s is not in the system database: writing it down.",
            number,
            held.name,
        )
        recorded = held.runtime.memory.record(
            held.name,
            number=number,
            flink_job_id=seen[number],
            fingerprint="",
            restored_from=None,
            fencing=held.lease.fencing,
            session_handle=None,
        )
        if number not in on_cluster:
            latest = held.over(recorded, "known only by its checkpoints")
            continue
        latest = held.runtime.memory.update(held.name, number, state=IncarnationState.RUNNING)
        _remember_operator_name(held, on_cluster[number], job_manager)
    return latest


def _remember_operator_name(held: HeldJob, job: JobSummary, job_manager: JobManager) -> None:
    """What its operator ids are made from: another name than its own after a rename."""
    marker = marker_of(job_manager, job)
    if marker is not None and marker.operator_name != held.name:
        held.runtime.memory.set_operator_name(held.name, marker.operator_name)


def _seen(held: HeldJob, latest: Incarnation, job: JobSummary, job_manager: JobManager) -> Settled:
    if job.status.is_terminal and latest.state not in _OVER:
        latest = held.over(
            latest,
            job.status.value,
            at=job.ended_at,
            savepoint_path=savepoint_left_by(latest, job, job_manager),
        )
    return Settled(latest, job.status, latest.number)


def savepoint_left_by(latest: Incarnation, job: JobSummary, job_manager: JobManager) -> str | None:
    """The savepoint with which a finished job was stopped: by us (and we died), or by hand."""
    if job.status is not FlinkJobStatus.FINISHED:
        return None
    if latest.stop_trigger_id is not None:
        result = job_manager.savepoint_result(job.job_id, latest.stop_trigger_id)
        if result is not None and result.location is not None:
            return result.location
    savepoint = job_manager.checkpoints(job.job_id).latest_savepoint
    return savepoint.external_path if savepoint else None


def _confirm_absent(
    held: HeldJob,
    latest: Incarnation,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> Settled:
    """Make sure that an incarnation which the cluster does not show will not appear any more.

    Its gateway session is deleted first (a submission under way dies with it, or shows up within
    about a second: facts, operating.md), then its id is looked for until the grace has passed.
    """
    clock, policy = held.runtime.clock, held.runtime.policy
    log.info(
        "Incarnation %d of %s is not on the cluster; making sure for %s.",
        latest.number,
        held.name,
        policy.late_submission_grace,
    )
    if latest.session_handle is not None:
        gateway.session(latest.session_handle).delete()
    least = max(policy.seconds("late_submission_grace"), policy.seconds("lost_after"))
    ran = latest.state not in (IncarnationState.RECORDED, IncarnationState.SUBMITTED)
    # What ran may come back by itself where the JobManager is highly available.
    over = clock.deadline(seconds_until_lost(job_manager, least) if ran else least)
    while True:
        passed = over()  # asked before the look, so that one look comes after the grace
        job = job_manager.job(latest.flink_job_id)
        if job is not None:
            return _seen(held, latest, job, job_manager)
        if passed and all(j.job_id != latest.flink_job_id for j in job_manager.jobs()):
            break
        clock.sleep(0.5)
    gone = held.over(latest, "lost by the cluster" if ran else "never appeared on the cluster")
    return Settled(gone, None, gone.number)

"""Take over a job that runs already: one of ours that the database has lost, or one of others."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

from lakehouse_dagster.errors import ForeignJobError, StreamingJobError
from lakehouse_dagster.flink import JobManager, JobSummary
from lakehouse_dagster.streaming.previous import Settled, settle
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.system_db import DesiredState, IncarnationState, Origin


class AdoptedHow(str, Enum):
    """What there was to adopt."""

    OURS = "ours, which runs"
    BY_HAND = "started by hand"
    NOTHING = "nothing runs"


@dataclass(frozen=True)
class AdoptOutcome:
    """What was adopted, if anything; ``note`` says what a person should know about it."""

    job: str
    how: AdoptedHow
    incarnation: int | None
    flink_job_id: str | None
    note: str


_IDS_ARE_NOT_OURS = (
    "Its operator ids are not ours: restarted with the same SQL it keeps its state; before its "
    "first upgrade its state is examined, and what would be lost is said."
)


def adopt(
    held: HeldJob, *, flink_job_id: str | None = None, log: logging.Logger = LOGGER
) -> AdoptOutcome:
    """Make a running job the newest incarnation of this one, and want it RUNNING from now on.

    Nothing is submitted or stopped. ``flink_job_id`` names a job that was started by hand under
    another name, or one of several.

    Raises ``ForeignJobError`` when it cannot be told which job is meant, ``StreamingJobError`` when
    there is none.
    """
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        settled = settle(held, job_manager, gateway, log)
        if settled.alive and settled.incarnation is not None:
            return _ours(held, settled, flink_job_id)
        chosen = _chosen(held, settled, job_manager, flink_job_id)
    held.still_ours()
    number = settled.highest_number + 1
    memory = held.runtime.memory
    memory.record(
        held.name,
        number=number,
        flink_job_id=chosen.job_id,
        fingerprint="",
        restored_from=None,
        fencing=held.lease.fencing,
        session_handle=None,
        origin=Origin.ADOPTED,
    )
    memory.update(held.name, number, state=IncarnationState.RUNNING, running_at=chosen.started_at)
    memory.set_operator_name(held.name, "")
    memory.set_desired(held.name, DesiredState.RUNNING)
    memory.set_error(held.name, None)
    log.info("Adopted Flink job %s as incarnation %d of %s.", chosen.job_id, number, held.name)
    return AdoptOutcome(held.name, AdoptedHow.BY_HAND, number, chosen.job_id, _IDS_ARE_NOT_OURS)


def adopt_own(held: HeldJob, *, log: logging.Logger = LOGGER) -> AdoptOutcome:
    """Write down what runs of this job although the database does not know it; never foreign jobs.

    For a system database that was lost or is an old copy. A job that does not run stays as it is.
    """
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        settled = settle(held, job_manager, gateway, log)
    if settled.alive and settled.incarnation is not None:
        return _ours(held, settled, None)
    foreign = ", ".join(job.job_id for job in settled.foreign)
    note = f"Flink job {foreign} of its name was not started by this project." if foreign else ""
    return AdoptOutcome(held.name, AdoptedHow.NOTHING, None, None, note)


def _ours(held: HeldJob, settled: Settled, flink_job_id: str | None) -> AdoptOutcome:
    incarnation = settled.incarnation
    assert incarnation is not None
    if flink_job_id not in (None, incarnation.flink_job_id):
        raise ForeignJobError(
            f"Incarnation {incarnation.number} of {held.name} runs as Flink job "
            f"{incarnation.flink_job_id}, so {flink_job_id} cannot be adopted beside it.",
            remedy="Stop one of them first.",
        )
    memory = held.runtime.memory
    if memory.ensure(held.name).desired is not DesiredState.RUNNING:
        memory.set_desired(held.name, DesiredState.RUNNING)
    beside = ", ".join(job.job_id for job in settled.foreign)
    return AdoptOutcome(
        held.name,
        AdoptedHow.OURS,
        incarnation.number,
        incarnation.flink_job_id,
        f"Flink job {beside} of the same name runs beside it." if beside else "",
    )


def _chosen(
    held: HeldJob, settled: Settled, job_manager: JobManager, flink_job_id: str | None
) -> JobSummary:
    if flink_job_id is not None:
        job = job_manager.job(flink_job_id)
        if job is None or job.status.is_terminal:
            raise StreamingJobError(
                f"Flink job {flink_job_id} does not run, so {held.name} cannot adopt it.",
                remedy="Look for its id in Flink's web page.",
            )
        return job
    if len(settled.foreign) == 1:
        return settled.foreign[0]
    if not settled.foreign:
        raise StreamingJobError(
            f"No job named {held.name} runs on the cluster, so there is nothing to adopt.",
            remedy=f"Start it with `lakehouse jobs start {held.name}`, or name a job of another "
            "name with --job-id.",
        )
    ids = ", ".join(job.job_id for job in settled.foreign)
    raise ForeignJobError(
        f"Several jobs named {held.name} run on the cluster: Flink jobs {ids}.",
        remedy="Stop all but one in Flink, then adopt that one.",
    )

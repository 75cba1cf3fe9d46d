"""What the system database gives back: frozen records, readable without SQLAlchemy."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

JOB_ID_NAMESPACE = uuid.UUID("6f1d0f0a-3c58-5b0e-9d57-0a6e4c1d7b21")
"""Never change it: the ids of all jobs that ever ran follow from it."""


def flink_job_id(lakehouse: str, job_name: str, number: int) -> str:
    """The Flink job id of a job's n-th incarnation, known before it is submitted.

    Args:
        lakehouse: name of the lakehouse.
        job_name: name of the streaming job.
        number: number of the incarnation, from 1.

    Returns:
        32 hexadecimal digits, the form that Flink's ``$internal.pipeline.job-id`` takes.
    """
    return uuid.uuid5(JOB_ID_NAMESPACE, f"{lakehouse}/{job_name}/{number}").hex


class DesiredState(str, Enum):
    """What the user wants of a job."""

    UNMANAGED = "UNMANAGED"
    """Nobody has started or adopted it yet: it is looked at, never acted on."""
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """Stopped with a savepoint, to be resumed."""
    CANCELED = "CANCELED"


class IncarnationState(str, Enum):
    """How far one life of a job has come, as far as we know."""

    RECORDED = "RECORDED"
    """Written down before it is submitted: it may or may not exist on the cluster."""
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    """Stopped with a savepoint."""
    ENDED = "ENDED"
    """Failed, finished, cancelled, lost, or never started."""
    SUPERSEDED = "SUPERSEDED"
    """A later incarnation was recorded: should this one be seen on the cluster, it is cancelled."""

    @property
    def is_over(self) -> bool:
        """Whether this incarnation must not be running any more."""
        return self in (
            IncarnationState.STOPPED,
            IncarnationState.ENDED,
            IncarnationState.SUPERSEDED,
        )


class Origin(str, Enum):
    """How an incarnation came to be."""

    SUBMITTED = "submitted"
    """We submitted it, under an id chosen beforehand."""
    ADOPTED = "adopted"
    """A person started it by hand, and asked us to look after it."""


@dataclass(frozen=True)
class Lease:
    """The right to act on one job or table, until it expires.

    ``fencing`` is higher than that of every earlier lease on the key: whoever holds a lower number
    has lost its right, whatever it believes.
    """

    key: str
    holder: str
    fencing: int
    expires_at: datetime
    ttl_seconds: float


def wait_for_lease(ends_at: datetime | None) -> str:
    """What a person can do who would act on what a lease is on; None: it ends just now."""
    end = f"at {ends_at:%Y-%m-%d %H:%M:%S} UTC" if ends_at is not None else "now"
    return (
        "Wait for it to end, or cancel it, and try again; should it have died, its lease ends "
        f"{end}."
    )


@dataclass(frozen=True)
class JobRecord:
    """What is wanted of a streaming job, and how the attempts to bring it there went."""

    name: str
    desired: DesiredState
    fingerprint: str | None
    """Fingerprint of the script that the latest incarnation was recorded with."""
    attempts: int
    next_attempt_at: datetime | None
    last_error: str | None
    updated_at: datetime
    operator_name: str | None = None
    """The name that operator ids and the commit user are made from; None: the job's own name;
    empty: the ids are not ours (a job that was started by hand)."""
    alerted_at: datetime | None = None
    """When a person was asked to look at the job; None when nobody needs to."""

    @property
    def effective_operator_name(self) -> str:
        """The name that operator ids are made from; empty when the ids are not ours."""
        return self.name if self.operator_name is None else self.operator_name


@dataclass(frozen=True)
class Incarnation:
    """One life of a streaming job."""

    job_name: str
    number: int
    flink_job_id: str
    fingerprint: str
    state: IncarnationState
    session_handle: str | None
    operation_handle: str | None
    restored_from: str | None
    fencing: int
    recorded_at: datetime
    submitted_at: datetime | None
    running_at: datetime | None
    """When it was first seen with all its tasks running; None if it never got so far."""
    ended_at: datetime | None
    stop_trigger_id: str | None
    savepoint_path: str | None
    checkpoint_path: str | None
    checkpoint_id: int | None
    checkpoint_at: datetime | None
    restarts: int
    """How often Flink has restarted its tasks."""
    restarts_before_window: int
    restart_window_at: datetime | None
    """When the window began in which recent restarts are counted."""
    end_reason: str | None
    origin: Origin = Origin.SUBMITTED
    savepoint_at: datetime | None = None
    failed_checkpoints: int = 0
    """How many checkpoints have failed, as Flink counts them."""
    root_cause: str | None = None
    """The last root cause that was seen, redacted."""
    root_cause_at: datetime | None = None
    read_positions: str | None = None
    """How far the sources have read at the last checkpoint that was looked at, as JSON."""
    read_moved_at: datetime | None = None
    """When the read positions last advanced, or there was nothing to read."""
    restore_points_deleted_at: datetime | None = None


@dataclass(frozen=True)
class ScriptVersion:
    """One version of a job's script, as it was when an incarnation was recorded with it."""

    job_name: str
    fingerprint: str
    definition: str | None
    """The streaming job as JSON; None when the script holds a secret literally."""
    plan: str | None
    """Flink's execution plan as JSON."""
    recorded_at: datetime


@dataclass(frozen=True)
class HistoryPolicy:
    """How much of every job's past is kept, at least."""

    keep_incarnations: int = 50
    keep_for: timedelta = timedelta(days=90)


@dataclass(frozen=True)
class JobsState:
    """Everything that supervision needs to know of a lakehouse's jobs, read at one moment."""

    records: Mapping[str, JobRecord]
    latest: Mapping[str, Incarnation]
    """The newest life of every job that had one."""

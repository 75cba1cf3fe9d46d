"""What a Flink cluster tells about itself and its jobs. Times are aware UTC datetimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any


class FlinkJobStatus(str, Enum):
    """The states of a job (``org.apache.flink.api.common.JobStatus``)."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended for good.

        SUSPENDED does not count: Flink calls it terminal for one JobManager only, and another one
        (high availability) goes on with the job.
        """
        return self in _TERMINAL

    @property
    def is_restarting(self) -> bool:
        """Whether it has failed and Flink is about to run it again."""
        return self in (FlinkJobStatus.RESTARTING, FlinkJobStatus.FAILING)


_TERMINAL = (FlinkJobStatus.FAILED, FlinkJobStatus.CANCELED, FlinkJobStatus.FINISHED)


class OperationStatus(str, Enum):
    """The states of a SQL Gateway operation (``gateway.api.operation.OperationStatus``)."""

    INITIALIZED = "INITIALIZED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"

    @property
    def is_terminal(self) -> bool:
        """Whether the operation has ended."""
        return self not in (
            OperationStatus.INITIALIZED,
            OperationStatus.PENDING,
            OperationStatus.RUNNING,
        )


@dataclass(frozen=True)
class ClusterOverview:
    """``GET /overview``: the cluster's version and slots."""

    flink_version: str
    task_managers: int
    slots_total: int
    slots_available: int


@dataclass(frozen=True)
class JobSummary:
    """One job as the JobManager sees it now."""

    job_id: str
    name: str
    status: FlinkJobStatus
    started_at: datetime
    ended_at: datetime | None
    tasks_total: int
    tasks_running: int
    tasks_finished: int = 0

    @property
    def all_tasks_run(self) -> bool:
        """Whether every task runs, or has read a bounded source to its end."""
        return self.tasks_total > 0 and (
            self.tasks_running + self.tasks_finished == self.tasks_total
        )


@dataclass(frozen=True)
class JobConfiguration:
    """``GET /jobs/:id/config``: what a job was submitted with."""

    job_id: str
    name: str
    parallelism: int
    user_config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """One completed checkpoint or savepoint."""

    id: int
    external_path: str
    completed_at: datetime
    is_savepoint: bool


@dataclass(frozen=True)
class CheckpointStatistics:
    """``GET /jobs/:id/checkpoints``.

    ``restored_count`` counts every restore of this job, its first one from a restore point
    included: it is how restarts are counted. ``latest_completed`` may already have been deleted by
    Flink (it keeps ``execution.checkpointing.num-retained`` of them).
    """

    completed_count: int
    failed_count: int
    restored_count: int
    latest_completed: Checkpoint | None
    latest_savepoint: Checkpoint | None
    restored_path: str | None


@dataclass(frozen=True)
class JobException:
    """One failure of a job: its root cause, with row data and secrets masked."""

    root_cause: str
    task: str | None
    occurred_at: datetime


@dataclass(frozen=True)
class SavepointResult:
    """How far a savepoint is: not done, done at ``location``, or done with a ``failure``."""

    done: bool
    location: str | None
    failure: str | None


@dataclass(frozen=True)
class StatementResult:
    """What a statement returned.

    ``column_types`` are Flink SQL types (``BIGINT``, ``DECIMAL(10, 2)``). Values are Python's own:
    ``Decimal``, ``date``, ``time``, ``datetime`` (aware UTC for TIMESTAMP_LTZ, naive for
    TIMESTAMP), ``bytes``; ARRAY a tuple, MAP and ROW a dict. ``row_kinds`` are ``INSERT``,
    ``UPDATE_BEFORE``, ``UPDATE_AFTER`` and ``DELETE``. ``job_id`` is that of the Flink job that the
    statement started, where it started one. ``truncated`` says that ``max_rows`` cut it off.
    """

    columns: tuple[str, ...]
    column_types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    row_kinds: tuple[str, ...]
    job_id: str | None
    truncated: bool

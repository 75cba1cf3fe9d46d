"""Jobs that come back by themselves: what a JobManager with high availability may still recover.

A JobManager that leads again answers 503 until it has taken its jobs from the high availability
store, and shows them all when it answers (with a ZooKeeper, asked every few milliseconds, on Flink
1.20.5 and 2.0.2: 503 for 1.1 and 1.5 s, then every job INITIALIZING, no empty overview in between).
Since Flink promises that nowhere, an overview that lacks a job proves nothing at once: only after
it has lacked it for longer than a recovery takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse_dagster.flink.job_manager import JobManager

RECOVERY_SECONDS = 30.0
"""So long a job may be missing from answers of a highly available JobManager and still come back;
without an answer (503 included) the time does not count."""


def seconds_until_lost(job_manager: JobManager, otherwise: float) -> float:
    """How long a job must be missing from a JobManager that answers before it counts as lost.

    One GET, to be made only when a job is missing.

    Args:
        job_manager: which answered without the job.
        otherwise: the bound in seconds where jobs do not come back by themselves.

    Raises ClusterUnreachableError, FlinkRequestError: it could not be asked.
    """
    return max(otherwise, RECOVERY_SECONDS) if job_manager.high_availability() else otherwise

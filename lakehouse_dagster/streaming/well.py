"""Jobs that were well at the last look, so that the next one need not think about them again.

A healthy lakehouse has a thousand of them and a few that are not. What is remembered of a job holds
while its record, its incarnation and what the overview says are the same objects, and nothing is
due by time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.flink import JobSummary
from lakehouse_dagster.streaming.observe import ALL_TASKS_RUN, Observation
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.system_db import Incarnation, JobRecord


@dataclass(frozen=True)
class Well:
    """An observation, and until when it holds if nothing changes."""

    record: JobRecord
    incarnation: Incarnation
    summary: JobSummary
    observation: Observation
    until: datetime

    def still_holds(
        self,
        record: JobRecord,
        incarnation: Incarnation | None,
        summary: JobSummary | None,
        now: datetime,
    ) -> bool:
        """Whether the same would be observed now."""
        return (
            record is self.record
            and incarnation is self.incarnation
            and summary is self.summary
            and now < self.until
        )


def remembered(
    record: JobRecord,
    observation: Observation,
    summary: JobSummary | None,
    policy: SupervisionPolicy,
) -> Well | None:
    """What may be remembered of an observation: None unless the job is well in every way."""
    incarnation = observation.incarnation
    if (
        summary is None
        or incarnation is None
        or observation.reason != ALL_TASKS_RUN
        or observation.foreign
        or incarnation.restart_window_at is not None
    ):
        return None
    until = (incarnation.checkpoint_at or summary.started_at) + policy.spans["no_checkpoint_after"]
    if incarnation.read_moved_at is not None:
        until = min(until, incarnation.read_moved_at + policy.spans["no_progress_after"])
    return Well(record, incarnation, summary, observation, until)

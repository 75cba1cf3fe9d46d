"""Flink jobs that are not on record: forgotten ones of ours, and those of other people.

A running job with the name of one of ours was started by hand, belongs to another lakehouse on the
same cluster, or is ours and the database has lost it. Its marker tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse_dagster.errors import ForeignJobError, NotFoundError
from lakehouse_dagster.flink import FlinkJobStatus, JobManager, JobSummary
from lakehouse_dagster.streaming.marker import Marker, read_marker
from lakehouse_dagster.streaming.runtime import Runtime


@dataclass(frozen=True)
class Strangers:
    """Running jobs of one name that are not on record: ``foreign`` ones, and ours by number."""

    foreign: tuple[JobSummary, ...] = ()
    forgotten: tuple[tuple[int, JobSummary], ...] = ()


def strangers(
    runtime: Runtime, job_manager: JobManager, name: str, unknown: Iterable[JobSummary]
) -> Strangers:
    """Tell whose jobs are those that are named ``name`` and whose ids are not on record.

    Those of another lakehouse are left out: two may have jobs of one name on one cluster.
    """
    foreign: list[JobSummary] = []
    forgotten: list[tuple[int, JobSummary]] = []
    for job in unknown:
        if job.name != name or job.status.is_terminal:
            continue
        marker = marker_of(job_manager, job)
        if marker is None:
            foreign.append(job)
        elif marker.identity == runtime.identity and marker.job == name:
            forgotten.append((marker.number, job))
    return Strangers(tuple(foreign), tuple(forgotten))


def refuse_beside(name: str, foreign: tuple[JobSummary, ...]) -> None:
    """Raise ``ForeignJobError`` if somebody else's job of that name runs: ours would double it."""
    if not foreign:
        return
    ids = ", ".join(job.job_id for job in foreign)
    raise ForeignJobError(
        f"A job named {name} that was not started by this project runs on the cluster already "
        f"(Flink job {ids}); starting {name} beside it would write everything twice.",
        remedy=f"Take it over with `lakehouse jobs adopt {name}`, or stop it in Flink and start "
        "again.",
    )


_markers: dict[str, Marker | None] = {}
"""What was read, by Flink job id: a job's configuration never changes."""


def marker_of(job_manager: JobManager, job: JobSummary) -> Marker | None:
    """The marker that a job was submitted with; None when it has none or is gone."""
    if job.job_id not in _markers:
        try:
            configuration = job_manager.job_configuration(job.job_id)
        except NotFoundError:
            return None  # gone meanwhile; whoever asks looks again
        marker = read_marker(configuration.user_config)
        if marker is None and job.status is FlinkJobStatus.INITIALIZING:
            return None  # its configuration may not be shown yet; whoever asks looks again
        if len(_markers) > 10_000:
            _markers.clear()
        _markers[job.job_id] = marker
    return _markers[job.job_id]

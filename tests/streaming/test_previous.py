"""What is known of a job of which Flink does not tell all at this moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_dagster import FlinkCluster
from lakehouse_dagster.flink import FlinkJobStatus, JobManager
from lakehouse_dagster.streaming.foreign import marker_of
from lakehouse_dagster.streaming.marker import Marker, marker_parameters
from lakehouse_dagster.streaming.previous import now_on_cluster
from tests.streaming.overview_server import (
    Overview,
    as_flink_shows_it,
    overview_entry,
    overview_server,
)

JOB = "ab" * 16


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as overview:
        yield overview


@pytest.fixture
def job_manager(overview: Overview) -> Iterator[JobManager]:
    with FlinkCluster(overview.rest_url, "http://127.0.0.1:9").job_manager() as job_manager:
        yield job_manager


def test_a_job_that_the_overview_lacks_is_not_gone(
    overview: Overview, job_manager: JobManager
) -> None:
    overview.jobs = [overview_entry(JOB, "RESTARTING")]
    overview.left_out = {JOB}
    job = now_on_cluster(job_manager, JOB)
    assert job is not None
    assert (job.status, job.tasks_total, job.tasks_running) == (FlinkJobStatus.RESTARTING, 1, 0)
    overview.jobs = []
    assert now_on_cluster(job_manager, JOB) is None


def test_a_job_that_shows_no_configuration_yet_may_be_ours_later(
    overview: Overview, job_manager: JobManager
) -> None:
    marker = Marker("lake@1", "orders", 3, "orders")
    overview.jobs = [overview_entry(JOB, "INITIALIZING")]
    (job,) = job_manager.jobs()
    assert marker_of(job_manager, job) is None
    overview.markers[JOB] = as_flink_shows_it(marker_parameters(marker))
    assert marker_of(job_manager, job) == marker

"""The life of a job on a real cluster: started, seen, stopped, restored, cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from lakehouse_dagster.errors import NotFoundError, SqlExecutionError
from lakehouse_dagster.flink import (
    FlinkCluster,
    FlinkJobStatus,
    JobManager,
    SavepointResult,
    Session,
    is_complete,
    newest_complete_checkpoint,
)
from tests.conftest import RunningFlink

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

_T = TypeVar("_T")


def until(look: Callable[[], _T | None], what: str, seconds: float = 180) -> _T:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come about within {seconds} s")


class Jobs:
    """Starts jobs that copy numbers into nothing, and cancels what a test left running."""

    def __init__(self, job_manager: JobManager, session: Session, checkpoints: Path) -> None:
        self.job_manager = job_manager
        self.session = session
        self.checkpoints = checkpoints
        self.started: list[str] = []
        session.execute(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector'='datagen', 'rows-per-second'='20', "
            "'fields.n.kind'='sequence', 'fields.n.start'='1', 'fields.n.end'='10000')"
        )
        session.execute("CREATE TABLE nothing (n BIGINT) WITH ('connector'='blackhole')")

    def submit(self, select: str = "SELECT n FROM numbers", **config: str) -> str:
        job_id = uuid4().hex
        self.started.append(job_id)
        self.submit_as(job_id, select, **config)
        return job_id

    def submit_as(self, job_id: str, select: str = "SELECT n FROM numbers", **config: str) -> None:
        operation = self.session.submit(
            f"INSERT INTO nothing {select}",
            config={
                "$internal.pipeline.job-id": job_id,
                "pipeline.name": f"flink-room-{job_id[:8]}",
                "execution.checkpointing.interval": "300ms",
                "execution.checkpointing.dir": f"file://{self.checkpoints}",
                "execution.checkpointing.externalized-checkpoint-retention": (
                    "RETAIN_ON_CANCELLATION"
                ),
                **{key.replace("__", "."): value for key, value in config.items()},
            },
        )
        operation.wait(180)
        result = operation.result()
        assert (result.job_id, result.rows) == (job_id, ((job_id,),))

    def running(self, job_id: str) -> None:
        def all_tasks_run() -> bool:
            job = self.job_manager.job(job_id)
            return (
                job is not None
                and job.status is FlinkJobStatus.RUNNING
                and job.tasks_running == job.tasks_total > 0
            )

        until(all_tasks_run, f"job {job_id} running")

    def status(self, job_id: str, status: FlinkJobStatus) -> None:
        def reached() -> bool:
            job = self.job_manager.job(job_id)
            return job is not None and job.status is status

        until(reached, f"job {job_id} {status.value}")

    def stop(self, job_id: str, folder: Path) -> SavepointResult:
        trigger_id = uuid4().hex
        self.job_manager.stop_with_savepoint(
            job_id, trigger_id=trigger_id, target_directory=f"file://{folder}"
        )

        def done() -> SavepointResult | None:
            result = self.job_manager.savepoint_result(job_id, trigger_id)
            assert result is not None
            return result if result.done else None

        return until(done, "savepoint")


@pytest.fixture
def jobs(flink_stack: RunningFlink, tmp_path: Path) -> Iterator[Jobs]:
    cluster = FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url)
    with cluster.job_manager() as job_manager, cluster.sql_gateway() as gateway:
        session = gateway.open_session("flink-room")
        jobs = Jobs(job_manager, session, tmp_path / "checkpoints")
        try:
            yield jobs
        finally:
            for job_id in jobs.started:
                job_manager.cancel(job_id)
            session.delete()


def test_a_job_runs_under_the_id_chosen_beforehand_and_is_seen_everywhere(jobs: Jobs) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=5)
    job_id = jobs.submit()
    jobs.running(job_id)
    job = jobs.job_manager.job(job_id)
    (listed,) = [job for job in jobs.job_manager.jobs() if job.job_id == job_id]
    assert job is not None
    assert (job.name, job.status) == (f"flink-room-{job_id[:8]}", FlinkJobStatus.RUNNING)
    assert (listed.name, listed.status) == (job.name, job.status)
    assert (listed.tasks_total, listed.tasks_running) == (job.tasks_total, job.tasks_running)
    assert listed.started_at == job.started_at >= before
    assert job.ended_at is None
    assert jobs.job_manager.job_configuration(job_id).name == job.name
    assert jobs.job_manager.exceptions(job_id) == ()
    assert jobs.job_manager.configuration()["rest.port"]


def test_the_same_id_is_refused_a_second_time(jobs: Jobs) -> None:
    job_id = jobs.submit()
    with pytest.raises(SqlExecutionError, match="Job has already been submitted") as caught:
        jobs.submit_as(job_id)
    assert caught.value.root_cause == (
        "DuplicateJobSubmissionException: Job has already been submitted"
    )


def test_a_job_stopped_with_a_savepoint_goes_on_from_it(jobs: Jobs, tmp_path: Path) -> None:
    job_id = jobs.submit()
    jobs.running(job_id)
    result = jobs.stop(job_id, tmp_path / "savepoints")
    assert result.failure is None
    assert result.location is not None
    assert is_complete(result.location)
    jobs.status(job_id, FlinkJobStatus.FINISHED)
    stopped = jobs.job_manager.checkpoints(job_id)
    assert stopped.latest_savepoint is not None
    assert stopped.latest_savepoint.external_path == result.location
    assert stopped.latest_savepoint.is_savepoint
    assert stopped.restored_path is None

    restored_id = jobs.submit(**{"execution.state-recovery.path": result.location})
    jobs.running(restored_id)
    statistics = jobs.job_manager.checkpoints(restored_id)
    assert statistics.restored_count == 1
    assert statistics.restored_path == result.location


def test_a_cancelled_job_leaves_a_checkpoint_to_go_on_from(jobs: Jobs) -> None:
    job_id = jobs.submit()
    jobs.running(job_id)

    def completed() -> int:
        return jobs.job_manager.checkpoints(job_id).completed_count

    until(completed, "a checkpoint")
    jobs.job_manager.cancel(job_id)
    jobs.status(job_id, FlinkJobStatus.CANCELED)
    jobs.job_manager.cancel(job_id)
    newest = jobs.job_manager.checkpoints(job_id).latest_completed
    assert newest is not None
    # What a crash leaves behind: a later folder that was never completed.
    (jobs.checkpoints / job_id / f"chk-{newest.id + 1}").mkdir(exist_ok=True)
    found = newest_complete_checkpoint(f"file://{jobs.checkpoints}", job_id)
    assert found is not None
    assert found.checkpoint_id == newest.id
    assert abs(found.completed_at - newest.completed_at) < timedelta(seconds=10)

    restored_id = jobs.submit(**{"execution.state-recovery.path": found.path})
    jobs.running(restored_id)
    restored_path = jobs.job_manager.checkpoints(restored_id).restored_path
    assert restored_path is not None
    assert restored_path.endswith(f"/{job_id}/chk-{newest.id}")


def test_a_restore_point_that_is_missing_fails_the_start_with_its_path(
    jobs: Jobs, tmp_path: Path
) -> None:
    with pytest.raises(SqlExecutionError, match="Cannot find checkpoint or savepoint") as caught:
        jobs.submit(**{"execution.state-recovery.path": f"file://{tmp_path}/none-such"})
    assert f"{tmp_path}/none-such" in caught.value.root_cause


def test_a_failing_job_tells_its_root_cause_newest_first(jobs: Jobs) -> None:
    job_id = jobs.submit(
        "SELECT 1 / (n - n) FROM numbers",
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "100ms",
        },
    )
    jobs.status(job_id, FlinkJobStatus.FAILED)
    exceptions = jobs.job_manager.exceptions(job_id)
    assert {e.root_cause for e in exceptions} == {"ArithmeticException: / by zero"}
    times = [e.occurred_at for e in exceptions]
    assert times == sorted(times, reverse=True)
    job = jobs.job_manager.job(job_id)
    assert job is not None
    assert job.ended_at is not None
    assert job.ended_at >= job.started_at


def test_a_job_that_the_cluster_does_not_know_is_none_or_not_found(jobs: Jobs) -> None:
    unknown = uuid4().hex
    assert jobs.job_manager.job(unknown) is None
    jobs.job_manager.cancel(unknown)
    assert jobs.job_manager.savepoint_result(unknown, unknown) is None
    for ask in (jobs.job_manager.checkpoints, jobs.job_manager.exceptions):
        with pytest.raises(NotFoundError) as caught:
            ask(unknown)
        assert unknown in caught.value.root_cause
        assert "\n" not in str(caught.value)


def test_a_stop_of_an_unknown_job_fails_in_its_savepoint(jobs: Jobs, tmp_path: Path) -> None:
    result = jobs.stop(uuid4().hex, tmp_path)
    assert result.location is None
    assert result.failure is not None
    assert "FlinkJobNotFoundException" in result.failure


def test_a_stop_asked_for_twice_under_one_trigger_id_is_one_stop(
    jobs: Jobs, tmp_path: Path
) -> None:
    job_id = jobs.submit()
    jobs.running(job_id)
    trigger_id = uuid4().hex
    for _ in range(2):
        jobs.job_manager.stop_with_savepoint(
            job_id, trigger_id=trigger_id, target_directory=f"file://{tmp_path}/savepoints"
        )
    jobs.status(job_id, FlinkJobStatus.FINISHED)
    assert len(list((tmp_path / "savepoints").iterdir())) == 1

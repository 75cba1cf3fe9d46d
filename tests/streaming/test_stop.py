"""Stopping a job for real: with a savepoint that the next start goes on from, or without."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse_dagster.errors import (
    ConfigurationError,
    LakehouseError,
    OperationTimeoutError,
    StreamingJobError,
)
from lakehouse_dagster.flink import is_complete
from lakehouse_dagster.streaming.start import StartedHow
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState
from tests.support.faults import Does, Fault, FaultyProxy
from tests.support.fixtures import lab, rest_proxy
from tests.support.history import JobWatcher
from tests.support.laboratory import QUICK, Laboratory

__all__ = ["lab", "rest_proxy"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

STOP = "/jobs/[0-9a-f]+/stop$"


def test_a_stopped_job_goes_on_from_its_savepoint_without_losing_or_doubling_a_row(
    lab: Laboratory,
) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    stopped = lab.stop()
    assert stopped.incarnation == 1
    assert stopped.savepoint_path is not None
    assert is_complete(stopped.savepoint_path)
    assert str(lab.folder / "savepoints") in stopped.savepoint_path  # where the script wants it
    assert lab.on_cluster() == []
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.STOPPED
    assert incarnation.savepoint_path == stopped.savepoint_path
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.SUSPENDED
    seen = look(lab.runtime(), SupervisorCursor())
    assert [o.observed.value for o in seen.observations] == ["SUSPENDED"]
    assert seen.actions == ()

    lab.source.write()
    second = lab.start()
    assert (second.how, second.incarnation) == (StartedHow.STARTED, 2)
    assert second.restored_from == stopped.savepoint_path
    assert second.flink_job_id != first.flink_job_id
    lab.assert_restored(second)
    lab.copied_exactly(second.flink_job_id)


def test_restart_is_a_stop_and_a_start_from_its_savepoint(lab: Laboratory) -> None:
    lab.source.write()
    first = lab.start()
    with JobWatcher(lab.cluster, lab.job) as watcher:
        second = lab.restart()
        lab.source.write()
        lab.copied_exactly(second.flink_job_id)
    assert second.incarnation == 2
    assert second.restored_from == lab.incarnations()[1].savepoint_path is not None
    lab.assert_restored(second)
    assert watcher.ids == [first.flink_job_id, second.flink_job_id]
    assert watcher.most_at_once == 1
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.RUNNING


def test_a_cancelled_job_goes_on_from_its_newest_checkpoint_which_no_script_can_have_deleted(
    lab: Laboratory,
) -> None:
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    lab.write_script(settings=f"SET '{retention}' = 'DELETE_ON_CANCELLATION';")
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    outcome = lab.cancel()
    assert (outcome.incarnation, outcome.savepoint_path) == (1, None)
    assert lab.on_cluster() == []
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.CANCELED
    lab.source.write()
    second = lab.start()
    assert f"{first.flink_job_id}/chk-" in str(second.restored_from)
    lab.assert_restored(second)
    lab.copied_exactly(second.flink_job_id)


def test_a_job_that_does_not_run_is_stopped_and_cancelled_without_ado(lab: Laboratory) -> None:
    assert lab.stop().savepoint_path is None
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.SUSPENDED
    assert lab.cancel().incarnation is None
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.CANCELED
    assert lab.incarnations() == ()


def test_a_stop_whose_answer_is_lost_is_followed_by_its_trigger_id(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    lab.start()
    rest_proxy.add(Fault("POST", STOP, Does.LOSE_ANSWER))
    stopped = lab.stop(lab.runtime(rest_url=rest_proxy.url))
    assert stopped.savepoint_path is not None
    assert len(rest_proxy.requests("POST", STOP)) == 1
    assert lab.on_cluster() == []
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.SUSPENDED


def test_a_stop_that_never_arrived_leaves_the_job_running_and_says_so(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    outcome = lab.start()
    rest_proxy.add(Fault("POST", STOP, Does.LOSE_REQUEST))
    with pytest.raises(StreamingJobError, match="does not know the savepoint's trigger"):
        lab.stop(lab.runtime(rest_url=rest_proxy.url))
    assert len(rest_proxy.requests("POST", STOP)) == 1
    _assert_it_runs_on(lab, outcome.flink_job_id, may_come=True)
    assert lab.start().how is StartedHow.ADOPTED  # though the trigger is on record


def test_a_savepoint_that_cannot_be_written_leaves_the_job_running_and_names_the_cause(
    lab: Laboratory,
) -> None:
    outcome = lab.start()
    (lab.folder / "savepoints").write_text("a file where a folder should be")
    with pytest.raises(StreamingJobError, match="could not stop"):
        lab.stop()
    _assert_it_runs_on(lab, outcome.flink_job_id)


def _assert_it_runs_on(lab: Laboratory, job_id: str, *, may_come: bool = False) -> None:
    """The job runs, is meant to, and is not shown as being stopped for ever."""
    assert [job.job_id for job in lab.on_cluster()] == [job_id]
    runtime = lab.runtime()
    assert runtime.memory.ensure(lab.job).desired is DesiredState.RUNNING
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.RUNNING
    if not may_come:
        assert incarnation.stop_trigger_id is None
    (observation,) = look(runtime, SupervisorCursor()).observations
    assert observation.observed.value in ("RUNNING", "RESTARTING")  # a failed stop restarts tasks
    assert lab.lease_is_free()


@pytest.mark.parametrize("seconds_later", [0, 2], ids=["at once", "while the start looks"])
def test_a_stopper_that_died_is_noticed_by_the_recorded_trigger_id(
    lab: Laboratory, seconds_later: int
) -> None:
    """It asked for the stop and never learned the savepoint's path; nobody else knows it either.

    A start must not take for running what is about to end.
    """
    lab.source.write()
    lab.start()
    lab.copied()
    (incarnation,) = lab.incarnations()
    trigger_id = "ab" * 16
    memory = lab.runtime().memory
    memory.set_desired(lab.job, DesiredState.SUSPENDED)
    memory.update(lab.job, 1, state=IncarnationState.STOPPING, stop_trigger_id=trigger_id)

    def stop() -> None:
        with lab.cluster.job_manager() as job_manager:
            job_manager.stop_with_savepoint(
                incarnation.flink_job_id,
                trigger_id=trigger_id,
                target_directory=str(lab.folder / "by hand"),
            )

    arrives = threading.Timer(seconds_later, stop)
    arrives.start()
    lab.source.write()
    patient = replace(QUICK, late_submission_grace="15s")  # until when the stop must be known
    second = lab.start(lab.runtime(policy=patient))
    arrives.join()
    assert second.how is StartedHow.STARTED
    assert "by hand" in str(second.restored_from)
    lab.assert_restored(second)
    lab.copied_exactly(second.flink_job_id)


def test_without_a_folder_for_savepoints_a_stop_is_refused_before_anything_happens(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    text = lab.script.read_text()
    lab.script.write_text("\n".join(line for line in text.splitlines() if "savepoint" not in line))
    outcome = lab.start()
    config = json.dumps([{"key": "rest.port", "value": "1"}]).encode()
    rest_proxy.add(Fault("GET", "/jobmanager/config", Does.ANSWER_ITSELF, answer=config))
    with pytest.raises(ConfigurationError, match="savepoint-dir"):
        lab.stop(lab.runtime(rest_url=rest_proxy.url))
    assert rest_proxy.requests("POST", STOP) == []
    _assert_it_runs_on(lab, outcome.flink_job_id)


def test_a_stop_that_takes_too_long_is_an_error_and_the_job_goes_on(
    lab: Laboratory, rest_proxy: FaultyProxy, tmp_path: Path
) -> None:
    outcome = lab.start()
    busy = b'{"status": {"id": "IN_PROGRESS"}, "operation": null}'
    rest_proxy.add(Fault("POST", STOP, Does.LOSE_REQUEST))
    rest_proxy.add(Fault("GET", "/savepoints/", Does.ANSWER_ITSELF, answer=busy, times=10_000))
    quick = replace(lab.runtime().policy, stop_timeout="2s")
    with pytest.raises((OperationTimeoutError, LakehouseError), match="not complete after"):
        lab.stop(lab.runtime(rest_url=rest_proxy.url, policy=quick))
    _assert_it_runs_on(lab, outcome.flink_job_id, may_come=True)

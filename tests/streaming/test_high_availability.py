"""A JobManager with high availability brings its jobs back by itself: they are left to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import complete_checkpoints
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack, StackStatus
from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.start import StartedHow, StartOutcome
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import IncarnationState
from tests.support.faults import kill
from tests.support.fixtures import laboratory_on
from tests.support.high_availability import ZooKeeper
from tests.support.history import job_manager_history
from tests.support.laboratory import Laboratory, until
from tests.support.stacks import up

pytestmark = [pytest.mark.chaos, pytest.mark.every_engine]

QUICK = {
    "heartbeat.interval": "1s",
    "heartbeat.timeout": "8s",
    "web.refresh-interval": "100ms",
    "rest.cache.checkpoint-statistics.timeout": "100ms",
}


@pytest.fixture(scope="module")
def available_stack(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalStack]:
    """A small Flink whose jobs are remembered in a ZooKeeper beside it."""
    folder = tmp_path_factory.mktemp("available")
    with ZooKeeper(folder / "zookeeper", flink_engine) as zookeeper:
        stack = LocalStack(
            folder / "stack",
            flink_engine,
            slots=2,
            task_manager_memory_mib=768,
            checkpoint_interval_seconds=1,
            extra_config={**QUICK, **zookeeper.options(folder / "remembered")},
        )
        with up(stack):
            yield stack


@pytest.fixture
def lab(available_stack: LocalStack, tmp_path: Path) -> Iterator[Laboratory]:
    with laboratory_on(available_stack.up(), tmp_path) as laboratory:
        yield laboratory


@pytest.fixture
def starting(available_stack: LocalStack) -> Iterator[StartsAgain]:
    """Starts the killed JobManager anew, beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield StartsAgain(available_stack, pool)


class StartsAgain:
    """``kill`` the JobManager, then ``begin`` to start it; ``done`` once the stack is whole."""

    def __init__(self, stack: LocalStack, pool: ThreadPoolExecutor) -> None:
        self._stack, self._pool = stack, pool
        self._up: Future[StackStatus] | None = None

    def kill(self) -> None:
        kill(self._stack, Service.JOB_MANAGER)

    def begin(self) -> None:
        self._up = self._pool.submit(self._stack.up)

    def done(self) -> bool:
        assert self._up is not None
        return self._up.done() and self._up.result().running


def test_a_job_that_its_job_manager_recovers_keeps_its_id_and_is_not_started_by_us(
    available_stack: LocalStack, lab: Laboratory, starting: StartsAgain
) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 2)
    starting.kill()
    # The newest may have been written, and not yet been made known to ZooKeeper.
    kept = complete_checkpoints(str(lab.folder / "checkpoints"), first.flink_job_id)[:2]
    lab.source.write()
    runtime, cursor = lab.runtime(), SupervisorCursor()
    states: list[ObservedState] = []

    def looked() -> None:
        nonlocal cursor
        seen = look(runtime, cursor)
        cursor = seen.cursor
        assert seen.actions == ()
        (observation,) = seen.observations
        states.append(observation.observed)

    looked()
    starting.begin()
    until(lambda: looked() or starting.done(), "the stack", seconds=90)
    until(lambda: looked() or states[-1] is ObservedState.RUNNING, "the job")

    assert states[0] is ObservedState.UNREACHABLE
    assert ObservedState.LOST not in states
    assert lab.running().job_id == first.flink_job_id
    restored = lab.checkpoints(first.flink_job_id).restored_path
    assert str(restored).rsplit("/", 2)[1:] in [
        [first.flink_job_id, f"chk-{point.checkpoint_id}"] for point in kept
    ]
    lab.copied_exactly(first.flink_job_id)
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.RUNNING
    history = job_manager_history(available_stack.folder / "log" / "jobmanager.log")
    assert history.overlaps == []
    assert set(history.started[lab.job]) == {first.flink_job_id}


def test_whoever_starts_a_job_that_is_being_recovered_adopts_it(
    available_stack: LocalStack, lab: Laboratory, starting: StartsAgain
) -> None:
    lab.source.write()
    first = lab.start()
    lab.wait_for_checkpoints(first.flink_job_id, 2)
    starting.kill()
    starting.begin()
    refusals: list[str] = []

    def started() -> StartOutcome | None:
        try:
            return lab.start()
        except FlinkError as error:
            refusals.append(str(error))
            return None

    outcome = until(started, "the start of a job that recovers", seconds=90)
    assert (outcome.how, outcome.flink_job_id) == (StartedHow.ADOPTED, first.flink_job_id)
    assert refusals != []
    assert len(lab.incarnations()) == 1
    until(starting.done, "the stack", seconds=90)
    lab.copied_exactly(first.flink_job_id)
    history = job_manager_history(available_stack.folder / "log" / "jobmanager.log")
    assert set(history.started[lab.job]) == {first.flink_job_id}

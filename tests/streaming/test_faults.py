"""Killed processes: afterwards exactly one job runs, and the table holds every row once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ClusterUnreachableError, LakehouseError
from lakehouse_dagster.flink import newest_complete_checkpoint
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState, flink_job_id
from tests.support.actor import supervise_once
from tests.support.faults import INSERT, STATEMENT, Does, Fault, FaultyProxy, kill
from tests.support.fixtures import laboratory_on
from tests.support.history import job_manager_history
from tests.support.laboratory import Laboratory, until
from tests.support.processes import Actor
from tests.support.stacks import up

pytestmark = [pytest.mark.chaos, pytest.mark.every_engine]

QUICK_TO_NOTICE = {
    "heartbeat.interval": "1s",
    "heartbeat.timeout": "8s",
    # What the REST API answers is otherwise up to 3 s old.
    "web.refresh-interval": "100ms",
    "rest.cache.checkpoint-statistics.timeout": "100ms",
    "restart-strategy.exponential-delay.initial-backoff": "500ms",
}


@pytest.fixture(scope="module")
def chaos_stack(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalStack]:
    """A small Flink whose processes are killed; every test finds it whole."""
    stack = LocalStack(
        tmp_path_factory.mktemp("chaos"),
        flink_engine,
        slots=3,
        task_manager_memory_mib=768,
        checkpoint_interval_seconds=1,
        extra_config=QUICK_TO_NOTICE,
    )
    with up(stack):
        yield stack


@pytest.fixture
def lab(chaos_stack: LocalStack, tmp_path: Path) -> Iterator[Laboratory]:
    with laboratory_on(chaos_stack.up(), tmp_path) as laboratory:
        yield laboratory


class Writer:
    """Writes a file of rows every so often while a ``with`` block runs: faults meet a live job."""

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._done.wait(0.4):
            self._lab.source.write(20)


def _started(stack: LocalStack, lab: Laboratory) -> list[str]:
    """The ids that the JobManager ever started under the job's name; never two at a time."""
    history = job_manager_history(stack.folder / "log" / "jobmanager.log")
    assert history.overlaps == []
    return history.started[lab.job]


def _ids(lab: Laboratory, *numbers: int) -> list[str]:
    return [flink_job_id(lab.identity, lab.job, number) for number in numbers]


def _observed(seen: Look) -> ObservedState:
    (observation,) = seen.observations
    return observation.observed


def _supervise_until(
    lab: Laboratory, reached: Callable[[], bool], what: str, states: list[ObservedState]
) -> None:
    """Look and act as sensor and run do, again and again, and write down what was observed."""
    runtime, cursor = lab.runtime(), SupervisorCursor()

    def once() -> bool:
        nonlocal cursor
        seen = supervise_once(runtime, cursor, "supervisor")
        cursor = seen.cursor
        states.append(_observed(seen))
        return reached()

    until(once, what)


def test_a_killed_task_manager_is_flinks_own_affair(
    chaos_stack: LocalStack, lab: Laboratory
) -> None:
    # Longer than a look takes: while it waits for a TaskManager it is RUNNING again.
    lab.write_script(settings="SET 'restart-strategy.exponential-delay.initial-backoff' = '3 s';")
    lab.source.write()
    outcome = lab.start()
    lab.copied()
    states: list[ObservedState] = []
    with Writer(lab):
        kill(chaos_stack, Service.TASK_MANAGER)
        _supervise_until(
            lab, lambda: ObservedState.RESTARTING in states, "the job restarting", states
        )
        chaos_stack.up()
        _supervise_until(
            lab, lambda: lab.incarnations()[0].restarts > 0, "the restart on record", states
        )
    lab.copied_exactly(outcome.flink_job_id)
    assert _started(chaos_stack, lab) == _ids(lab, 1)
    assert set(states) <= {
        ObservedState.RUNNING,
        ObservedState.RESTARTING,
        ObservedState.STARTING,
    }
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.RUNNING
    assert incarnation.restarts >= 1


def test_a_job_lost_with_its_job_manager_goes_on_from_its_newest_complete_checkpoint(
    chaos_stack: LocalStack, lab: Laboratory
) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    states: list[ObservedState] = []
    with Writer(lab):
        lab.wait_for_checkpoints(first.flink_job_id, 2)
        kill(chaos_stack, Service.JOB_MANAGER)
        kept = newest_complete_checkpoint(str(lab.folder / "checkpoints"), first.flink_job_id)
        assert kept is not None
        # What a JobManager killed a moment later would have left: begun, never completed.
        unfinished = lab.folder / "checkpoints" / first.flink_job_id / "chk-99999"
        unfinished.mkdir()
        (unfinished / "part-of-it").write_bytes(b"state")

        seen = look(lab.runtime(), SupervisorCursor())
        assert (_observed(seen), seen.actions) == (ObservedState.UNREACHABLE, ())
        with pytest.raises(ClusterUnreachableError):
            lab.start()
        chaos_stack.up()
        assert lab.on_cluster() == []
        _supervise_until(lab, lambda: len(lab.on_cluster()) == 1, "the next incarnation", states)
    second, incarnation = lab.incarnations()
    assert ObservedState.LOST in states
    assert incarnation.end_reason == "lost by the cluster"
    newest = f"{first.flink_job_id}/chk-{kept.checkpoint_id}"
    assert str(second.restored_from).endswith(newest)
    assert str(lab.checkpoints(second.flink_job_id).restored_path).endswith(newest)
    lab.copied_exactly(second.flink_job_id)
    assert _started(chaos_stack, lab) == _ids(lab, 1, 2)


def test_two_supervisors_at_once_keep_exactly_one_job_through_the_loss_of_the_job_manager(
    chaos_stack: LocalStack, lab: Laboratory
) -> None:
    lab.source.write()
    memory = lab.runtime().memory
    memory.ensure(lab.job)
    memory.set_desired(lab.job, DesiredState.RUNNING)
    both = [Actor.start(lab, "supervise", f"supervisor-{i}") for i in (1, 2)]
    said: list[str] = []
    try:
        with Writer(lab):
            first = lab.running()
            lab.wait_for_checkpoints(first.job_id, 2)
            kill(chaos_stack, Service.JOB_MANAGER)
            chaos_stack.up()
            second = lab.running()
            lab.wait_for_checkpoints(second.job_id, 2)
    finally:
        said = [actor.end() for actor in both]
    assert all(actor.process.returncode == 0 for actor in both), "\n".join(said)
    assert [first.job_id, second.job_id] == _ids(lab, 1, 2)
    assert [job.job_id for job in lab.on_cluster()] == _ids(lab, 2)
    lab.copied_exactly(second.job_id)
    assert _started(chaos_stack, lab) == _ids(lab, 1, 2)
    assert len(lab.incarnations()) == 2


def test_a_gateway_killed_as_the_insert_arrives_blocks_until_it_can_be_asked_again(
    chaos_stack: LocalStack, lab: Laboratory
) -> None:
    lab.source.write()
    with FaultyProxy(lab.sql_gateway_url) as proxy:
        runtime = lab.runtime(sql_gateway_url=proxy.url)
        proxy.add(
            Fault(
                "POST",
                STATEMENT,
                Does.LOSE_REQUEST,
                body=INSERT,
                before=lambda: kill(chaos_stack, Service.SQL_GATEWAY),
            )
        )
        with pytest.raises(ClusterUnreachableError):
            lab.start(runtime)
        # Not known to be over: as long as the gateway gives no answer nothing else is started.
        with pytest.raises(ClusterUnreachableError):
            lab.start(runtime)
        (incarnation,) = lab.incarnations()
        assert incarnation.state is IncarnationState.RECORDED
        chaos_stack.up()
        outcome = lab.start(runtime)
        assert len(proxy.inserts) == 2
    assert outcome.incarnation == 2
    lab.copied_exactly(outcome.flink_job_id)
    assert _started(chaos_stack, lab) == _ids(lab, 2)


def test_a_gateway_killed_after_it_took_the_insert_leaves_one_job_or_none(
    chaos_stack: LocalStack, lab: Laboratory
) -> None:
    lab.source.write()
    with FaultyProxy(lab.sql_gateway_url) as proxy:
        proxy.add(
            Fault(
                "POST",
                STATEMENT,
                Does.PASS_ON,
                body=INSERT,
                after=lambda: kill(chaos_stack, Service.SQL_GATEWAY),
            )
        )
        runtime = lab.runtime(sql_gateway_url=proxy.url)
        try:
            outcome = lab.start(runtime)
        except LakehouseError:
            chaos_stack.up()
            outcome = lab.start(runtime)
    lab.copied_exactly(outcome.flink_job_id)
    assert [job.job_id for job in lab.on_cluster()] == [outcome.flink_job_id]
    assert len(_started(chaos_stack, lab)) == 1

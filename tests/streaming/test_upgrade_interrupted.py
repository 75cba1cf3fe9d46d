"""An upgrade that is cancelled or killed: exactly one version runs afterwards, with every row."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lakehouse_dagster.streaming.runtime import Clock
from lakehouse_dagster.streaming.supervise import SupervisorCursor
from lakehouse_dagster.system_db import DesiredState, IncarnationState, flink_job_id
from tests.streaming.upgrading import COPY, NO_CHECKPOINTS, WATCHED, upgraded, write
from tests.support import code_points
from tests.support.actor import supervise_once
from tests.support.faults import INSERT, STATEMENT, Does, Fault, FaultyProxy
from tests.support.fixtures import gateway_proxy, lab, rest_proxy
from tests.support.history import JobWatcher
from tests.support.laboratory import Laboratory, until
from tests.support.processes import Actor

__all__ = ["gateway_proxy", "lab", "rest_proxy"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

STOP = "/jobs/[0-9a-f]+/stop$"
SAVEPOINT = "/savepoints/"


class Interrupted(BaseException):
    """What a cancelled Dagster run raises somewhere in our code."""


def _cancelled_when(condition: Callable[[], object]) -> Clock:
    def sleep(seconds: float) -> None:
        if condition():
            raise Interrupted
        time.sleep(seconds)

    return Clock(sleep=sleep)


@pytest.fixture
def edited(lab: Laboratory) -> Laboratory:
    """A job that runs and has copied fifty rows; its script has been edited since."""
    write(lab, COPY)
    lab.source.write()
    lab.start()
    lab.copied()
    write(lab, f"{COPY} WHERE id > 0")
    return lab


def _fingerprints(lab: Laboratory) -> dict[int, str]:
    """Which version each incarnation was: ``old`` or ``new``."""
    new = lab.runtime().job(lab.job).fingerprint
    return {i.number: "new" if i.fingerprint == new else "old" for i in lab.incarnations()}


def _supervised(lab: Laboratory, *, number: int) -> None:
    """The supervisor brings the job back; every row is there once, and never two ran at once."""
    until(lab.lease_is_free, "the end of the dead process's lease")
    assert lab.books.memory.ensure(lab.job).desired is DesiredState.RUNNING
    runtime, cursor = lab.runtime(), SupervisorCursor()

    def back() -> bool:
        nonlocal cursor
        cursor = supervise_once(runtime, cursor, "supervisor").cursor
        alive = lab.on_cluster()
        assert len(alive) <= 1
        return [j.job_id for j in alive if j.all_tasks_run] == [
            flink_job_id(lab.identity, lab.job, number)
        ]

    until(back, f"incarnation {number} running")
    lab.source.write()
    lab.copied_exactly(flink_job_id(lab.identity, lab.job, number))
    assert [i.number for i in lab.incarnations()] == list(range(number, 0, -1))


def test_cancelled_while_it_stops_the_old_version_comes_back(
    edited: Laboratory, rest_proxy: FaultyProxy
) -> None:
    busy = b'{"status": {"id": "IN_PROGRESS"}, "operation": null}'
    rest_proxy.add(Fault("GET", SAVEPOINT, Does.ANSWER_ITSELF, answer=busy, times=1000))
    clock = _cancelled_when(lambda: rest_proxy.requests("GET", SAVEPOINT))
    with JobWatcher(edited.cluster, edited.job) as watcher:
        with pytest.raises(Interrupted):
            upgraded(edited, edited.runtime(rest_url=rest_proxy.url, clock=clock, policy=WATCHED))
        # The stop was on its way already: the job ends with a savepoint that nobody waited for.
        until(lambda: not edited.on_cluster(), "the end of the old version")
        _supervised(edited, number=2)
    assert _fingerprints(edited) == {1: "old", 2: "old"}
    assert edited.incarnations()[0].restored_from == edited.incarnations()[1].savepoint_path
    assert watcher.most_at_once == 1


def test_cancelled_while_it_submits_the_old_version_comes_back(
    edited: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    write(edited, f"{COPY} WHERE id > 0", settings=[NO_CHECKPOINTS])
    clock = _cancelled_when(lambda: gateway_proxy.inserts)
    runtime = edited.runtime(sql_gateway_url=gateway_proxy.url, clock=clock, policy=WATCHED)
    with JobWatcher(edited.cluster, edited.job) as watcher:
        with pytest.raises(Interrupted):
            upgraded(edited, runtime)
        assert edited.on_cluster() == []
        assert edited.incarnations()[0].end_reason == "cancelled while starting"
        _supervised(edited, number=3)
    assert _fingerprints(edited) == {1: "old", 2: "new", 3: "old"}
    assert edited.incarnations()[0].restored_from == edited.incarnations()[2].savepoint_path
    assert watcher.most_at_once == 1


def test_cancelled_before_the_first_checkpoint_the_old_version_comes_back(
    edited: Laboratory, rest_proxy: FaultyProxy
) -> None:
    """The new version runs, and has proved nothing yet."""
    write(edited, f"{COPY} WHERE id > 0", settings=[NO_CHECKPOINTS])
    new = flink_job_id(edited.identity, edited.job, 2)
    clock = _cancelled_when(lambda: rest_proxy.requests("GET", f"/jobs/{new}/checkpoints"))
    with pytest.raises(Interrupted):
        upgraded(edited, edited.runtime(rest_url=rest_proxy.url, clock=clock, policy=WATCHED))
    assert edited.on_cluster() == []
    _supervised(edited, number=3)
    assert _fingerprints(edited) == {1: "old", 2: "new", 3: "old"}


@pytest.mark.parametrize(
    ("point", "number", "version"),
    [
        (code_points.STOP, 1, "old"),
        (code_points.RECORD, 2, "old"),
        (code_points.RECORDED, 3, "old"),
        (code_points.INSERT, 3, "old"),
    ],
    ids=["before the stop", "before it is recorded", "recorded", "before the INSERT"],
)
def test_killed_before_the_insert_the_old_version_goes_on(
    edited: Laboratory, point: str, number: int, version: str
) -> None:
    with JobWatcher(edited.cluster, edited.job) as watcher:
        killed = Actor.start(edited, "upgrade", "killed", dies_at=point)
        until(lambda: not killed.alive, "the death of the upgrading process")
        assert killed.process.returncode == -9, killed.end()
        _supervised(edited, number=number)
    assert _fingerprints(edited)[number] == version
    assert watcher.most_at_once == 1


def test_killed_as_the_stop_is_answered_the_old_version_comes_back_from_its_savepoint(
    edited: Laboratory, rest_proxy: FaultyProxy
) -> None:
    killed: list[Actor] = []
    rest_proxy.add(Fault("POST", STOP, Does.LOSE_ANSWER, after=lambda: killed[0].kill()))
    killed.append(Actor.start(edited, "upgrade", "killed", rest_url=rest_proxy.url))
    until(lambda: rest_proxy.requests("POST", STOP), "the stop")
    until(lambda: not edited.on_cluster(), "the end of the old version")
    _supervised(edited, number=2)
    assert _fingerprints(edited) == {1: "old", 2: "old"}
    second, first = edited.incarnations()
    assert second.restored_from == first.savepoint_path is not None


def test_killed_as_the_insert_is_answered_the_new_version_goes_on(
    edited: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    """It is on the cluster: exactly one, found by its id."""
    killed: list[Actor] = []
    gateway_proxy.add(
        Fault("POST", STATEMENT, Does.LOSE_ANSWER, body=INSERT, after=lambda: killed[0].kill())
    )
    with JobWatcher(edited.cluster, edited.job) as watcher:
        killed.append(Actor.start(edited, "upgrade", "killed", sql_gateway_url=gateway_proxy.url))
        until(lambda: gateway_proxy.inserts, "the INSERT")
        _supervised(edited, number=2)
    assert _fingerprints(edited) == {1: "old", 2: "new"}
    assert len(gateway_proxy.inserts) == 1
    assert watcher.most_at_once == 1


def test_a_killed_upgrade_whose_new_version_fails_is_undone_by_the_supervisor(
    edited: Laboratory,
) -> None:
    """The state belongs to the old version: it is what runs again, not what was submitted last."""
    write(
        edited,
        f"{COPY} WHERE 1 / (id - 70) < 2",
        settings=[
            "SET 'restart-strategy.type' = 'none'",
            NO_CHECKPOINTS,
        ],
    )
    killed = Actor.start(edited, "upgrade", "killed", halts_at=code_points.INSERT)
    assert killed.wait_until_halted()
    edited.source.write()  # the new version meets row 70 first
    killed.go_on()
    new = flink_job_id(edited.identity, edited.job, 2)
    until(lambda: edited.incarnations()[0].operation_handle, "the INSERT")
    killed.kill()

    def failed() -> bool:
        with edited.cluster.job_manager() as job_manager:
            job = job_manager.job(new)
        return job is not None and job.status.is_terminal

    until(failed, "the failure of the new version")
    _supervised(edited, number=3)
    assert _fingerprints(edited) == {1: "old", 2: "new", 3: "old"}
    third, second, first = edited.incarnations()
    assert second.state is IncarnationState.ENDED
    assert third.restored_from == first.savepoint_path is not None

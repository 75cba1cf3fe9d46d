"""Somebody acts on the cluster past us: a job cancelled or stopped there, the same SQL submitted by
hand."""

from __future__ import annotations

import importlib
from uuid import uuid4

from lakehouse_dagster.flink import JobSummary
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, NotRunnableError, Scene
from tests.support.by_hand import submit_by_hand

_NOTHING = " WHERE id < 0"
"""Lets a second job of the same SQL run without writing the rows a second time."""


def _needs(module: str) -> None:
    try:
        importlib.import_module(f"lakehouse_dagster.streaming.{module}")
    except ImportError as error:
        raise NotRunnableError(f"streaming.{module} is not there yet") from error


def _cancel_on_cluster(scene: Scene) -> None:
    with scene.lab.cluster.job_manager() as job_manager:
        for job in scene.lab.on_cluster():
            job_manager.cancel(job.job_id)


def _lives(scene: Scene, job_id: str) -> bool:
    with scene.lab.cluster.job_manager() as job_manager:
        job: JobSummary | None = job_manager.job(job_id)
    return job is not None and not job.status.is_terminal


@scenario(Row.BY_HAND, "cancelled in Flink's page")
def cancelled(scene: Scene) -> None:
    scene.running_job()
    scene.supervise()
    with scene.live_rows():
        for _ in range(scene.random.randint(1, 2)):
            scene.pause(0, 2)
            before = len(scene.lab.incarnations())
            _cancel_on_cluster(scene)
            scene.until(lambda n=before: len(scene.lab.incarnations()) > n, "the next one", 40)  # type: ignore[misc]
            scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.BY_HAND, "cancelled in Flink's page, and that is respected")
def cancelled_and_respected(scene: Scene) -> None:
    if not hasattr(scene.lab.books.policy, "respect_cancellation"):
        raise NotRunnableError("SupervisionPolicy.respect_cancellation is not there yet")
    scene.running_job()
    scene.supervise(policy={"respect_cancellation": True})
    scene.pause(0, 2)
    _cancel_on_cluster(scene)
    scene.until(
        lambda: scene.desired() not in (DesiredState.RUNNING, DesiredState.UNMANAGED),
        "the new desired state",
    )
    scene.pause(1, 3)
    assert len(scene.lab.incarnations()) == 1
    assert scene.none_runs()


@scenario(Row.BY_HAND, "stopped with a savepoint in Flink's page")
def stopped(scene: Scene) -> None:
    job_id = scene.running_job()
    scene.supervise()
    with scene.live_rows(), scene.lab.cluster.job_manager() as job_manager:
        scene.pause(0, 2)
        job_manager.stop_with_savepoint(
            job_id,
            trigger_id=uuid4().hex,
            target_directory=str(scene.lab.folder / "by hand"),
        )
        scene.until(lambda: len(scene.lab.incarnations()) == 2, "the next one", 40)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert "by hand" in str(scene.lab.incarnations()[0].restored_from)


@scenario(Row.BY_HAND, "the same SQL submitted by hand beside the running job")
def same_sql_beside(scene: Scene) -> None:
    _needs("foreign")
    ours = scene.running_job()
    scene.supervise()
    theirs = uuid4().hex
    scene.foreign_ids.add(theirs)
    scene.pause(0, 1)
    submit_by_hand(scene.lab, condition=_NOTHING, job_id=theirs)
    scene.at("seen")
    scene.until(lambda: _lives(scene, theirs), "the job by hand")
    seen = look(scene.lab.runtime(), SupervisorCursor())
    (observation,) = seen.observations
    assert theirs in observation.foreign
    assert not observation.healthy
    scene.pause(2, 4)
    assert _lives(scene, theirs), "the foreign job was touched"
    assert scene.one_runs() == ours


@scenario(Row.BY_HAND, "the same SQL submitted by hand while the job is down")
def same_sql_instead(scene: Scene) -> None:
    _needs("foreign")
    scene.running_job()
    scene.lab.cancel()
    theirs = uuid4().hex
    scene.foreign_ids.add(theirs)
    submit_by_hand(scene.lab, condition=_NOTHING, job_id=theirs)
    scene.until(lambda: _lives(scene, theirs), "the job by hand")
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.pause(4, 7)
    assert _lives(scene, theirs), "the foreign job was touched"
    assert scene.none_runs(), "ours was started beside it"
    assert len(scene.lab.incarnations()) == 1
    with scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(theirs)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.BY_HAND, "started by hand, adopted, then cancelled")
def adopted(scene: Scene) -> None:
    _needs("adopt")
    scene.lab.source.write(40)
    theirs = submit_by_hand(scene.lab)
    scene.lab.copied(seconds=PATIENCE_SECONDS)
    scene.lab.wait_for_checkpoints(theirs, 2)
    person = scene.process("adopt")
    person.process.wait(40)
    assert scene.lab.incarnations()[0].flink_job_id == theirs
    assert scene.desired() is DesiredState.RUNNING
    scene.supervise()
    with scene.live_rows():
        scene.pause(0, 2)
        with scene.lab.cluster.job_manager() as job_manager:
            job_manager.cancel(theirs)
        scene.until(lambda: len(scene.lab.incarnations()) == 2, "the next one", 40)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert theirs in str(scene.lab.incarnations()[0].restored_from)

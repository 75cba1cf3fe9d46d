"""No slot free, or the TaskManager lost for good: it waits, says for what, and submits no more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from lakehouse_dagster.local.services import Service
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene
from tests.chaos.stack import SLOTS

_QUICK_TO_GIVE_UP = {"start_timeout": "5s"}


@contextmanager
def _all_slots_taken(scene: Scene) -> Iterator[None]:
    """Somebody else's job takes every slot while the block runs."""
    job_id = uuid4().hex
    with scene.lab.cluster.sql_gateway() as gateway, scene.lab.cluster.job_manager() as job_manager:
        session = gateway.open_session("filler")
        session.execute(
            "CREATE TEMPORARY TABLE numbers (n BIGINT) WITH "
            "('connector' = 'datagen', 'rows-per-second' = '1')"
        )
        session.execute(
            "CREATE TEMPORARY TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole')"
        )
        config = {
            "$internal.pipeline.job-id": job_id,
            "pipeline.name": f"filler-{job_id[:8]}",
            "parallelism.default": str(SLOTS),
        }
        session.submit("INSERT INTO nowhere SELECT n FROM numbers", config=config).wait(60)
        session.delete()
        scene.until(lambda: job_manager.overview().slots_available == 0, "no free slot")
        try:
            yield
        finally:
            job_manager.cancel(job_id)


def _says_what_it_needs(scene: Scene) -> None:
    said = scene.lab.books.memory.ensure(scene.lab.job).last_error or ""
    assert "slot" in said, said


@scenario(Row.SLOTS, "no slot is free for a job that starts", cluster_wide=True)
def none_free(scene: Scene) -> None:
    scene.lab.source.write(40)
    if scene.chance(True, False):
        scene.running_job()
        scene.lab.stop()
        scene.at("it ran before")
    with _all_slots_taken(scene):
        scene.want(DesiredState.RUNNING)
        scene.supervise(policy=_QUICK_TO_GIVE_UP)
        scene.until(lambda: scene.gateway.inserts, "the INSERT", 40)
        scene.until(
            lambda: scene.lab.books.memory.ensure(scene.lab.job).last_error, "what is wrong", 30
        )
        _says_what_it_needs(scene)
        scene.pause(4, 9)
        assert len(scene.gateway.inserts) == 1, "submitted again and again"
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert len(scene.gateway.inserts) == 1


@scenario(Row.SLOTS, "the slots are taken while the job restarts", cluster_wide=True)
def taken_meanwhile(scene: Scene) -> None:
    job_id = scene.running_job()
    scene.supervise(policy=_QUICK_TO_GIVE_UP)
    with scene.live_rows(), scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
        scene.until(scene.none_runs, "its end")
        with _all_slots_taken_if_free(scene):
            scene.pause(3, 8)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert len(scene.gateway.inserts) <= 2


@contextmanager
def _all_slots_taken_if_free(scene: Scene) -> Iterator[None]:
    """The supervisor may be quicker: then the filler waits, and is cancelled all the same."""
    try:
        with _all_slots_taken(scene):
            yield
    except AssertionError:
        scene.at("the job was quicker")
        time.sleep(1)


def _without_task_manager(scene: Scene, least: float, most: float) -> None:
    scene.kill(Service.TASK_MANAGER)
    scene.pause(least, most)


@scenario(Row.SLOTS, "the TaskManager of a running job is lost for long", cluster_wide=True)
def task_manager_lost(scene: Scene) -> None:
    job_id = scene.running_job()
    scene.supervise(policy=_QUICK_TO_GIVE_UP)
    with scene.live_rows():
        _without_task_manager(scene, 12, 20)
    assert scene.gateway.inserts == []
    scene.stack.up()
    scene.until(lambda: scene.one_runs() == job_id, "the same job", PATIENCE_SECONDS)


@scenario(Row.SLOTS, "the TaskManager is lost before a job starts", cluster_wide=True)
def task_manager_lost_before(scene: Scene) -> None:
    scene.running_job()
    scene.lab.stop()
    scene.kill(Service.TASK_MANAGER)
    scene.want(DesiredState.RUNNING)
    scene.supervise(policy=_QUICK_TO_GIVE_UP)
    scene.until(lambda: scene.gateway.inserts, "the INSERT", 40)
    scene.pause(9, 15)
    assert len(scene.gateway.inserts) == 1, "submitted again and again"
    scene.stack.up()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert len(scene.gateway.inserts) == 1

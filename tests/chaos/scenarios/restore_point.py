"""Restore points that are unfinished, gone or damaged: an older complete one of the same state, or
refused; never an empty start unasked."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import newest_complete_checkpoint
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene


def _newest(scene: Scene, job_id: str) -> Path:
    found = newest_complete_checkpoint(str(scene.lab.folder / "checkpoints"), job_id)
    assert found is not None
    return Path(str(found.path).removeprefix("file://"))


def _end_on_cluster(scene: Scene, job_id: str) -> None:
    with scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
    scene.until(scene.none_runs, "the end of the job")


def _runs_again(scene: Scene) -> None:
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


def _never_from_nothing(scene: Scene, seconds: float) -> None:
    """Supervisors try, and nothing of the source is read anew meanwhile."""
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.3)
        started = [i for i in scene.lab.incarnations() if i.number > 1]
        assert all(i.restored_from is not None for i in started), "started from nothing"
    if scene.none_runs():
        memory = scene.lab.books.memory
        scene.until(lambda: memory.ensure(scene.lab.job).last_error, "that somebody is told", 30)
    else:
        scene.at("an older one was taken")


@scenario(Row.RESTORE_POINT, "the newest checkpoint was begun and never completed")
def unfinished(scene: Scene) -> None:
    job_id = scene.running_job()
    _end_on_cluster(scene, job_id)
    newest = _newest(scene, job_id)
    for ahead in range(1, scene.random.randint(1, 3) + 1):
        number = int(newest.name.removeprefix("chk-")) + ahead
        begun = newest.with_name(f"chk-{number}")
        begun.mkdir(exist_ok=True)  # Flink may have begun it
        (begun / "part-of-it").write_bytes(b"state")
    _runs_again(scene)
    assert str(scene.lab.incarnations()[0].restored_from).endswith(f"{job_id}/{newest.name}")


@scenario(Row.RESTORE_POINT, "the newest of several equal checkpoints has lost its metadata")
def metadata_lost(scene: Scene) -> None:
    job_id = scene.running_job()
    scene.lab.wait_for_checkpoints(job_id, 3)
    _end_on_cluster(scene, job_id)
    newest = _newest(scene, job_id)
    metadata = newest / "_metadata"
    kept = metadata.rename(scene.lab.folder / "kept")
    try:
        outcome = scene.lab.start()
        scene.at(f"restored from {Path(str(outcome.restored_from)).name} for {newest.name}")
    except NoRestorePointError:
        scene.at("refused")
        kept.rename(metadata)
    _runs_again(scene)


@scenario(Row.RESTORE_POINT, "the newest checkpoint, with rows of its own, has lost its metadata")
def metadata_with_rows_lost(scene: Scene) -> None:
    """Going on from the one before would write those rows a second time."""
    job_id = scene.running_job()
    with scene.live_rows(files=12):
        scene.lab.wait_for_checkpoints(job_id, 4)
        with scene.lab.cluster.job_manager() as job_manager:
            job_manager.cancel(job_id)
        scene.until(scene.none_runs, "the end of the job")
    newest = _newest(scene, job_id)
    metadata = newest / "_metadata"
    kept = metadata.rename(scene.lab.folder / "kept")
    try:
        scene.lab.start()
        scene.at("an older one was taken")
    except NoRestorePointError:
        scene.at("refused")
        kept.rename(metadata)
    _runs_again(scene)


@scenario(Row.RESTORE_POINT, "all checkpoints are gone for a while")
def all_gone(scene: Scene) -> None:
    job_id = scene.running_job()
    _end_on_cluster(scene, job_id)
    what = scene.chance("checkpoints", f"checkpoints/{job_id}")
    scene.at(what)
    away = (scene.lab.folder / what).rename(scene.lab.folder / "taken away")
    if what == "checkpoints":
        (scene.lab.folder / what).mkdir()
    _never_from_nothing(scene, scene.seconds(3, 6))
    assert len(scene.lab.incarnations()) == 1
    shutil.rmtree(scene.lab.folder / what, ignore_errors=True)
    away.rename(scene.lab.folder / what)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.RESTORE_POINT, "the savepoint of a stop is gone for a while")
def savepoint_gone(scene: Scene) -> None:
    scene.running_job()
    stopped = scene.lab.stop()
    savepoint = Path(str(stopped.savepoint_path).removeprefix("file://").removeprefix("file:"))
    away = savepoint.rename(scene.lab.folder / "taken away")
    _never_from_nothing(scene, scene.seconds(3, 6))
    away.rename(savepoint)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.RESTORE_POINT, "the savepoint of a stop is cut off for a while")
def savepoint_cut_off(scene: Scene) -> None:
    scene.running_job()
    stopped = scene.lab.stop()
    path = str(stopped.savepoint_path).removeprefix("file://").removeprefix("file:")
    _cut_off(scene, Path(path) / "_metadata")


@scenario(Row.RESTORE_POINT, "the newest checkpoint is cut off for a while")
def checkpoint_cut_off(scene: Scene) -> None:
    job_id = scene.running_job()
    with scene.live_rows(files=8):
        scene.lab.wait_for_checkpoints(job_id, 2)
        _end_on_cluster(scene, job_id)
    _cut_off(scene, _newest(scene, job_id) / "_metadata")


def _cut_off(scene: Scene, metadata: Path) -> None:
    whole = metadata.read_bytes()
    length = scene.random.randrange(len(whole))
    scene.at(f"{length} of {len(whole)} bytes")
    metadata.write_bytes(whole[:length])
    _never_from_nothing(scene, scene.seconds(4, 7))
    metadata.write_bytes(whole)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)

"""The system database, a SQLite file: locked, full, damaged, gone, or an older copy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, NotRunnableError, Scene
from tests.support.sqlite import locked


def _copy(scene: Scene, to: Path) -> None:
    """Yesterday's backup, made as SQLite's own tool makes it."""
    with (
        closing(sqlite3.connect(scene.lab.database_file)) as now,
        closing(sqlite3.connect(to)) as backup,
    ):
        now.backup(backup)


def _put_in_place(scene: Scene, copy: Path | None) -> None:
    """What a person does who restores a file: processes down, the old files away."""
    scene.record_is_lost = True
    books = scene.lab.__dict__.pop("books", None)
    if books is not None and "database" in books.__dict__:
        books.database.close()
    file = scene.lab.database_file
    for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        path.unlink(missing_ok=True)
    if copy is not None:
        shutil.copy(copy, file)


def _several_incarnations(scene: Scene, copy: Path) -> None:
    """One on the copy, the others only in the database that is lost."""
    scene.running_job()
    _copy(scene, copy)
    for _ in range(scene.random.randint(1, 3)):
        scene.lab.restart() if scene.chance(True, False) else _cancel_and_start(scene)
        scene.lab.source.write(20)
    scene.lab.copied(seconds=PATIENCE_SECONDS)
    scene.at(f"{len(scene.lab.incarnations())} incarnations, one in the copy")


def _cancel_and_start(scene: Scene) -> None:
    scene.lab.wait_for_checkpoints(scene.lab.incarnations()[0].flink_job_id, 1)
    scene.lab.cancel()
    scene.lab.start()


@scenario(Row.DATABASE, "locked while a job starts")
def locked_during_start(scene: Scene) -> None:
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.pause(0.2, 4)
    with locked(scene.lab.database_file):
        scene.pause(3, 9)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.DATABASE, "locked while a job is stopped or restarted")
def locked_during_stop(scene: Scene) -> None:
    scene.running_job()
    verb = scene.chance("stop", "restart", "cancel")
    scene.at(verb)
    person = scene.process(verb, "person")
    scene.may_fail.add("person")
    with scene.live_rows():
        scene.pause(0.3, 2.5)
        with locked(scene.lab.database_file):
            scene.pause(3, 9)
        person.process.wait(90)
    scene.supervise()


@scenario(Row.DATABASE, "an older copy while the job runs")
def older_copy_running(scene: Scene) -> None:
    copy = scene.lab.folder / "copy.db"
    _several_incarnations(scene, copy)
    (running,) = scene.lab.on_cluster()
    _put_in_place(scene, copy)
    scene.supervise()
    scene.until(
        lambda: (
            (scene.lab.incarnations() or [None])[0] is not None
            and scene.lab.incarnations()[0].flink_job_id == running.job_id
        ),
        "the running job on record again",
        PATIENCE_SECONDS,
    )
    assert scene.gateway.inserts == []


@scenario(Row.DATABASE, "an older copy while the job is down")
def older_copy_down(scene: Scene) -> None:
    copy = scene.lab.folder / "copy.db"
    _several_incarnations(scene, copy)
    (running,) = scene.lab.on_cluster()
    scene.lab.wait_for_checkpoints(running.job_id, 1)
    with scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(running.job_id)
    scene.until(scene.none_runs, "its end")
    _put_in_place(scene, copy)
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert running.job_id in str(scene.lab.incarnations()[0].restored_from)


@scenario(Row.DATABASE, "an older copy while an INSERT is on its way")
def older_copy_starting(scene: Scene) -> None:
    copy = scene.lab.folder / "copy.db"
    scene.running_job()
    _copy(scene, copy)
    scene.lab.cancel()
    scene.want(DesiredState.RUNNING)
    (supervisor,) = scene.supervise(1)
    scene.until(lambda: scene.gateway.inserts, "the INSERT", 40)
    scene.pause(0, 1)
    supervisor.kill()
    scene.may_fail.add("supervisor-1")
    _put_in_place(scene, copy)
    scene.want(DesiredState.RUNNING)
    scene.process("supervise", "supervisor-2")
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.DATABASE, "lost while the job runs")
def lost_running(scene: Scene) -> None:
    _several_incarnations(scene, scene.lab.folder / "copy.db")
    (running,) = scene.lab.on_cluster()
    _put_in_place(scene, None)
    scene.supervise()
    scene.pause(1, 3)
    assert scene.gateway.inserts == [], "started although nobody wanted it"
    scene.process("start", "person").process.wait(60)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert scene.lab.incarnations()[0].flink_job_id == running.job_id


@scenario(Row.DATABASE, "lost while the job is down")
def lost_down(scene: Scene) -> None:
    _several_incarnations(scene, scene.lab.folder / "copy.db")
    (running,) = scene.lab.on_cluster()
    scene.lab.wait_for_checkpoints(running.job_id, 1)
    scene.lab.cancel()
    _put_in_place(scene, None)
    scene.process("start", "person").process.wait(90)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert running.job_id in str(scene.lab.incarnations()[0].restored_from)
    scene.supervise()


@scenario(Row.DATABASE, "overwritten with something else for a while")
def garbage(scene: Scene) -> None:
    job_id = scene.running_job()
    copy = scene.lab.folder / "copy.db"
    scene.lab.wait_for_checkpoints(job_id, 1)
    _copy(scene, copy)
    with scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
    junk = scene.lab.folder / "junk"
    junk.write_bytes(scene.random.randbytes(65536))
    _put_in_place(scene, junk)
    scene.supervise()
    scene.pause(2, 5)
    assert scene.gateway.inserts == []
    assert scene.lab.database_file.read_bytes() == junk.read_bytes(), (
        "somebody else's file was touched"
    )
    for actor in scene.actors:
        actor.kill()
        scene.may_fail.add(actor.stop_file.stem)
    _put_in_place(scene, copy)
    scene.process("supervise", "supervisor-after")
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.DATABASE, "on a full disk for a while")
def full(scene: Scene) -> None:
    folder = scene.lab.folder / "small"
    with _small_disk(folder):
        scene.lab.database = f"sqlite:///{folder / 'lakehouse.db'}"
        scene.lab.source.write(40)
        if scene.chance(True, False):
            scene.running_job()
            scene.lab.cancel()
        scene.want(DesiredState.RUNNING)
        scene.pause(0, 0.1)
        scene.supervise(1)
        scene.pause(0, 4)
        ballast = folder / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        scene.pause(3, 8)
        ballast.unlink()
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
        scene.prove()
        scene.proved = True
        scene.lab.clean_up()
        scene.lab.books.database.close()


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system of two megabytes, where we may mount one."""
    if os.geteuid() != 0:
        raise NotRunnableError("only root can mount a small file system")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        raise NotRunnableError("a small file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)

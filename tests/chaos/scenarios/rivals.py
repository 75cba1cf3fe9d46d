"""Several act on one job at once, some of them given up by Dagster but still alive: exactly one."""

from __future__ import annotations

import time
from dataclasses import replace

from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene
from tests.support import code_points
from tests.support.faults import INSERT, STATEMENT, Does, Fault
from tests.support.processes import Actor

_INSERT = Fault("POST", STATEMENT, Does.PASS_ON, body=INSERT)


def _release_lease(scene: Scene) -> None:
    """What tidies up after a cancelled run: its lease is free, its process need not be dead."""
    key = scene.lab.books.memory.lease_key(scene.lab.job)
    lease = scene.lab.books.leases.current(key)
    if lease is not None:
        scene.lab.books.leases.release(lease)


@scenario(Row.RIVALS, "many supervisors start a job at once")
def many_supervisors(scene: Scene) -> None:
    scene.lab.source.write(40)
    if scene.chance(True, False):
        scene.running_job()
        scene.lab.cancel()
        scene.at("it ran before")
    scene.want(DesiredState.RUNNING)
    many = scene.random.randint(2, 4)
    scene.at(f"{many} supervisors")
    scene.supervise(many)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    scene.pause(1, 2)
    assert len(scene.gateway.inserts) == 1


@scenario(Row.RIVALS, "two code locations with other scripts of the same job")
def two_locations(scene: Scene) -> None:
    scene.running_job()
    other = scene.lab.folder / "other.sql"
    other.write_text(scene.lab.script.read_text().replace("INSERT INTO", "INSERT  INTO"))
    scene.supervise(1)
    scene.process("supervise", "other-location", scripts=(str(other),))
    with scene.lab.cluster.job_manager() as job_manager:
        for job in scene.lab.on_cluster():
            job_manager.cancel(job.job_id)
    with scene.live_rows():
        scene.until(lambda: len(scene.lab.incarnations()) == 2, "the next incarnation", 40)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.RIVALS, "a person and the supervisors at once")
def person_and_supervisors(scene: Scene) -> None:
    scene.running_job()
    scene.supervise()
    verbs = [scene.chance("start", "stop", "restart", "cancel", "upgrade") for _ in range(4)]
    scene.at(", ".join(verbs))
    if "upgrade" in verbs:
        scene.lab.write_script(where=" WHERE amount > -1")
    with scene.live_rows():
        for verb in verbs:
            person = scene.process(verb)
            scene.pause(0, 1.5)
            scene.may_fail.add(person.stop_file.stem)
    for actor in scene.actors[-4:]:
        actor.process.wait(60)


@scenario(Row.RIVALS, "a cancelled run goes on after another began")
def cancelled_run_goes_on(scene: Scene) -> None:
    point = scene.chance(code_points.RECORD, code_points.RECORDED, code_points.INSERT)
    scene.at(point)
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    cancelled = scene.process("start", "cancelled", halts_at=point)
    assert cancelled.wait_until_halted(40), "it did not halt"
    _release_lease(scene)
    second = scene.process("start", "second")
    scene.pause(0, 6)
    cancelled.go_on()
    second.process.wait(60)
    cancelled.process.wait(60)
    scene.supervise(1)


@scenario(Row.RIVALS, "a run killed between recorded and submitted, a second one at once")
def killed_after_recorded(scene: Scene) -> None:
    point = scene.chance(code_points.RECORD, code_points.RECORDED, code_points.INSERT)
    scene.at(f"killed {point}")
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    killed = scene.process("start", "killed", dies_at=point)
    scene.may_fail.add("killed")
    killed.process.wait(40)
    if scene.chance(True, False):
        _release_lease(scene)
        scene.at("lease released")
    scene.process("start", "second")
    scene.supervise()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.RIVALS, "a run killed as its INSERT arrives, a second one at once")
def killed_at_insert(scene: Scene) -> None:
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    late = scene.seconds(0, 3)
    scene.at(f"the INSERT arrives {late:g} s later")
    killed: list[Actor] = []
    scene.gateway.add(replace(_INSERT, before=lambda: killed[0].kill(), delay_seconds=late))
    killed.append(scene.process("start", "killed"))
    scene.may_fail.add("killed")
    killed[0].process.wait(40)
    _release_lease(scene)
    scene.process("start", "second")
    scene.supervise()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.RIVALS, "clocks that differ by minutes")
def clocks_differ(scene: Scene) -> None:
    """Two hosts whose clocks are not set alike: leases expire too early or too late."""
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    offsets = [scene.chance(-90.0, -20.0, -4.0), scene.chance(4.0, 20.0, 90.0), 0.0]
    scene.random.shuffle(offsets)
    scene.at(f"offsets {offsets}")
    for number, offset in enumerate(offsets, start=1):
        scene.process("supervise", f"supervisor-{number}", clock_offset_seconds=offset)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    with scene.live_rows(files=8):
        time.sleep(1)
        with scene.lab.cluster.job_manager() as job_manager:
            for job in scene.lab.on_cluster():
                job_manager.cancel(job.job_id)
        scene.until(lambda: len(scene.lab.incarnations()) > 1, "the next one", 120)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)

"""Halted between check and POST; answers to the INSERT lost, late, doubled, cut off; sessions
dropped: the job is found by its id and its INSERT never sent again."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

from lakehouse_dagster.local.services import Service
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene
from tests.support import code_points
from tests.support.faults import INSERT, STATEMENT, Does, Fault
from tests.support.processes import Actor

_INSERT = Fault("POST", STATEMENT, Does.PASS_ON, body=INSERT)


def _start_with(scene: Scene, fault: Fault, **differences: Any) -> None:
    """Whoever waits for a job whose answer was lost does so long enough for a busy gateway."""
    scene.lab.source.write(40)
    if scene.chance(True, False):
        scene.running_job()
        scene.lab.stop()
        scene.at("a start from a savepoint")
    scene.gateway.add(fault)
    scene.want(DesiredState.RUNNING)
    scene.supervise(policy={"submission_timeout": "60s"}, **differences)
    scene.until(lambda: scene.gateway.inserts, "the INSERT", 40)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


@scenario(Row.ANSWERS, "the answer to the INSERT is lost")
def answer_lost(scene: Scene) -> None:
    _start_with(scene, replace(_INSERT, does=Does.LOSE_ANSWER))
    assert len(scene.gateway.inserts) == 1


@scenario(Row.ANSWERS, "the answer to the INSERT comes too late")
def answer_late(scene: Scene) -> None:
    late = scene.seconds(2.5, 9)
    scene.at(f"{late:g} s late, waited for 2 s")
    _start_with(scene, replace(_INSERT, answer_delay_seconds=late), read_timeout_seconds=2.0)
    assert len(scene.gateway.inserts) == 1


@scenario(Row.ANSWERS, "the answer to the INSERT comes a minute late")
def answer_a_minute_late(scene: Scene) -> None:
    """With the product's own time-outs."""
    _start_with(scene, replace(_INSERT, answer_delay_seconds=60))
    assert len(scene.gateway.inserts) == 1
    scene.until(scene.lab.lease_is_free, "the end of whoever waited", 60)


@scenario(Row.ANSWERS, "the INSERT arrives too late")
def request_late(scene: Scene) -> None:
    late = scene.seconds(2.5, 12)
    scene.at(f"{late:g} s late, waited for 2 s")
    _start_with(scene, replace(_INSERT, delay_seconds=late), read_timeout_seconds=2.0)


@scenario(Row.ANSWERS, "the INSERT is doubled on its way")
def request_doubled(scene: Scene) -> None:
    _start_with(scene, replace(_INSERT, does=Does.DOUBLE))


@scenario(Row.ANSWERS, "the answer to the INSERT is cut off")
def answer_truncated(scene: Scene) -> None:
    _start_with(scene, replace(_INSERT, does=Does.TRUNCATE_ANSWER))
    assert len(scene.gateway.inserts) == 1


@scenario(Row.ANSWERS, "the INSERT is lost")
def request_lost(scene: Scene) -> None:
    _start_with(scene, replace(_INSERT, does=scene.chance(Does.LOSE_REQUEST, Does.ANSWER_503)))


@scenario(Row.ANSWERS, "any answers of the gateway are lost or doubled")
def any_answer(scene: Scene) -> None:
    for _ in range(4):
        does = scene.chance(
            Does.LOSE_ANSWER, Does.LOSE_REQUEST, Does.TRUNCATE_ANSWER, Does.DOUBLE, Does.ANSWER_503
        )
        skip = scene.random.randrange(25)
        scene.at(f"{does.name} request {skip}")
        scene.gateway.add(Fault("*", "", does, skip=skip))
    _start_with(scene, replace(_INSERT, does=scene.chance(Does.PASS_ON, Does.LOSE_ANSWER)))


@scenario(Row.ANSWERS, "any answers of the JobManager are lost or cut off")
def any_rest_answer(scene: Scene) -> None:
    for _ in range(6):
        does = scene.chance(
            Does.LOSE_ANSWER, Does.LOSE_REQUEST, Does.TRUNCATE_ANSWER, Does.ANSWER_503
        )
        skip = scene.random.randrange(30)
        scene.at(f"{does.name} request {skip}")
        scene.rest.add(Fault("*", "", does, skip=skip))
    _start_with(scene, _INSERT)


@scenario(Row.ANSWERS, "the session is dropped around the INSERT")
def session_dropped(scene: Scene) -> None:
    when = scene.chance("before", "after")
    late = scene.seconds(0, 0.6)
    scene.at(f"{when} the INSERT, {late:g} s")

    def drop() -> None:
        (insert, *_) = scene.gateway.requests("POST", STATEMENT)[-1:]
        session = re.split("/", insert.path)[3]
        with scene.lab.cluster.sql_gateway() as gateway:
            gateway.session(session).delete()

    if when == "before":
        # The last statement before the INSERT names the same session.
        fault = replace(_INSERT, before=drop)
    else:
        fault = replace(_INSERT, after=lambda: threading.Timer(late, drop).start())
    _start_with(scene, fault)


@scenario(Row.ANSWERS, "halted between the check and the POST until the next has started")
def halted_before_insert(scene: Scene) -> None:
    point = scene.chance(code_points.INSERT, code_points.RECORDED, code_points.RECORD)
    scene.at(point)
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    sleeper = scene.process("supervise", "sleeper", halts_at=point)
    assert sleeper.wait_until_halted(40), "it did not halt"
    scene.supervise(1)
    scene.until(scene.one_runs, "the next incarnation", PATIENCE_SECONDS)
    sleeper.go_on()
    scene.pause(1, 3)
    scene.until(scene.one_runs, "exactly one job", PATIENCE_SECONDS)


@scenario(Row.ANSWERS, "halted while its INSERT is on its way")
def halted_during_insert(scene: Scene) -> None:
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    late = scene.seconds(0, 12)
    scene.at(f"the INSERT arrives {late:g} s after the halt")
    sleepers: list[Actor] = []
    scene.gateway.add(replace(_INSERT, before=lambda: sleepers[0].halt(), delay_seconds=late))
    sleepers.append(scene.process("supervise", "sleeper"))
    assert sleepers[0].wait_until_halted(40), "it did not halt"
    scene.supervise(1)
    scene.until(scene.one_runs, "one job", PATIENCE_SECONDS)
    scene.pause(0, 3)
    sleepers[0].go_on()
    scene.pause(1, 3)


@scenario(Row.ANSWERS, "halted between the check and the stop until it is started again")
def halted_before_stop(scene: Scene) -> None:
    job_id = scene.running_job()
    sleeper = scene.process("stop", "sleeper", halts_at=code_points.STOP)
    scene.may_fail.add("sleeper")
    assert sleeper.wait_until_halted(40), "it did not halt"
    scene.until(scene.lab.lease_is_free, "the end of its lease", 30)
    scene.want(DesiredState.RUNNING)
    scene.supervise(1)
    scene.until(lambda: scene.one_runs() == job_id, "the job")
    sleeper.go_on()
    scene.pause(2, 4)


@scenario(Row.ANSWERS, "gateway restarted between statements", cluster_wide=True)
def gateway_restarted(scene: Scene) -> None:
    scene.lab.source.write(40)
    skip = scene.random.randrange(6)
    scene.at(f"before statement {skip + 1}")
    restarted = threading.Event()

    def restart() -> None:
        if not restarted.is_set():
            restarted.set()
            scene.kill(Service.SQL_GATEWAY)
            scene.stack.up()

    scene.gateway.add(Fault("POST", STATEMENT, Does.PASS_ON, skip=skip, before=restart))
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.until(lambda: restarted.is_set(), "the restart", 40)
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)

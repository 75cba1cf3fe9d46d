"""TaskManager, JobManager or gateway killed at any moment of a start, stop, restart or upgrade."""

from __future__ import annotations

import threading

from lakehouse_dagster.local.services import Service
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import Scene
from tests.chaos.stack import start_one
from tests.support.faults import INSERT, STATEMENT, Does, Fault

ANY_SERVICE = (Service.JOB_MANAGER, Service.TASK_MANAGER, Service.SQL_GATEWAY)
Moment = tuple[str, str, str, str, int]
_ID = "[0-9a-f]{32}"
START_MOMENTS: tuple[Moment, ...] = (
    ("gateway", "POST", "/v3/sessions$", "", 1),
    ("gateway", "POST", STATEMENT, "CREATE|USE", 6),
    ("gateway", "GET", "/status$", "", 12),
    ("gateway", "POST", STATEMENT, INSERT, 1),
    ("gateway", "DELETE", "/v3/sessions/[^/]+$", "", 1),
    ("rest", "GET", "/jobs/overview$", "", 8),
    ("rest", "GET", "/jobmanager/config$", "", 1),
)
STOP_MOMENTS: tuple[Moment, ...] = (
    ("rest", "GET", "/jobs/overview$", "", 4),
    ("rest", "GET", "/jobmanager/config$", "", 1),
    ("rest", "POST", f"/jobs/{_ID}/stop$", "", 1),
    ("rest", "GET", f"/jobs/{_ID}/savepoints/", "", 3),
)
"""(proxy, method, path, body, so many of them are to choose from)."""


def _kill_at(scene: Scene, service: Service, moments: tuple[Moment, ...]) -> None:
    """Arm a proxy: the service dies just before or after a request; else after a while anyway."""
    proxy, method, path, body, many = scene.chance(*moments)
    skip = scene.random.randrange(many)
    when = scene.chance("before", "after")
    struck = threading.Event()
    scene.at(f"{when} {method} {path} {body or ''} number {skip + 1}")

    def strike() -> None:
        if not struck.is_set():
            struck.set()
            scene.kill(service)

    fault = Fault(
        method,
        path,
        Does.PASS_ON,
        body=body,
        skip=skip,
        before=strike if when == "before" else None,
        after=strike if when == "after" else None,
    )
    (scene.gateway if proxy == "gateway" else scene.rest).add(fault)
    scene.armed = struck


def _strike_and_repair(scene: Scene, service: Service) -> None:
    if not scene.armed.wait(12):
        scene.at("that moment did not come")
        scene.armed.set()  # nor shall it: the repaired service lives
        scene.kill(service)
    scene.pause(0, 6)
    if service is Service.JOB_MANAGER and scene.chance(True, False):
        scene.at("JobManager back alone")
        start_one(scene.stack, service)
    scene.stack.up()


def _during_start(scene: Scene, service: Service) -> None:
    scene.lab.source.write(40)
    if scene.chance(True, False):
        scene.running_job()
        scene.lab.cancel()
        scene.at("a start from a checkpoint")
    _kill_at(scene, service, START_MOMENTS)
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    with scene.live_rows():
        _strike_and_repair(scene, service)


def _during_stop(scene: Scene, service: Service, verb: str) -> None:
    """During a stop, or what begins with one."""
    scene.running_job()
    if verb == "upgrade":
        scene.lab.write_script(where=" WHERE amount > -1")
    moments = STOP_MOMENTS if verb == "stop" else STOP_MOMENTS + START_MOMENTS
    _kill_at(scene, service, moments)
    person = scene.process(verb)
    scene.may_fail.add(person.stop_file.stem)
    with scene.live_rows():
        _strike_and_repair(scene, service)
    person.process.wait(60)
    scene.supervise()


def _while_running(scene: Scene, service: Service) -> None:
    scene.running_job()
    scene.supervise()
    with scene.live_rows():
        scene.pause(0, 3)
        scene.armed = threading.Event()
        scene.armed.set()
        scene.kill(service)
        _strike_and_repair(scene, service)


def _register(service: Service) -> None:
    name = service.label

    @scenario(Row.KILLED, f"{name} while the job runs", cluster_wide=True)
    def while_running(scene: Scene) -> None:
        _while_running(scene, service)

    @scenario(Row.KILLED, f"{name} during a start", cluster_wide=True)
    def during_start(scene: Scene) -> None:
        _during_start(scene, service)

    @scenario(Row.KILLED, f"{name} during a stop", cluster_wide=True)
    def during_stop(scene: Scene) -> None:
        _during_stop(scene, service, "stop")

    @scenario(Row.KILLED, f"{name} during a restart", cluster_wide=True)
    def during_restart(scene: Scene) -> None:
        _during_stop(scene, service, "restart")

    @scenario(Row.KILLED, f"{name} during an upgrade", cluster_wide=True)
    def during_upgrade(scene: Scene) -> None:
        _during_stop(scene, service, "upgrade")


for _service in ANY_SERVICE:
    _register(_service)

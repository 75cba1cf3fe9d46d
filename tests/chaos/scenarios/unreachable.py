"""The cluster gives no answer, 503, nonsense, or hangs: UNREACHABLE, and nothing is done."""

from __future__ import annotations

import time
from dataclasses import replace

from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene
from tests.support.faults import Does, Fault

_ALWAYS = Fault("*", "", Does.PASS_ON, times=1_000_000)
_WAYS: dict[str, Fault] = {
    "hangs up": replace(_ALWAYS, does=Does.LOSE_REQUEST),
    "answers 503": replace(_ALWAYS, does=Does.ANSWER_503),
    "hangs": replace(_ALWAYS, does=Does.HANG),
    "answers with half of it": replace(_ALWAYS, does=Does.TRUNCATE_ANSWER),
    "answers with another page": replace(
        _ALWAYS, does=Does.ANSWER_ITSELF, answer=b"<html>Welcome to nginx!</html>"
    ),
    "answers with other JSON": replace(
        _ALWAYS, does=Does.ANSWER_ITSELF, answer=b'{"errors": [], "status": "starting"}'
    ),
}


def _outage(scene: Scene, way: str) -> None:
    """Break the way to the JobManager for a while under supervisors; judge what they do."""
    job_id = scene.running_job()
    scene.supervise(read_timeout_seconds=2.0)
    scene.until(lambda: scene.rest.requests("GET", "/jobs/overview"), "the first tick")
    scene.pause(0, 1.5)
    before = len(scene.lab.incarnations())
    scene.rest.add(replace(_WAYS[way]))
    end = time.monotonic() + scene.seconds(5, 10)
    seen = look(
        scene.lab.runtime(rest_url=scene.rest.url, read_timeout_seconds=2.0), SupervisorCursor()
    )
    (observation,) = seen.observations
    assert observation.observed is ObservedState.UNREACHABLE, observation
    assert seen.actions == ()
    with scene.live_rows():
        while time.monotonic() < end:
            time.sleep(0.5)
            record = scene.lab.books.memory.ensure(scene.lab.job)
            assert record.attempts == 0, "an attempt was asked for"
            assert record.desired is DesiredState.RUNNING
    scene.rest.heal()
    assert len(scene.lab.incarnations()) == before
    assert scene.gateway.inserts == []
    scene.until(lambda: scene.one_runs() == job_id, "the same job", 20)


def _register(way: str) -> None:
    @scenario(Row.UNREACHABLE, f"the JobManager {way}")
    def outage(scene: Scene) -> None:
        _outage(scene, way)

    @scenario(Row.UNREACHABLE, f"the gateway {way} while the job is down")
    def gateway_outage(scene: Scene) -> None:
        scene.running_job()
        scene.lab.cancel()
        scene.gateway.add(replace(_WAYS[way]))
        scene.want(DesiredState.RUNNING)
        scene.supervise(read_timeout_seconds=2.0)
        scene.pause(3, 9)
        assert len(scene.lab.incarnations()) == 1
        scene.gateway.heal()
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)


for _way in _WAYS:
    _register(_way)


@scenario(Row.UNREACHABLE, "both are away as the job ends")
def away_as_it_ends(scene: Scene) -> None:
    job_id = scene.running_job()
    scene.supervise(read_timeout_seconds=2.0)
    scene.until(lambda: scene.rest.requests("GET", "/jobs/overview"), "the first tick")
    for proxy in (scene.rest, scene.gateway):
        way = scene.chance(*_WAYS)
        scene.at(way)
        proxy.add(replace(_WAYS[way]))
    with scene.lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
    scene.pause(3, 8)
    assert len(scene.lab.incarnations()) == 1
    scene.rest.heal()
    scene.gateway.heal()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    assert len(scene.lab.incarnations()) == 2


@scenario(Row.UNREACHABLE, "the overview is empty although the job runs")
def empty_overview(scene: Scene) -> None:
    """As one that recovers shows it for a moment; the job itself is found by its id."""
    job_id = scene.running_job()
    scene.supervise()
    scene.until(lambda: scene.rest.requests("GET", "/jobs/overview"), "the first tick")
    times = scene.random.randint(1, 14)
    scene.at(f"{times} times")
    scene.rest.add(
        Fault("GET", "/jobs/overview$", Does.ANSWER_ITSELF, answer=b'{"jobs": []}', times=times)
    )
    scene.pause(4, 8)
    scene.rest.heal()
    scene.until(lambda: scene.one_runs() == job_id, "the same job", 30)
    assert scene.gateway.inserts == []


@scenario(Row.UNREACHABLE, "the way is broken every few requests")
def flapping(scene: Scene) -> None:
    scene.running_job()
    scene.lab.cancel()
    for _ in range(12):
        fault = replace(_WAYS[scene.chance(*_WAYS)], times=1, skip=scene.random.randrange(40))
        scene.chance(scene.rest, scene.gateway).add(fault)
    scene.want(DesiredState.RUNNING)
    with scene.live_rows():
        scene.supervise(read_timeout_seconds=2.0)
        scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)

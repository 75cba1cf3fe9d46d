"""Jobs that are up and not well: seen within their bounds, with a root cause without row data."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.observe import Observation, ObservedState
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import POLICY, NotRunnableError, Scene
from tests.support.laboratory import QUICK

_SECRET = "hunter-4711-secret"
_STRICT = {"no_checkpoint_after": "4s", "restarts_are_many": 2, "restart_window": "1m"}


def _seen_within(
    scene: Scene,
    seconds: float,
    wanted: Callable[[Observation], bool],
    runtime: Runtime | None = None,
) -> Observation:
    """Look again and again as a supervisor does, until it is seen."""
    policy = replace(QUICK, **{**POLICY, **_STRICT})
    runtime, cursor = runtime or scene.lab.runtime(policy=policy), SupervisorCursor()
    began = time.monotonic()
    said: list[str] = []
    while True:
        seen = look(runtime, cursor)
        cursor = seen.cursor
        observation = seen.observations[0]
        if not said or said[-1] != observation.reason:
            said.append(observation.reason)
        if wanted(observation):
            scene.at(f"seen after {time.monotonic() - began:.1f} s: {observation.reason[:60]}")
            return observation
        assert time.monotonic() - began < seconds, f"not seen in time: {said}"
        time.sleep(0.3)


def _degraded(observation: Observation) -> bool:
    return observation.observed is ObservedState.DEGRADED


@scenario(Row.SICK, "a bad record makes it restart for ever")
def bad_record(scene: Scene) -> None:
    scene.lab.write_script(settings="SET 'restart-strategy.exponential-delay.max-backoff' = '1 s';")
    scene.running_job()
    scene.supervise(policy=_STRICT)
    bad = _bad_record(scene)
    observation = _seen_within(scene, 40, _degraded)
    assert _SECRET not in observation.reason
    newest = scene.lab.incarnations()[0]
    if not hasattr(newest, "root_cause"):
        raise NotRunnableError("Incarnation.root_cause is not there yet")
    cause = scene.until(lambda: scene.lab.incarnations()[0].root_cause, "the root cause", 15)
    assert _SECRET not in cause, f"row data in the root cause: {cause}"
    assert scene.gateway.inserts == [], "Flink restarts it; nobody else does"
    _repair(bad)


@scenario(Row.SICK, "no checkpoint completes any more")
def no_checkpoints(scene: Scene) -> None:
    scene.lab.write_script(
        settings="SET 'execution.checkpointing.tolerable-failed-checkpoints' = '100000';"
    )
    job_id = scene.running_job()
    scene.supervise(policy=_STRICT)
    folder = scene.lab.folder / "checkpoints" / job_id
    away = Path(folder).rename(scene.lab.folder / "taken away")
    folder.write_text("a file where a folder should be")
    try:
        observation = _seen_within(scene, 25, _degraded)
        assert "checkpoint" in observation.reason
    finally:
        folder.unlink()
        away.rename(folder)
    assert scene.gateway.inserts == []


@scenario(Row.SICK, "degraded jobs are revived when the policy says so")
def revived(scene: Scene) -> None:
    if not hasattr(QUICK, "restart_degraded"):
        raise NotRunnableError("SupervisionPolicy.restart_degraded is not there yet")
    scene.lab.write_script(
        settings="SET 'execution.checkpointing.tolerable-failed-checkpoints' = '100000';"
    )
    job_id = scene.running_job()
    folder = scene.lab.folder / "checkpoints" / job_id
    kept = scene.lab.folder / "kept"
    folder.rename(kept)
    folder.write_text("a file where a folder should be")
    scene.supervise(policy={**_STRICT, "restart_degraded": True})
    scene.pause(2, 6)
    folder.unlink()
    kept.rename(folder)
    scene.until(scene.one_runs, "the job", 60)


@scenario(Row.SICK, "it fails at every start until it is repaired")
def fails_at_every_start(scene: Scene) -> None:
    """A few attempts, further and further apart, and no more."""
    scene.lab.write_script(settings="SET 'restart-strategy.type' = 'none';")
    scene.running_job()
    scene.lab.stop()
    bad = _bad_record(scene)
    scene.want(DesiredState.RUNNING)
    scene.supervise(1)
    scene.pause(8, 12)
    assert 1 <= len(scene.gateway.inserts) <= 8, f"{len(scene.gateway.inserts)} submissions"
    _repair(bad)


@scenario(Row.SICK, "it reads nothing although its source moves")
def no_progress(scene: Scene) -> None:
    """A job below ours whose source looks for new snapshots once an hour."""
    if importlib.util.find_spec("lakehouse_dagster.streaming.positions") is None:
        raise NotRunnableError("streaming.positions is not there yet")
    scene.running_job()
    name, script = f"{scene.lab.job}-a-dwd", scene.lab.folder / "below.sql"
    script.write_text(_BELOW.format(name=name))
    policy = replace(QUICK, **{**POLICY, "no_progress_after": "4s"})
    runtime = scene.lab.runtime(script, scene.lab.script, policy=policy)
    outcome = scene.lab.start(runtime, job=name)
    scene.lab.wait_for_checkpoints(outcome.flink_job_id, 2)
    below = scene.lab.runtime(script, policy=policy)
    with scene.live_rows(files=60):
        observation = _seen_within(scene, 30, _degraded, below)
    assert "read nothing" in observation.reason
    (cancelled,) = apply(runtime, [(name, verb("cancel"))], holder="person")
    assert cancelled.error is None


_BELOW = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
CREATE DATABASE IF NOT EXISTS dwd;
CREATE TABLE IF NOT EXISTS dwd.kept (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
INSERT INTO dwd.kept
SELECT id, text, amount FROM ods.copied /*+ OPTIONS('continuous.discovery-interval' = '1 h') */;
"""


def _bad_record(scene: Scene) -> Path:
    """A row that Flink cannot read, in a file that it finds in one go."""
    row = f'{{"id": "{_SECRET}", "text": ["{_SECRET}"], "amount": 1}}\n'
    bad = scene.lab.source.folder / "rows-999999.json"
    _put(bad, row)
    return bad


def _repair(bad: Path) -> None:
    _put(bad, "")


def _put(file: Path, text: str) -> None:
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(text)
    hidden.rename(file)

"""A changed script that its kept state does not fit: refused before, or found right after the
start; the old restore point and the old version come back."""

from __future__ import annotations

import importlib.util

from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, NotRunnableError, Scene
from tests.support.faults import INSERT, STATEMENT, Does, Fault
from tests.support.laboratory import Laboratory

_DEDUPLICATED = """\
INSERT INTO ods.copied SELECT id, text, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY came) AS place
  FROM (SELECT id, text, amount, PROCTIME() AS came FROM incoming)
) WHERE place = 1;
"""
_TWO_SINKS = """\
CREATE TABLE IF NOT EXISTS ods.others (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE others (id BIGINT, text STRING, amount INT) WITH (
  'connector' = 'filesystem', 'path' = '${{LAB}}/others', 'format' = 'json',
  'source.monitor-interval' = '200ms'
);
EXECUTE STATEMENT SET BEGIN
{inserts}
END;
"""
_COPY = "INSERT INTO ods.copied SELECT id, text, amount FROM incoming;"
_OTHERS = "INSERT INTO ods.others SELECT id, text, amount FROM others;"


def _script(lab: Laboratory, body: str) -> str:
    """The laboratory's script with another end than its one INSERT."""
    whole = lab.write_script().read_text()
    lab.script.write_text(whole[: whole.index("INSERT INTO")] + body)
    return lab.script.read_text()


def _run_on_old_script(scene: Scene, old: str) -> str:
    scene.lab.script.write_text(old)
    return scene.running_job()


def _comes_back(scene: Scene, old: str) -> None:
    """The old script again, from the old restore point, without a person's doing more."""
    scene.lab.script.write_text(old)
    scene.want(DesiredState.RUNNING)
    scene.supervise()
    scene.until(scene.one_runs, "the old version", PATIENCE_SECONDS)


def _upgrade_or_skip(scene: Scene) -> None:
    if importlib.util.find_spec("lakehouse_dagster.streaming.upgrade") is None:
        raise NotRunnableError("streaming.upgrade is not there yet")
    person = scene.process("upgrade", "person", policy={"first_checkpoint_timeout": "20s"})
    person.process.wait(120)


@scenario(Row.INCOMPATIBLE, "another key of the state, restarted by a person")
def other_key_restarted(scene: Scene) -> None:
    old = _script(scene.lab, _DEDUPLICATED.format(keys="id"))
    _run_on_old_script(scene, old)
    _script(scene.lab, _DEDUPLICATED.format(keys=scene.chance("text", "id, text", "amount, id")))
    with scene.live_rows(files=10):
        person = scene.process("restart", "person")
        person.process.wait(90)
    *later, first = scene.lab.incarnations()
    scene.at(f"incarnation 2: {later[-1].end_reason}"[:120])
    assert first.savepoint_path is not None
    _comes_back(scene, old)
    restored = {incarnation.restored_from for incarnation in scene.lab.incarnations()[:-1]}
    assert restored == {first.savepoint_path}, restored


@scenario(Row.INCOMPATIBLE, "another key of the state, upgraded")
def other_key_upgraded(scene: Scene) -> None:
    old = _script(scene.lab, _DEDUPLICATED.format(keys="id"))
    _run_on_old_script(scene, old)
    _script(scene.lab, _DEDUPLICATED.format(keys=scene.chance("text", "id, text", "amount, id")))
    with scene.live_rows(files=10):
        _upgrade_or_skip(scene)
    scene.until(scene.one_runs, "the old version", PATIENCE_SECONDS)
    scene.supervise()


@scenario(Row.INCOMPATIBLE, "a script that Flink refuses, upgraded")
def refused_upgraded(scene: Scene) -> None:
    job_id = scene.running_job()
    old = scene.lab.script.read_text()
    scene.lab.write_script(where=" WHERE nonesuch > 1")
    _upgrade_or_skip(scene)
    assert scene.one_runs() == job_id, "it was stopped for nothing"
    scene.lab.script.write_text(old)
    scene.supervise()


@scenario(Row.INCOMPATIBLE, "a script that Flink refuses, restarted by a person")
def refused_restarted(scene: Scene) -> None:
    scene.running_job()
    old = scene.lab.script.read_text()
    scene.lab.write_script(where=" WHERE nonesuch > 1")
    scene.process("restart", "person").process.wait(60)
    assert "nonesuch" in str(scene.lab.books.memory.ensure(scene.lab.job).last_error)
    _comes_back(scene, old)


@scenario(Row.INCOMPATIBLE, "a source moved in a statement set, upgraded")
def moved_source(scene: Scene) -> None:
    """Flink gives the state of sources by position: each would get the other's."""
    (scene.lab.folder / "others").mkdir()
    old = _script(scene.lab, _TWO_SINKS.format(inserts=f"{_COPY}\n{_OTHERS}"))
    job_id = _run_on_old_script(scene, old)
    _script(scene.lab, _TWO_SINKS.format(inserts=f"{_OTHERS}\n{_COPY}"))
    _upgrade_or_skip(scene)
    assert scene.one_runs() == job_id, "the state was handed to the wrong source"
    scene.lab.script.write_text(old)
    scene.supervise()


@scenario(Row.INCOMPATIBLE, "an added filter is upgraded in one run")
def added_filter(scene: Scene) -> None:
    scene.running_job()
    scene.lab.write_script(where=" WHERE amount > -1")
    with scene.live_rows(files=10):
        _upgrade_or_skip(scene)
    scene.until(scene.one_runs, "the new version", PATIENCE_SECONDS)
    assert len(scene.lab.incarnations()) == 2
    scene.supervise()


@scenario(Row.INCOMPATIBLE, "a script that fails on its first rows, upgraded")
def fails_at_once(scene: Scene) -> None:
    scene.running_job()
    scene.lab.write_script(where=" WHERE 1 / (amount - amount) < 2")
    # There as the new version begins to read: before its first checkpoint.
    insert = Fault("POST", STATEMENT, Does.PASS_ON, body=INSERT, before=scene.lab.source.write)
    scene.gateway.add(insert)
    _upgrade_or_skip(scene)
    scene.until(scene.one_runs, "the old version", PATIENCE_SECONDS)
    scene.supervise()

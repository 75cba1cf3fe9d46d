"""A job that Flink shows RUNNING while its TaskManager is frozen is seen to read nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.streaming.details import ask
from lakehouse_dagster.streaming.observe import stalled_for
from tests.paimon.writing import Writer
from tests.support.laboratory import QUICK, Laboratory, until
from tests.support.stacks import up

pytestmark = [pytest.mark.chaos, pytest.mark.flink]

IMPATIENT = replace(QUICK, no_progress_after="4s")
MIRROR = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '400ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS dws;
CREATE TABLE IF NOT EXISTS dws.mirror (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
INSERT INTO dws.mirror SELECT id, text, amount
FROM ods.copied /*+ OPTIONS('continuous.discovery-interval' = '100 ms') */;
"""


@pytest.fixture
def stack(flink_engine: str, tmp_path: Path) -> Iterator[LocalStack]:
    """A cluster that takes a silent TaskManager for alive for minutes."""
    patient = {
        "heartbeat.timeout": "5min",
        "web.refresh-interval": "100ms",
        "rest.cache.checkpoint-statistics.timeout": "100ms",
    }
    stack = LocalStack(tmp_path / "stack", flink_engine, slots=2, extra_config=patient)
    with up(stack):
        yield stack


def test_a_frozen_job_stands_still_until_it_gets_on(stack: LocalStack, tmp_path: Path) -> None:
    status = stack.status()
    lab = Laboratory(tmp_path / "lab", status.rest_url, status.sql_gateway_url)
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("amount", pa.int32())])
    (lab.folder / "warehouse").mkdir(parents=True)
    source = Writer(lab.folder / "warehouse", "ods.copied", columns, options={"bucket": "-1"})
    source.append([{"id": 1, "text": "one", "amount": 1}])
    name = f"{lab.job}-mirror"
    script = lab.folder / "mirror.sql"
    script.write_text(MIRROR.format(name=name))
    runtime = lab.runtime(lab.script, script, policy=IMPATIENT)
    job_id = lab.start(runtime, job=name).flink_job_id
    mirror = lab.catalog.open().table("dws.mirror")
    until(lambda: mirror.latest_snapshot_id() and mirror.read().num_rows == 1, "one row")
    lab.wait_for_checkpoints(job_id)

    def standing_still() -> str | None:
        """What the supervisor makes of the job once it has asked about it."""
        latest = runtime.memory.latest(name)
        assert latest is not None
        with lab.cluster.job_manager() as job_manager:
            on_cluster = {found.job_id: found for found in job_manager.jobs()}
            asked = ask(runtime, job_manager, [latest], on_cluster)
        return stalled_for(asked[name], runtime.clock.now(), runtime.policy)

    assert standing_still() is None
    (task_manager,) = [p.pid for p in status.processes if p.name == Service.TASK_MANAGER.value]
    assert task_manager is not None
    os.kill(task_manager, signal.SIGSTOP)
    try:
        source.append([{"id": 2, "text": "two", "amount": 2}])
        text = until(standing_still, "standing still")
        assert text.endswith(", and its sources have more")
        with lab.cluster.job_manager() as job_manager:
            (shown,) = [found for found in job_manager.jobs() if found.job_id == job_id]
        assert shown.status is FlinkJobStatus.RUNNING
    finally:
        os.kill(task_manager, signal.SIGCONT)
    until(lambda: mirror.read().num_rows == 2, "the second row")
    until(lambda: standing_still() is None, "getting on again")
    assert sorted(mirror.read(columns=["id"])["id"].to_pylist()) == [1, 2]

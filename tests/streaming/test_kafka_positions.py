"""How far a job has read a Kafka topic is read from its restore points, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse_dagster.flink import SourceKind, create_catalog, read_checkpoint_metadata
from lakehouse_dagster.streaming.lag import lag_now
from tests.support import kafka
from tests.support.fixtures import lab as lab
from tests.support.laboratory import Laboratory, until

pytestmark = [pytest.mark.services, pytest.mark.flink, pytest.mark.every_engine]

TOPIC = """\
CREATE TEMPORARY TABLE orders (id BIGINT, text STRING) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '{servers}',
  'properties.group.id' = 'g', 'scan.startup.mode' = 'earliest-offset', 'value.format' = 'json',
  'key.format' = 'json', 'key.fields' = 'id'
)"""
READ = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
ADD JAR '{jar}';
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.orders (id BIGINT, text STRING) WITH ('bucket' = '-1');
{topic};
INSERT INTO ods.orders SELECT id, text FROM orders;
"""


@pytest.fixture
def broker(flink_engine: str, tmp_path: Path) -> Iterator[kafka.KafkaBroker]:
    with kafka.KafkaBroker(tmp_path / "kafka", flink_engine) as running:
        yield running


@pytest.fixture
def jar(flink_engine: str) -> Path:
    """The connector, which comes with the job: the shared cluster need not have it."""
    return kafka.connector(flink_engine)


def produce(lab: Laboratory, jar: Path, servers: str, first: int, count: int) -> None:
    """Write numbered records into the topic."""
    values = ", ".join(f"({number}, 'row {number}')" for number in range(first, first + count))
    with lab.cluster.sql_gateway() as gateway:
        session = gateway.open_session("producer")
        session.execute(create_catalog("lake", lab.catalog.flink_options()))
        session.execute(f"ADD JAR '{jar}'")
        session.execute(TOPIC.format(servers=servers))
        session.execute("SET 'execution.runtime-mode' = 'batch'")
        session.execute("SET 'table.dml-sync' = 'true'")
        session.execute(f"INSERT INTO orders VALUES {values}", timeout_seconds=90)
        session.delete()


def test_the_offsets_of_a_restore_point_add_up_to_the_rows_that_were_read(
    broker: kafka.KafkaBroker, lab: Laboratory, jar: Path
) -> None:
    servers = broker.address
    produce(lab, jar, servers, 1, 300)
    script = lab.folder / "orders.sql"
    script.write_text(READ.format(name=lab.job, jar=jar, topic=TOPIC.format(servers=servers)))
    runtime = lab.runtime(script)
    started = lab.start(runtime)
    table = lab.catalog.open().table("ods.orders")
    until(lambda: table.latest_snapshot_id() and table.read().num_rows == 300, "300 rows read")
    lab.wait_for_checkpoints(started.flink_job_id)

    with lab.cluster.job_manager() as job_manager:
        until(lambda: job_manager.pending_records(started.flink_job_id), "records that wait told")
        newest = lab.checkpoints(started.flink_job_id).latest_completed
        assert newest is not None
        runtime.memory.update(lab.job, 1, checkpoint_path=newest.external_path)
        latest = runtime.memory.latest(lab.job)
        assert latest is not None
        lag = lag_now(runtime, runtime.job(lab.job), latest, job_manager=job_manager)
    assert lag is not None
    assert [upstream.records_behind for upstream in lag.upstreams] == [0]

    savepoint = lab.stop(runtime).savepoint_path
    assert savepoint is not None
    (position,) = read_checkpoint_metadata(savepoint).positions
    assert position.kind is SourceKind.KAFKA
    assert position.exact
    assert position.pending_splits == 0
    assert set(position.offsets) == {"orders/0", "orders/1"}
    assert sum(position.offsets.values()) == 300

    produce(lab, jar, servers, 301, 50)
    again = lab.start(runtime)
    until(lambda: table.read().num_rows == 350, "350 rows read")
    lab.wait_for_checkpoints(again.flink_job_id)
    after = lab.stop(runtime).savepoint_path
    assert after is not None
    (moved,) = read_checkpoint_metadata(after).positions
    assert sum(moved.offsets.values()) == 350
    ids = sorted(table.read(columns=["id"])["id"].to_pylist())
    assert ids == list(range(1, 351))

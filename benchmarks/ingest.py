"""``ingest``: rows a second through the project, against the same SQL sent by hand.

Both write the same generated rows into a primary-key table on the same cluster and end by
themselves; what is compared is the job's own duration as the JobManager reports it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.goal import Goal, say
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SystemDatabase
from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.streaming.apply import apply, verb

PAIRS = 5
ROWS = 1_000_000

TABLE = """CREATE TABLE IF NOT EXISTS bench.{name} (
  id BIGINT, v BIGINT, s STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '2')"""
SOURCE = """CREATE TEMPORARY TABLE gen (id BIGINT, v BIGINT, s STRING) WITH (
  'connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '1000000000',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{rows}',
  'fields.s.length' = '20')"""
INSERT = "INSERT INTO bench.{name} SELECT id, v, s FROM gen"
DATABASE = "CREATE DATABASE IF NOT EXISTS bench"
INTERVAL = "SET 'execution.checkpointing.interval' = '5s'"


def run() -> list[Goal]:
    """Five interleaved pairs after one warm-up of each."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        stack = LocalStack(home / "stack", slots=4, task_manager_memory_mib=1400)
        try:
            status = stack.up()
            cluster = FlinkCluster(status.rest_url, status.sql_gateway_url)
            ratios = []
            for pair in range(PAIRS + 1):
                bare = _bare(cluster, home, f"bare_{pair}")
                ours = _ours(cluster, home, f"ours_{pair}")
                rates = f"{ROWS / ours:,.0f} rows/s through the project, {ROWS / bare:,.0f} by hand"
                say(f"ingest: {rates}{'' if pair else ' (warm-up)'}")
                if pair:
                    ratios.append(bare / ours)
        finally:
            stack.down()
    return [Goal("ingest", ratios, at_least=0.95)]


def _bare(cluster: FlinkCluster, home: Path, name: str) -> float:
    statements = home / f"{name}.json"
    statements.write_text(
        json.dumps(
            [
                f"CREATE CATALOG lake WITH ('type'='paimon','warehouse'='file://{home}/warehouse')",
                "USE CATALOG lake",
                DATABASE,
                TABLE.format(name=name),
                SOURCE.format(rows=ROWS),
                INTERVAL,
                f"SET 'pipeline.name' = '{name}'",
                INSERT.format(name=name),
            ]
        )
    )
    program = Path(__file__).with_name("bare_ingest.py")
    done = subprocess.run(
        [sys.executable, program, cluster.sql_gateway_url, cluster.rest_url, statements],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def _ours(cluster: FlinkCluster, home: Path, name: str) -> float:
    script = home / f"{name}.sql"
    parts = [DATABASE, TABLE.format(name=name), SOURCE.format(rows=ROWS), INTERVAL]
    script.write_text(";\n".join([*parts, INSERT.format(name=name)]) + ";\n")
    lake = Lakehouse(
        catalog=PaimonCatalog(str(home / "warehouse")),
        flink=cluster,
        name=name,
        system_database=SystemDatabase(f"sqlite:///{home}/system.db"),
    ).load(script)
    (result,) = apply(lake.runtime, [(name, verb("start"))], holder="benchmark")
    if result.error is not None:
        raise result.error
    incarnation = lake.runtime.memory.latest(name)
    assert incarnation is not None
    with cluster.job_manager() as job_manager:
        while True:
            job = job_manager.job(incarnation.flink_job_id)
            if job is not None and job.status is FlinkJobStatus.FINISHED:
                assert job.ended_at is not None
                return (job.ended_at - job.started_at).total_seconds()
            if job is None or job.status.is_terminal:
                raise SystemExit(f"the job is {job.status.value if job else 'gone'}")
            time.sleep(0.2)

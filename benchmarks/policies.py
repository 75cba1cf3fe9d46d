"""``policies``: deciding what 1,000 tables are due for when nothing has changed.

CPU time of a whole look of the maintenance sensor, held against one second: every table's facts
(its folder's hints, snapshots, tags, branches and consumers; the sums lie in the system database
and at hand), the leases, the jobs that read it and how far, what was done to it before (20 actions
a table on record), and the decision. Half of the tables are read by a running job of ours.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.goal import Goal, say
from lakehouse_dagster import FlinkCluster, PaimonCatalog, SystemDatabase
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import look
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.sql.model import (
    JobDefinition,
    Location,
    Statement,
    StatementKind,
    TableName,
)
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.system_db import DesiredState, IncarnationState
from lakehouse_dagster.system_db.maintenance_actions import ActionState

TABLES = 1_000
ACTIONS_EACH = 20
LOOKS = 15


def run() -> list[Goal]:
    """Looks one after the other; the median counts."""
    with tempfile.TemporaryDirectory() as folder:
        _warehouse(Path(folder))
        keeper = Keeper(_runtime(Path(folder)))
        _everything_runs(keeper)
        _much_was_done(keeper)
        turns = [_look(keeper) for _ in range(LOOKS + 1)][1:]
    cpu, wall = (statistics.median(column) for column in zip(*turns, strict=True))
    say(
        f"policies: {cpu * 1000:.0f} ms of CPU ({wall * 1000:.0f} ms in all) to decide on {TABLES} "
        f"tables; medians of {LOOKS} looks"
    )
    return [Goal("policies (seconds)", [cpu for cpu, _ in turns], at_most=1.0)]


def _look(keeper: Keeper) -> tuple[float, float]:
    began, began_wall = time.process_time(), time.perf_counter()
    decisions, failures = look(keeper, MaintenancePolicy())
    seconds = time.process_time() - began, time.perf_counter() - began_wall
    assert not failures, failures[0]
    assert len(decisions) == TABLES, len(decisions)
    assert not any(decision.actions for decision in decisions), decisions[0]
    return seconds


def _runtime(folder: Path) -> Runtime:
    return Runtime(
        lakehouse="bench",
        cluster=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
        catalog=PaimonCatalog(warehouse=str(folder / "warehouse")),
        system_database=SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}"),
        jobs={f"job-{n:04d}": _job(n) for n in range(TABLES // 2)},
    )


def _job(number: int) -> StreamingJob:
    """A job that writes one table and reads another."""
    name = f"job-{number:04d}"
    place = Location(f"{name}.sql", 1, 1)
    written, read = (TableName("paimon", "b", f"t{n:04d}") for n in (number, number + TABLES // 2))
    text = f"INSERT INTO {written} SELECT * FROM {read}"
    return StreamingJob(
        JobDefinition(
            name=name,
            name_is_explicit=True,
            statement=Statement(text, place, StatementKind.INSERT),
            setup=(),
            settings={},
            sinks=(written,),
            reads=(read,),
            sources=(),
            reads_itself=False,
            dependencies_known=True,
            location=place,
        )
    )


def _everything_runs(keeper: Keeper) -> None:
    memory, now = keeper.runtime.memory, datetime.now(timezone.utc)
    memory.ensure_all(keeper.runtime.jobs)
    for number, (name, job) in enumerate(keeper.runtime.jobs.items()):
        memory.set_desired(name, DesiredState.RUNNING)
        memory.record(
            name,
            number=1,
            flink_job_id=f"{number:032x}",
            fingerprint=job.fingerprint,
            restored_from=None,
            fencing=1,
            session_handle=None,
        )
        memory.update(name, 1, state=IncarnationState.RUNNING, running_at=now, checkpoint_at=now)


def _much_was_done(keeper: Keeper) -> None:
    """Written as rows, not action by action: 20,000 commits would take minutes."""
    from lakehouse_dagster.system_db import schema

    began = datetime.now(timezone.utc) - timedelta(hours=1)
    kinds = (ActionKind.COMPACT, ActionKind.EXPIRE_SNAPSHOTS)
    rows = [
        {
            "lakehouse": keeper.runtime.identity,
            "id": f"{table:016x}{number:016x}",
            "table_name": f"b.t{table:04d}",
            "kind": kinds[number % 2].value,
            "state": ActionState.DONE.value,
            "reason": "It was due.",
            "details": "{}",
            "holder": "benchmark",
            "attempts": 1,
            "writer_restarts": 0,
            "started_at": began + timedelta(seconds=number),
            "ended_at": began + timedelta(seconds=number + 30),
        }
        for table in range(TABLES)
        for number in range(ACTIONS_EACH)
    ]
    with keeper.runtime.database.write() as connection:
        connection.execute(schema.maintenance_actions.insert(), rows)


def _warehouse(folder: Path) -> None:
    """Tables with a primary key and three snapshots: one made with pypaimon, others its copies."""
    import pyarrow as pa
    import pypaimon

    warehouse = folder / "warehouse"
    catalog = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("b", True)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    schema = pypaimon.Schema.from_pyarrow_schema(
        columns, primary_keys=["id"], options={"bucket": "2"}
    )
    catalog.create_table("b.t0000", schema, False)
    table = catalog.get_table("b.t0000")
    for number in range(3):
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.table({"id": [number], "v": ["x"]}, schema=columns))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
    made = warehouse / "b.db" / "t0000"
    for number in range(1, TABLES):
        shutil.copytree(made, warehouse / "b.db" / f"t{number:04d}")
    assert json.loads((made / "snapshot" / "snapshot-3").read_text())["id"] == 3

"""Partitions that a real Flink job writes, as Dagster comes to know them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import dagster as dg
import pytest

from lakehouse_dagster import (
    FlinkCluster,
    Lakehouse,
    LoadedLakehouse,
    PaimonCatalog,
    ProgressPolicy,
    SystemDatabase,
    TablePartitions,
    TableSettings,
)
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import Clock
from tests.support.fixtures import lab  # noqa: F401
from tests.support.laboratory import QUICK, Laboratory, until

pytestmark = pytest.mark.flink

ROW = "id BIGINT, v STRING, s STRING, hh INT, d DATE, ts TIMESTAMP(3), b BOOLEAN"
# Flink looks up a temporary source of several INSERTs in its catalog: it must not be in Paimon's.
SCRIPT = """\
SET 'pipeline.name' = '{job}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS p;
CREATE TABLE IF NOT EXISTS p.days (id BIGINT, v STRING, s STRING) PARTITIONED BY (s)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS p.hours (id BIGINT, s STRING, hh INT) PARTITIONED BY (s, hh)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS p.types
(id BIGINT, hh INT, d DATE, ts TIMESTAMP(3), b BOOLEAN) PARTITIONED BY (hh, d, ts, b)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS p.dates (id BIGINT, d DATE, v STRING) PARTITIONED BY (d, v)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE default_catalog.default_database.incoming ({row}) WITH (
  'connector' = 'filesystem', 'path' = '${{LAB}}/rows', 'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601', 'source.monitor-interval' = '200ms'
);
EXECUTE STATEMENT SET BEGIN
INSERT INTO p.days SELECT id, v, s FROM default_catalog.default_database.incoming;
INSERT INTO p.hours SELECT id, s, hh FROM default_catalog.default_database.incoming;
INSERT INTO p.types SELECT id, hh, d, ts, b FROM default_catalog.default_database.incoming;
INSERT INTO p.dates SELECT id, d, v FROM default_catalog.default_database.incoming;
END;
"""
PARTITIONS: dict[str, Any] = {
    "p.days": {"column": "s", "every": "day", "format": "%Y%m%d", "start": "20260101"},
    "p.hours": {"columns": {"s": "%Y%m%d", "hh": "%H"}, "every": "hour", "start": "20260101-00"},
    "p.types": {"dynamic": True},
    "p.dates": [
        {"column": "d", "every": "day", "format": "%Y-%m-%d", "start": "2026-01-01"},
        {"column": "v", "dynamic": True},
    ],
}


def row(number: int, **values: Any) -> dict[str, Any]:
    made = {"id": number, "v": "x", "s": "20260102", "hh": 7, "d": "2026-01-02"}
    return {**made, "ts": "2026-01-02T03:04:05.678", "b": True, **values}


class Written:
    """Four partitioned tables that one job writes from rows in a folder."""

    def __init__(self, lab: Laboratory) -> None:  # noqa: F811
        self.lab = lab
        self.rows = lab.folder / "rows"
        self.rows.mkdir()
        script = lab.folder / "partitions.sql"
        script.write_text(SCRIPT.format(job=lab.job, row=ROW))
        lake = Lakehouse(
            catalog=PaimonCatalog(str(lab.folder / "warehouse")),
            flink=FlinkCluster(lab.rest_url, lab.sql_gateway_url),
            name=lab.lakehouse,
            system_database=SystemDatabase(f"sqlite:///{lab.folder / 'lakehouse.db'}"),
            supervision=QUICK,
            progress=ProgressPolicy(progress_interval="100ms"),
            tables={
                name: TableSettings(partitions=TablePartitions.read(written))
                for name, written in PARTITIONS.items()
            },
        )
        self.ahead = timedelta(0)
        clock = Clock(now=lambda: datetime.now(timezone.utc) + self.ahead)
        self.lake: LoadedLakehouse = lake.load(script, base_folder=lab.folder)
        environ = {"LAB": str(lab.folder)}
        runtime = replace(self.lake.runtime, environ=environ, clock=clock)
        self.lake.__dict__["runtime"] = runtime
        self.runtime = runtime
        self.definitions = self.lake.definitions()
        self.repository = self.definitions.get_repository_def()
        self.instance = dg.DagsterInstance.ephemeral()
        self.cursor: str | None = None

    def write(self, *rows: dict[str, Any]) -> None:
        """One file, moved in whole."""
        name = f"rows-{rows[0]['id']:04}.json"
        hidden = self.rows / f".{name}"
        hidden.write_text("".join(json.dumps(r) + "\n" for r in rows))
        hidden.rename(self.rows / name)

    def in_table(self, table: str, count: int) -> int:
        """Wait until a table has so many rows; the id of its newest snapshot then."""
        reader = self.runtime.catalog.open().table(table)

        def found() -> int | None:
            if reader.latest_snapshot_id() is None:
                return None
            return reader.latest_snapshot_id() if reader.read().num_rows >= count else None

        return until(found, f"{count} rows in {table}", seconds=90)

    def version(self, table: str, **partition: Any) -> str:
        """The newest snapshot at which the number of rows of a partition changed."""
        reader = self.runtime.catalog.open().table(f"p.{table}")
        newest = reader.latest_snapshot_id()
        assert newest is not None
        counts = [0]
        for snapshot in range(1, newest + 1):
            rows = reader.read(list(partition), snapshot).to_pylist()
            counts.append(rows.count(partition))
        return str(max(n for n in range(1, newest + 1) if counts[n] != counts[n - 1]))

    def tick(self) -> Any:
        """Evaluate the progress sensor as the daemon does."""
        name = next(s.name for s in self.repository.sensor_defs if s.name.endswith("_progress"))
        context = dg.build_sensor_context(
            self.instance, cursor=self.cursor, repository_def=self.repository
        )
        result = self.repository.get_sensor_def(name).evaluate_tick(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = result.cursor
        return result

    def later(self, **time: float) -> dict[str, dict[str, str]]:
        """Versions by partition of each table, of the events of a tick some time later."""
        self.ahead += timedelta(**time)
        told: dict[str, dict[str, str]] = {}
        for event in self.tick().asset_events:
            if isinstance(event, dg.AssetMaterialization) and event.partition is not None:
                version = (event.tags or {})["dagster/data_version"]
                told.setdefault(event.asset_key.path[-1], {})[event.partition] = version
        return told

    def materialise(self, key: str, **run: Any) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(key.split("/"))],
            raise_on_error=False,
            **run,
        )


@pytest.fixture
def written(lab: Laboratory) -> Written:  # noqa: F811
    return Written(lab)


def test_partitions_of_every_kind_are_told_of_with_the_snapshot_that_changed_them(
    written: Written,
) -> None:
    (started,) = apply(written.runtime, [(written.lab.job, verb("start"))], holder="test")
    assert started.error is None
    written.write(row(1), row(2, s=None, hh=None, d=None, ts=None, b=None, v="web/app"))
    names = ("days", "hours", "types", "dates")
    for name in names:
        written.in_table(f"p.{name}", 2)
    written.write(row(3, s="20260103", hh=23, d="2026-01-03"), row(4, s="yesterday"))
    for name in names:
        written.in_table(f"p.{name}", 4)
    written.tick()
    told = written.later(hours=1)
    v = written.version
    ts = datetime(2026, 1, 2, 3, 4, 5, 678000)
    second, third = date(2026, 1, 2), date(2026, 1, 3)
    assert told == {
        "days": {"20260102": v("days", s="20260102"), "20260103": v("days", s="20260103")},
        "hours": {
            "20260102-07": v("hours", s="20260102", hh=7),
            "20260103-23": v("hours", s="20260103", hh=23),
        },
        "types": {
            "hh=7/d=2026-01-02/ts=2026-01-02 03:04:05.678/b=true": v(
                "types", hh=7, d=second, ts=ts, b=True
            ),
            "hh=__DEFAULT_PARTITION__/d=__DEFAULT_PARTITION__/ts=__DEFAULT_PARTITION__"
            "/b=__DEFAULT_PARTITION__": v("types", hh=None, d=None, ts=None, b=None),
            "hh=23/d=2026-01-03/ts=2026-01-02 03:04:05.678/b=true": v(
                "types", hh=23, d=third, ts=ts, b=True
            ),
        },
        "dates": {
            "2026-01-02|x": v("dates", d=second, v="x"),
            "2026-01-03|x": v("dates", d=third, v="x"),
        },
    }
    assert told["days"]["20260102"] < told["days"]["20260103"]
    graph = written.lake.graph
    for name, partitions in told.items():
        keys = graph.partitions[f"p.{name}"]
        assert written.instance.get_materialized_partitions(graph.key(f"p.{name}")) == set(
            partitions
        )
        dynamic = keys.dynamic(list(partitions))
        if dynamic is not None:
            assert set(written.instance.get_dynamic_partitions(dynamic[0])) == set(dynamic[1])
    assert written.later(hours=1) == {}


def test_what_the_definition_does_not_have_is_named_by_the_check(written: Written) -> None:
    (started,) = apply(written.runtime, [(written.lab.job, verb("start"))], holder="test")
    assert started.error is None
    written.write(row(1, s=None), row(2, s="20251231"), row(3, s="yesterday"), row(4))
    written.in_table("p.days", 4)
    outside = {
        e.asset_key.path[-1]: (e.passed, e.description)
        for e in written.tick().asset_events
        if isinstance(e, dg.AssetCheckEvaluation) and e.check_name == "partitions_outside"
    }
    passed, text = outside["days"]
    assert not passed
    assert text is not None
    assert text.endswith("not have them: s=20251231, s=NULL, s=yesterday.")


def test_a_run_for_a_partition_starts_the_job_and_the_next_is_refused(written: Written) -> None:
    written.write(row(1), row(2, s="20260104"))
    done = written.materialise("p/days", partition_key="20260102")
    assert done.success
    days = dg.AssetKey(["p", "days"])
    assert written.instance.get_materialized_partitions(days) == {"20260102"}
    assert len(written.lab.on_cluster()) == 1
    refused = written.materialise("p/days", partition_key="20260103")
    assert not refused.success
    (failure,) = [e for e in refused.all_events if e.is_step_failure]
    assert "writes these partitions itself" in str(failure.step_failure_data.error)
    assert len(written.lab.on_cluster()) == 1
    assert written.instance.get_materialized_partitions(days) == {"20260102"}


def test_the_second_run_of_a_backfill_that_started_the_job_is_content(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.write(row(1))
    assert written.materialise("p/days", partition_key="20260102").success
    asked = written.instance.get_run_record_by_id

    def asked_before(run_id: str) -> Any:
        """The run was created when the job had not been started yet."""
        record = asked(run_id)
        assert record is not None
        return record._replace(create_timestamp=record.create_timestamp - timedelta(minutes=5))

    monkeypatch.setattr(written.instance, "get_run_record_by_id", asked_before)
    assert written.materialise("p/days", partition_key="20260109").success
    assert len(written.lab.on_cluster()) == 1

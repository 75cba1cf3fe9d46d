"""From the sensor to the observation, on a real engine: what a person sees of maintenance."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pytest

from lakehouse_dagster import (
    CompactSpec,
    ExpireSpec,
    Lakehouse,
    LoadedLakehouse,
    MaintenancePolicy,
    SystemDatabase,
    TablePolicy,
)
from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
from tests.support.faults import HeldFile, is_cancelled_for_good
from tests.support.fixtures import lab
from tests.support.laboratory import QUICK, Laboratory, until

__all__ = ["lab"]

pytestmark = pytest.mark.flink

SCRIPT = """\
CREATE TABLE IF NOT EXISTS m.orders (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('bucket' = '1', 'write-only' = 'true');
CREATE TEMPORARY TABLE nothing (id INT, v STRING) WITH ('connector' = 'datagen');
SET 'pipeline.name' = '{job}';
INSERT INTO m.orders SELECT id, v FROM nothing;
"""
TABLE = "m.orders"
KEY = dg.AssetKey(["m", "orders"])
POLICY = MaintenancePolicy(
    TablePolicy(
        compact=CompactSpec(level0_files=5), expire=ExpireSpec(keep_at_least=2, keep_for="1ms")
    )
)


@dataclass
class Face:
    """The Dagster face of a laboratory with one table, whose writer never runs."""

    lab: Laboratory
    instance: dg.DagsterInstance
    lake: LoadedLakehouse = field(init=False)

    def __post_init__(self) -> None:
        self.lab.script.write_text(SCRIPT.format(job=self.lab.job))
        self.lake = Lakehouse(
            catalog=self.lab.catalog,
            flink=self.lab.cluster,
            system_database=SystemDatabase(f"sqlite:///{self.lab.folder / 'lakehouse.db'}"),
            supervision=QUICK,
            maintenance=POLICY,
        ).load([self.lab.script], base_folder=self.lab.folder)
        self.repository = self.lake.definitions().get_repository_def()
        self.tables = Tables(self.lab)
        self.tables.make(
            "orders",
            "id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED",
            **{"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "99"},
        )
        self.tables.fill(TABLE, lambda number: f"({number % 3}, 'x{number}')", 7)

    def tick(self) -> Any:
        sensor = self.repository.get_sensor_def("lake_maintenance")
        return sensor.evaluate_tick(
            dg.build_sensor_context(self.instance, repository_def=self.repository)
        )

    def run(self, job: str, config: dict[str, Any]) -> dg.ExecuteInProcessResult:
        return self.repository.get_job(job).execute_in_process(
            run_config=config, instance=self.instance, raise_on_error=False
        )

    def observations(self) -> list[dict[str, Any]]:
        """What is shown of each action, oldest first."""
        records = self.instance.fetch_observations(KEY, limit=50, ascending=True).records
        found = [record.asset_observation for record in records]
        return [
            {name: value.value for name, value in event.metadata.items()}
            for event in found
            if event is not None
        ]


@pytest.fixture
def face(lab: Laboratory) -> Iterator[Face]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Face(lab, instance)


def test_what_the_sensor_finds_due_is_done_by_one_run_and_seen_on_the_asset(face: Face) -> None:
    rows = face.tables.rows(TABLE)
    (request,) = face.tick().run_requests
    assert face.run("lake_maintain", request.run_config).success
    merged, expired = face.observations()
    shown = ("action", "state", "files_before", "files", "attempts", "writer_restarts")
    assert [merged[name] for name in shown] == ["compact", "done", 7, 1, 1, 0]
    assert merged["reason"] == "bucket 0 has 7 unmerged files."
    assert "level0_files 7 to 0" in merged["change"]
    assert merged["seconds"] > 0
    assert len(merged["flink_job_id"]) == 32
    shown = ("action", "state", "snapshots_before", "snapshots")
    assert [expired[name] for name in shown] == ["snapshot expiry", "done", 8, 2]
    assert face.tables.rows(TABLE) == rows
    assert face.tick().run_requests in (None, [])


def test_chosen_tables_are_compacted_in_full_though_nothing_is_due(face: Face) -> None:
    face.tables.run(f"CALL sys.compact(`table` => '{TABLE}', compact_strategy => 'full')")
    face.tables.fill(TABLE, lambda number: f"({number}, 'y')", 2)
    config = {"ops": {"lake_compact_tables": {"config": {"tables": [TABLE]}}}}
    assert face.run("lake_compact", config).success
    (shown,) = face.observations()
    assert (shown["action"], shown["reason"]) == ("full compaction", "A person asked for it.")
    assert (shown["files_before"], shown["files"]) == (3, 1)


def test_a_partition_that_does_not_exist_is_refused(face: Face) -> None:
    config = {"tables": [TABLE], "partitions": [{"dt": "x"}]}
    done = face.run("lake_compact", {"ops": {"lake_compact_tables": {"config": config}}})
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    assert "m.orders has none of the partitions" in str(failure.event_specific_data)
    assert face.observations() == []


@contextmanager
def interrupted_at_work(face: Face) -> Iterator[Future[str]]:
    """Send this process what Dagster sends a run that is cancelled, while its Flink job is at work.

    The job's id comes back; it stands still at a file until it cannot commit any more.
    """
    file = HeldFile(next(face.tables.folder(TABLE).glob("bucket-0/*.parquet")))

    def interrupt() -> str:
        with file:
            file.wait_until_wanted()
            (record,) = face.lake.keeper.actions.running()
            job_id = str(record.flink_job_id)
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: is_cancelled_for_good(face.lab.rest_url, job_id), "its cancelling")
        return job_id

    file.take()
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(interrupt)


def test_cancelling_the_run_cancels_the_flink_job_and_says_so_on_the_asset(face: Face) -> None:
    rows = face.tables.rows(TABLE)
    (request,) = face.tick().run_requests
    with interrupted_at_work(face) as interrupted:
        done = face.run("lake_maintain", request.run_config)
    assert not done.success
    job_id = interrupted.result()
    with face.lab.cluster.job_manager() as job_manager:
        job = job_manager.job(job_id)
    assert job is not None
    assert job.status is FlinkJobStatus.CANCELED
    (record,) = face.lake.keeper.actions.of_table(TABLE)
    assert record.state is ActionState.CANCELLED
    assert not face.lake.keeper.is_held(TABLE)
    (shown,) = face.observations()
    assert (shown["state"], shown["flink_job_id"]) == ("cancelled", job_id)
    assert face.tables.rows(TABLE) == rows
    assert "left alone for an hour" in face.tick().skip_message


def test_a_run_while_the_cluster_is_away_fails_and_the_next_one_settles_it(face: Face) -> None:
    (request,) = face.tick().run_requests
    nobody = "http://127.0.0.1:9"
    away = replace(face.lab.cluster, rest_url=nobody, sql_gateway_url=nobody)
    lake = replace(face.lake, lakehouse=replace(face.lake.lakehouse, flink=away))
    job = lake.definitions().get_repository_def().get_job("lake_maintain")
    done = job.execute_in_process(
        run_config=request.run_config, instance=face.instance, raise_on_error=False
    )
    assert not done.success
    (again,) = face.tick().run_requests
    assert face.run("lake_maintain", again.run_config).success
    # What died with its run is no failure of the table's: it is due again at once.
    ended = [(r.kind, r.state.value) for r in face.lake.keeper.actions.of_table(TABLE)][::-1]
    assert ended == [("compact", "interrupted"), ("compact", "done"), ("snapshot expiry", "done")]
    assert face.tick().run_requests in (None, [])

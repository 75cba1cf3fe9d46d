"""The flights example runs through the project on a real Flink and ends equal to DuckDB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from definitions.accuracy import CatalogLake
from examples.flights.check import check, truth
from examples.flights.replay import ReplaySettings, replay
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SystemDatabase
from lakehouse_dagster.streaming.apply import Applied, apply, verb
from lakehouse_dagster.streaming.runtime import Runtime
from tests.conftest import RunningFlink

pytestmark = pytest.mark.flink

SCRIPTS = Path(__file__).parents[2] / "examples" / "flights" / "sql"
DAYS = 10


@pytest.fixture
def runtime(flink_stack: RunningFlink, warehouse: Path, tmp_path: Path) -> Iterator[Runtime]:
    lake = Lakehouse(
        name="flights",
        catalog=PaimonCatalog(str(warehouse)),
        flink=FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url),
        system_database=SystemDatabase(f"sqlite:///{tmp_path}/lakehouse.db"),
    )
    variables = {"FLIGHTS_INPUT": str(tmp_path / "input"), "LAKE_CHECKPOINT_INTERVAL": "2s"}
    runtime = replace(lake.load(SCRIPTS).runtime, environ={**os.environ, **variables})
    yield runtime
    do(runtime, "cancel", *runtime.jobs)


def do(runtime: Runtime, what: str, *jobs: str) -> tuple[Applied, ...]:
    results = apply(runtime, [(job, verb(what)) for job in jobs], holder="test")
    assert [result.error for result in results] == [None] * len(jobs)
    return results


def test_flights_are_equal_also_through_a_restart_of_the_join(
    runtime: Runtime, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    replay(folder, ReplaySettings(days=2))
    do(runtime, "start", *runtime.jobs)
    (tmp_path / "input.settings.json").unlink()  # the same replay goes on for longer
    end = replay(folder, ReplaySettings(days=DAYS))
    (restarted,) = do(runtime, "restart", "dwd_flight")
    assert restarted.outcome is not None
    assert restarted.outcome.incarnation == 2
    result = check(CatalogLake(runtime.catalog), truth(end), timeout_seconds=180)
    assert [table.describe() for table in result if not table.equal] == []
    assert {table.table: table.rows_found for table in result}["dwd.flight"] > 800 * DAYS

"""An engine that cannot keep a job's state through changes is refused before anything is done."""

from __future__ import annotations

import json
from pathlib import Path

from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.streaming.apply import apply, verb
from tests.streaming import making
from tests.streaming.overview_server import overview_server

OLD = {
    "flink-version": "1.19.3",
    "taskmanagers": 1,
    "slots-total": 1,
    "slots-available": 1,
    "jobs-running": 0,
    "jobs-finished": 0,
    "jobs-cancelled": 0,
    "jobs-failed": 0,
}


def test_a_job_is_not_started_on_an_engine_that_is_too_old(tmp_path: Path) -> None:
    scripts = {
        "orders": making.source("src")
        + making.table("ods.orders")
        + making.job("orders", "ods.orders", "src")
    }
    with overview_server() as overview:
        overview.body = json.dumps(OLD).encode()
        lake = making.load(tmp_path, scripts, rest_url=overview.rest_url)
        (applied,) = apply(lake.runtime, [("orders", verb("start"))], holder="test")
    assert isinstance(applied.error, UnsupportedByEngineError)
    assert "Flink 1.19.3" in str(applied.error)
    assert overview.requests == ["/overview"]
    assert lake.runtime.memory.latest("orders") is None

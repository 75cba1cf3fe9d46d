"""An engine that cannot run our jobs as it should is refused before anything is done."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest

from lakehouse_dagster import FlinkCluster, PaimonCatalog
from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.flink.quoting import create_catalog, identifier
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.engine import refuse_unfit_engine
from tests.conftest import RunningFlink
from tests.streaming import making
from tests.streaming.overview_server import overview_server

OVERVIEW = {
    "flink-version": "1.19.3",
    "taskmanagers": 1,
    "slots-total": 1,
    "slots-available": 1,
    "jobs-running": 0,
    "jobs-finished": 0,
    "jobs-cancelled": 0,
    "jobs-failed": 0,
}


def _overview_of(flink_version: str) -> bytes:
    return json.dumps({**OVERVIEW, "flink-version": flink_version}).encode()


def test_a_job_is_not_started_on_an_engine_that_is_too_old(tmp_path: Path) -> None:
    scripts = {
        "orders": making.source("src")
        + making.table("ods.orders")
        + making.job("orders", "ods.orders", "src")
    }
    with overview_server() as overview:
        overview.body = _overview_of("1.19.3")
        lake = making.load(tmp_path, scripts, rest_url=overview.rest_url)
        (applied,) = apply(lake.runtime, [("orders", verb("start"))], holder="test")
    assert isinstance(applied.error, UnsupportedByEngineError)
    assert "Flink 1.19.3" in str(applied.error)
    assert overview.requests == ["/overview"]
    assert lake.runtime.memory.latest("orders") is None


def test_a_warehouse_that_paimon_1_would_write_elsewhere_is_refused_naming_the_characters() -> None:
    with overview_server() as overview:
        overview.body = _overview_of("1.20.5")
        cluster = FlinkCluster(overview.rest_url, "http://nobody")
        with pytest.raises(UnsupportedByEngineError, match="has ' ' and '#' in it"):
            refuse_unfit_engine(cluster, "file:///data/my lake #1")
        refuse_unfit_engine(cluster, "file:///data/süd_1-a.b/lake")
        refuse_unfit_engine(cluster, "s3://bucket/my lake")
    with overview_server() as overview:
        overview.body = _overview_of("2.0.2")
        refuse_unfit_engine(FlinkCluster(overview.rest_url, "http://b"), "file:///my lake #1")


@pytest.mark.flink
@pytest.mark.every_engine
def test_warehouses_are_refused_for_exactly_the_characters_that_the_engine_does_not_keep(
    flink_stack: RunningFlink, tmp_path: Path
) -> None:
    cluster = FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url)
    kept, allowed = set(), set()
    characters = sorted(set(string.punctuation) - {"/"} | {" ", "ü"})
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session("warehouses")
        for number, character in enumerate(characters):
            folder = tmp_path / str(number) / f"a{character}b"
            catalog = PaimonCatalog(str(folder), name=f"catalog_{number}")
            session.execute(create_catalog(catalog.name, catalog.flink_options()))
            session.execute(f"CREATE DATABASE {identifier(catalog.name)}.ods")
            if (folder / "ods.db").is_dir():
                kept.add(character)
            try:
                refuse_unfit_engine(cluster, catalog.warehouse)
            except UnsupportedByEngineError:
                continue
            allowed.add(character)
        session.delete()
    assert allowed == kept
    assert {"ü", "-", "_", "."} < kept
    assert (" " in kept) == (flink_stack.engine != "flink-1.20")

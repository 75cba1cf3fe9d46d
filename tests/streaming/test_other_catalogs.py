"""Several catalogs in one project: a lakehouse reads the tables of another."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from lakehouse_dagster import (
    FlinkCluster,
    Lakehouse,
    LoadedLakehouse,
    OtherCatalog,
    PaimonCatalog,
    SystemDatabase,
)
from lakehouse_dagster.errors import ConfigurationError, StreamingJobError
from lakehouse_dagster.local.ports import HOST, free_ports
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.session import named_catalogs
from lakehouse_dagster.streaming.start import start_or_adopt
from lakehouse_dagster.streaming.stop import cancel
from tests.conftest import RunningFlink
from tests.streaming.making import write_scripts
from tests.support.laboratory import until

SECRET = "do-not-show-this"
ODS = """
SET 'pipeline.name' = '{id}_fill';
SET 'execution.checkpointing.interval' = '500ms';
CREATE DATABASE IF NOT EXISTS counts;
CREATE TABLE IF NOT EXISTS counts.numbers (id BIGINT) WITH ('bucket' = '-1');
CREATE TEMPORARY TABLE counted (id BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '20',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '100000'
);
INSERT INTO counts.numbers SELECT id FROM counted;
"""
DWD = """
SET 'pipeline.name' = '{id}_halve';
SET 'execution.checkpointing.interval' = '500ms';
CREATE CATALOG ods WITH ('type' = 'paimon', 'warehouse' = '/somewhere/else');
CREATE DATABASE IF NOT EXISTS sums;
CREATE TABLE IF NOT EXISTS sums.even (id BIGINT) WITH ('bucket' = '-1');
INSERT INTO sums.even SELECT id FROM ods.counts.numbers WHERE MOD(id, 2) = 0;
"""


def _two(
    folder: Path,
    name: str,
    address: tuple[str, str] = ("http://127.0.0.1:9", "http://127.0.0.1:9"),
    dwd: str = DWD,
) -> tuple[LoadedLakehouse, LoadedLakehouse]:
    """Two lakehouses of one project; the second knows the first's catalog."""
    write_scripts(folder / "ods", {"numbers": ODS.format(id=name)})
    write_scripts(folder / "dwd", {"even": dwd.format(id=name)})
    database = SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}")
    ods = PaimonCatalog(str(folder / "ods_warehouse"), name="ods")
    first = Lakehouse(ods, FlinkCluster(*address), f"{name}-o", database, key_prefix=("ods_lake",))
    second = Lakehouse(
        PaimonCatalog(str(folder / "dwd_warehouse"), name="dwd"),
        FlinkCluster(*address),
        f"{name}-d",
        database,
        key_prefix=("dwd_lake",),
        other_catalogs=(OtherCatalog(ods, first.key_prefix),),
    )
    return first.load("ods", base_folder=folder), second.load("dwd", base_folder=folder)


def test_two_lakehouses_of_one_project_are_one_connected_graph(tmp_path: Path) -> None:
    first, second = _two(tmp_path, "two")
    both = dg.Definitions.merge(first.definitions(), second.definitions())
    graph = both.get_repository_def().asset_graph
    numbers = dg.AssetKey(["ods_lake", "counts", "numbers"])
    even = dg.AssetKey(["dwd_lake", "sums", "even"])
    assert graph.get(even).parent_keys == {numbers}
    assert graph.get(numbers).child_keys == {even}
    assert graph.get(numbers).is_executable  # its own lakehouse's asset, not an external one
    assert numbers not in second.graph.outside.values()


def test_two_catalogs_of_one_name_are_refused() -> None:
    lake = PaimonCatalog("/a", name="lake")
    with pytest.raises(ConfigurationError, match="Two catalogs of the lakehouse are named lake"):
        Lakehouse(
            lake,
            FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
            other_catalogs=(OtherCatalog(PaimonCatalog("/b", name="lake")),),
        )


def test_the_key_prefix_of_another_catalog_is_a_tuple() -> None:
    with pytest.raises(ConfigurationError, match="key_prefix of the other catalog ods"):
        OtherCatalog(PaimonCatalog("/a", name="ods"), "ods_lake")  # type: ignore[arg-type]
    made = OtherCatalog(PaimonCatalog("/a", name="ods"), ["a", "b"])  # type: ignore[arg-type]
    assert made.key_prefix == ("a", "b")


def test_only_catalogs_that_a_script_names_are_created() -> None:
    ods, odd, other = (PaimonCatalog("/a", name=name) for name in ("ods", "o`d d", "other"))
    texts = ["USE CATALOG ods", "INSERT INTO a.b SELECT id FROM `o``d d`.a.c"]
    assert named_catalogs([ods, odd, other], texts) == (ods, odd)
    assert named_catalogs([ods, odd, other], ["SELECT id FROM my_ods.a, otherwise.b"]) == ()


@pytest.fixture
def two(flink_stack: RunningFlink, tmp_path: Path) -> tuple[Runtime, Runtime]:
    address = (flink_stack.rest_url, flink_stack.sql_gateway_url)
    first, second = _two(tmp_path, f"others-{uuid4().hex[:8]}", address)
    return first.runtime, second.runtime


@pytest.mark.flink
@pytest.mark.every_engine
def test_a_job_reads_across_from_another_lakehouses_catalog(
    two: tuple[Runtime, Runtime],
) -> None:
    ods, dwd = two
    (write,), (read,) = ods.jobs, dwd.jobs
    with ods.hold(write, "test") as writing:
        start_or_adopt(writing)
        try:
            until(ods.catalog.open().table("counts.numbers").latest_snapshot_id, "a first snapshot")
            with dwd.hold(read, "test") as reading:
                start_or_adopt(reading)
                try:
                    even = until(lambda: _rows(dwd), "rows from the other catalog", seconds=90)
                finally:
                    cancel(reading)
        finally:
            cancel(writing)
    assert even == list(range(2, 2 * len(even) + 1, 2))


def _rows(dwd: Runtime) -> list[int]:
    table = dwd.catalog.open().table("sums.even")
    return sorted(table.read()["id"].to_pylist()) if table.latest_snapshot_id() else []


@pytest.mark.flink
def test_another_catalog_that_is_down_stops_only_jobs_that_name_it(
    flink_stack: RunningFlink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="lakehouse_dagster")
    name = f"down-{uuid4().hex[:8]}"
    _, loaded = _two(
        tmp_path, name, (flink_stack.rest_url, flink_stack.sql_gateway_url), dwd=ODS + DWD
    )
    down = PaimonCatalog(
        "lake",
        name="ods",
        metastore="rest",
        uri=f"http://{HOST}:{free_ports(1)[0]}",
        options={"token.provider": "bear", "token": SECRET},
    )
    runtime = replace(loaded.runtime, other_catalogs=(down,))
    with runtime.hold(f"{name}_halve", "test") as held, pytest.raises(StreamingJobError) as refused:
        start_or_adopt(held)
    assert "Flink cannot open the catalog ods" in refused.value.message
    assert SECRET not in f"{refused.value} {caplog.text}"
    with runtime.hold(f"{name}_fill", "test") as held:
        try:
            assert start_or_adopt(held).incarnation == 1
        finally:
            cancel(held)

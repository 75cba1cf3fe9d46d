"""What Dagster has of partitions after the sensor's ticks; tables are real, time is our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse_dagster import ProgressPolicy
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.partitions import TablePartitions
from lakehouse_dagster.streaming.table_settings import TableSettings
from tests.paimon.writing import Writer
from tests.streaming.making import NOW, load, source
from tests.streaming.overview_server import Overview, overview_entry, overview_server
from tests.streaming.test_definitions import Running, evaluations

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
TABLE = "CREATE TABLE {name} (id BIGINT, v STRING, dt STRING) PARTITIONED BY (dt);\n"
SCRIPTS = {
    "ods": TABLE.format(name="ods.a")
    + source("x")
    + "SET 'pipeline.name' = 'ods_a';\nINSERT INTO ods.a SELECT id, v, v FROM x;\n",
    "dwd": TABLE.format(name="dwd.b")
    + "SET 'pipeline.name' = 'dwd_b';\nINSERT INTO dwd.b SELECT id, v, dt FROM ods.a;\n",
}
DAY = {"column": "dt", "every": "day", "format": "%Y%m%d", "start": "20260101"}
DYNAMIC = {"dynamic": True}


def tables(**declared: Any) -> dict[str, TableSettings]:
    return {
        name.replace("_", "."): TableSettings(partitions=TablePartitions.read(written))
        for name, written in declared.items()
    }


class Partitioned(Running):
    """The same with partitioned tables."""

    def __init__(self, folder: Path, overview: Overview, **declared: Any) -> None:
        policy = {"progress_interval": "1m", **declared.pop("policy", {})}
        super().__init__(
            folder,
            overview,
            scripts=declared.pop("scripts", SCRIPTS),
            tables=tables(**declared),
            progress=ProgressPolicy(**policy),
        )

    def write(self, name: str, *values: str | None) -> Writer:  # type: ignore[override]
        writer = Writer(self.warehouse, name, COLUMNS, partition_keys=("dt",))
        self.append(writer, *values)
        return writer

    def append(self, writer: Writer, *values: str | None) -> None:
        rows = [{"id": n, "v": "x", "dt": value} for n, value in enumerate(values)]
        if rows:
            writer.append(rows)

    def progress(self, after: timedelta = timedelta(0)) -> list[tuple[str, str | None, str]]:
        """Asset, partition and version of each event of a tick."""
        result = self.tick("progress", after=after)
        self.said = result.skip_message
        self.checks = evaluations(result)
        return [
            (e.asset_key.to_user_string(), e.partition, (e.tags or {})["dagster/data_version"])
            for e in result.asset_events
            if isinstance(e, dg.AssetMaterialization)
        ]

    def materialized(self, key: str) -> set[str]:
        return self.instance.get_materialized_partitions(dg.AssetKey(key.split("/")))


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as served:
        yield served


# Events


def test_a_closed_day_gets_one_event_with_its_own_version(
    tmp_path: Path, overview: Overview
) -> None:
    now = datetime.now(timezone.utc)  # as the machine that writes the table has it
    before, yesterday, tomorrow = (
        (now + timedelta(days=n)).strftime("%Y%m%d") for n in (-2, -1, 1)
    )
    lake = Partitioned(tmp_path, overview, ods_a=DAY)
    lake.now = now
    writer = lake.write("ods.a", yesterday, before)
    lake.append(writer, yesterday)
    lake.append(writer, tomorrow)
    assert lake.progress()[-1] == ("ods/a", None, "3")
    lake.progress(after=timedelta(minutes=31))
    told = lake.materializations("ods/a")
    assert [(e.partition, (e.tags or {})["dagster/data_version"]) for e in told] == [
        (None, "3"),
        (before, "1"),
        (yesterday, "2"),
    ]
    assert lake.progress(after=timedelta(hours=1)) == []
    assert lake.said == "0 of 2 tables moved."
    assert lake.materialized("ods/a") == {before, yesterday}
    assert lake.progress(after=timedelta(days=3)) == [("ods/a", tomorrow, "3")]


def test_dynamic_partitions_are_there_before_their_events(
    tmp_path: Path, overview: Overview
) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DYNAMIC)
    lake.now = datetime.now(timezone.utc)
    lake.write("ods.a", "eu", None, "a|b")
    lake.progress()
    assert lake.instance.get_dynamic_partitions("ods/a/dt") == []
    told = lake.progress(after=timedelta(hours=1))
    assert {partition for _, partition, _ in told} == {"eu", "__DEFAULT_PARTITION__", "a%7Cb"}
    names = {"eu", "__DEFAULT_PARTITION__", "a%7Cb"}
    assert set(lake.instance.get_dynamic_partitions("ods/a/dt")) == names
    assert lake.materialized("ods/a") == names


def test_a_tick_tells_of_a_bounded_number_and_the_next_goes_on(
    tmp_path: Path, overview: Overview
) -> None:
    policy = {"partition_events_per_tick": 3}
    lake = Partitioned(tmp_path, overview, ods_a=DYNAMIC, dwd_b=DYNAMIC, policy=policy)
    lake.now = datetime.now(timezone.utc) + timedelta(hours=1)
    lake.write("ods.a", "1", "2", "3", "4")
    lake.write("dwd.b", "1")
    first = lake.progress()
    assert first == [
        ("ods/a", "1", "1"),
        ("ods/a", "2", "1"),
        ("ods/a", None, "1"),
        ("dwd/b", "1", "1"),
        ("dwd/b", None, "1"),
    ]
    assert lake.said == "2 of 2 tables moved, 3 partitions told of, 2 more wait."
    assert lake.progress(after=timedelta(seconds=10)) == [("ods/a", "3", "1"), ("ods/a", "4", "1")]


def test_a_repeat_after_a_lost_cursor_is_left_out_of_partitions_too(
    tmp_path: Path, overview: Overview
) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DYNAMIC)
    lake.now = datetime.now(timezone.utc) + timedelta(hours=1)
    writer = lake.write("ods.a", "1", "2")
    assert len(lake.progress()) == 3
    lake.cursors.clear()
    assert lake.progress() == []
    lake.append(writer, "2")
    lake.cursors.clear()
    assert lake.progress(after=timedelta(hours=1)) == [("ods/a", "2", "2"), ("ods/a", None, "2")]


def test_an_event_of_a_partition_is_not_taken_for_one_of_the_table(
    tmp_path: Path, overview: Overview
) -> None:
    policy = {"progress_interval": "1d"}
    lake = Partitioned(tmp_path, overview, ods_a=DYNAMIC, policy=policy)
    midnight = (datetime.now(timezone.utc) + timedelta(days=2)).replace(hour=0)
    lake.now = midnight
    writer = lake.write("ods.a", "1")
    assert lake.progress() == [("ods/a", "1", "1"), ("ods/a", None, "1")]
    lake.append(writer, "2")
    assert lake.progress(after=timedelta(hours=12)) == [("ods/a", "2", "2")]
    assert lake.progress(after=timedelta(hours=12)) == [("ods/a", None, "2")]


def test_a_partition_of_two_dimensions_counts(tmp_path: Path, overview: Overview) -> None:
    script = (
        "CREATE TABLE ods.a (id BIGINT, v STRING, dt STRING, region STRING) "
        "PARTITIONED BY (region, dt);\n"
        + source("x")
        + "INSERT INTO ods.a SELECT id, v, v, v FROM x;\n"
    )
    both = [DAY, {"column": "region", "dynamic": True}]
    lake = Partitioned(tmp_path, overview, scripts={"ods": script}, ods_a=both)
    lake.now = datetime(2026, 3, 1, tzinfo=timezone.utc)
    columns = COLUMNS.append(pa.field("region", pa.string()))
    writer = Writer(lake.warehouse, "ods.a", columns, partition_keys=("region", "dt"))
    writer.append([{"id": 1, "v": "x", "dt": "20260102", "region": "eu"}])
    lake.now = datetime.now(timezone.utc) + timedelta(hours=1)
    told = lake.progress()
    assert told == [("ods/a", "20260102|eu", "1"), ("ods/a", None, "1")]
    assert lake.instance.get_dynamic_partitions("ods/a/region") == ["eu"]
    key = dg.MultiPartitionKey({"dt": "20260102", "region": "eu"})
    assert lake.materialized("ods/a") == {key}


def test_tables_without_declared_partitions_are_as_before(
    tmp_path: Path, overview: Overview
) -> None:
    lake = Partitioned(tmp_path, overview)
    lake.write("ods.a", "1", "2")
    assert lake.progress() == [("ods/a", None, "1")]
    assert lake.progress(after=timedelta(days=9)) == []
    graph = lake.repository.asset_graph
    assert graph.get(dg.AssetKey(["ods", "a"])).partitions_def is None
    assert "partitions" not in (lake.cursors["progress"] or "")


def test_a_broken_table_is_named_and_the_partitions_of_others_are_told_of(
    tmp_path: Path, overview: Overview
) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DYNAMIC, dwd_b=DYNAMIC)
    lake.now = datetime.now(timezone.utc) + timedelta(hours=1)
    broken = lake.write("ods.a", "1")
    lake.write("dwd.b", "1")
    (broken.folder / "snapshot" / "snapshot-1").write_text("{")
    assert ("dwd/b", "1", "1") in lake.progress()
    assert "; ods.a: " in lake.said


# The check


def test_partitions_outside_are_named_by_a_check_once(tmp_path: Path, overview: Overview) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DAY)
    lake.now = datetime.now(timezone.utc)
    writer = lake.write("ods.a", "20260102")
    lake.progress()
    passed = "Every partition of the table is one of the asset's."
    assert lake.checks["ods/a"] == (True, passed)
    lake.append(writer, None, "20251231", *(f"x{n}" for n in range(12)))
    lake.progress()
    failed, text = lake.checks["ods/a"]
    assert not failed
    assert text is not None
    assert text.startswith("14 partitions of the table cannot be seen in Dagster, because ")
    assert "dt=20251231, dt=NULL, dt=x0, dt=x1, dt=x10" in text
    assert text.endswith("and 4 more.")
    lake.progress()
    assert lake.checks == {}


def test_the_check_can_be_run_by_hand(tmp_path: Path, overview: Overview) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DAY)
    writer = lake.write("ods.a", "x")
    check = dg.AssetCheckKey(dg.AssetKey(["ods", "a"]), "partitions_outside")
    implicit = lake.lake.definitions().resolve_implicit_global_asset_job_def()

    def run() -> bool:
        selection = dg.AssetSelection.checks(check)
        subset = implicit.get_subset(
            asset_check_selection=selection.resolve_checks(lake.repository.asset_graph),
            asset_selection=set(),
        )
        (evaluation,) = subset.execute_in_process(
            instance=lake.instance
        ).get_asset_check_evaluations()
        return evaluation.passed

    assert not run()
    writer.truncate({"dt": "x"})
    assert run()


# Assets


def test_settings_that_do_not_fit_the_table_are_refused(tmp_path: Path, overview: Overview) -> None:
    with pytest.raises(ConfigurationError, match=r"tables\.ods\.a\.partitions names day"):
        Partitioned(tmp_path, overview, ods_a={**DAY, "column": "day"})


def test_a_pattern_holds_for_the_partitioned_tables_among_its_own(tmp_path: Path) -> None:
    scripts = {**SCRIPTS, "plain": "CREATE TABLE ods.plain (id BIGINT);\n"}
    pattern = {"*": TableSettings(partitions=TablePartitions.read(DYNAMIC))}
    graph = load(tmp_path, scripts, tables=pattern).graph
    assert list(graph.partitions) == ["ods.a", "dwd.b"]
    assert graph.tables["ods.plain"].partitions_def is None


@pytest.mark.parametrize("above", [DAY, DYNAMIC, {"column": "dt", "values": ["a"]}, None])
@pytest.mark.parametrize("below", [{**DAY, "start": "20250101"}, DYNAMIC, None])
def test_tables_of_any_partitions_can_depend_on_each_other(
    tmp_path: Path, above: Any, below: Any
) -> None:
    declared = {k: v for k, v in {"ods_a": above, "dwd_b": below}.items() if v is not None}
    lake = load(tmp_path, SCRIPTS, tables=tables(**declared))
    dg.Definitions.validate_loadable(lake.definitions())
    assert {dep.asset_key for dep in lake.graph.tables["dwd.b"].deps} == {dg.AssetKey(["ods", "a"])}


def test_a_users_daily_asset_depends_on_the_same_day(tmp_path: Path) -> None:
    lake = load(tmp_path, SCRIPTS, tables=tables(ods_a=DAY))
    daily = dg.DailyPartitionsDefinition("2026-01-01")

    @dg.asset(partitions_def=daily, deps=[["ods", "a"]])
    def report() -> None: ...

    both = dg.Definitions.merge(lake.definitions(), dg.Definitions(assets=[report]))
    graph = both.resolve_asset_graph()
    mapping = graph.get_partition_mapping(report.key, dg.AssetKey(["ods", "a"]))
    upstream = graph.get(dg.AssetKey(["ods", "a"])).partitions_def
    assert upstream is not None
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        downstream_partitions_subset=daily.subset_with_partition_keys(["2026-01-05"]),
        downstream_partitions_def=daily,
        upstream_partitions_def=upstream,
        current_time=NOW,
    )
    assert list(found.partitions_subset.get_partition_keys()) == ["20260105"]


# Runs


def materialise(lake: Partitioned, *keys: str, **run: Any) -> dg.ExecuteInProcessResult:
    implicit = lake.lake.definitions().resolve_implicit_global_asset_job_def()
    return implicit.execute_in_process(
        instance=lake.instance,
        asset_selection=[dg.AssetKey(key.split("/")) for key in keys],
        raise_on_error=False,
        **run,
    )


RANGE: Mapping[str, str] = {
    "dagster/asset_partition_range_start": "20260101",
    "dagster/asset_partition_range_end": "20260103",
}


@pytest.mark.parametrize("run", [{"partition_key": "20260102"}, {"tags": RANGE}])
def test_partitions_of_a_running_job_are_refused_and_nothing_else_happens(
    tmp_path: Path, overview: Overview, run: dict[str, Any]
) -> None:
    lake = Partitioned(tmp_path, overview, ods_a=DAY)
    overview.jobs = [overview_entry(lake.started("ods_a"))]
    before = lake.memory.incarnations("ods_a")
    done = materialise(lake, "ods/a", **run)
    assert not done.success
    (failure,) = [e for e in done.all_events if e.is_step_failure]
    error = failure.step_failure_data.error
    assert error is not None
    assert "ods_a runs, and writes these partitions itself" in str(error)
    assert "Nothing was done." in str(error)
    assert (
        [i.number for i in lake.memory.incarnations("ods_a")] == [1] == [i.number for i in before]
    )
    assert all(path.startswith("/jobs/") for path in overview.requests)  # looked at, no more
    assert lake.materializations("ods/a") == []

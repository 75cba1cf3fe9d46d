"""Tables that a real Flink wrote: what pypaimon cannot make (compaction, changelog, watermark)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakehouse_dagster.flink import FlinkCluster, capabilities_of
from lakehouse_dagster.flink.quoting import create_catalog, use_catalog
from lakehouse_dagster.flink.sql_gateway import Session
from lakehouse_dagster.paimon import CatalogReader, PaimonCatalog, Snapshot, TableReader
from tests.conftest import RunningFlink

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

BATCH = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}
STREAMING = {"execution.runtime-mode": "streaming", "execution.checkpointing.interval": "1s"}


@pytest.fixture
def cluster(flink_stack: RunningFlink) -> FlinkCluster:
    return FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url)


@pytest.fixture
def catalog(cluster: FlinkCluster, warehouse: Path) -> PaimonCatalog:
    as_written = capabilities_of(cluster).warehouse_path_as_written
    return PaimonCatalog(str(warehouse / ("my lake süd" if as_written else "lake-süd")))


@pytest.fixture
def flink(cluster: FlinkCluster, catalog: PaimonCatalog) -> Iterator[Session]:
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session("paimon room tests")
        session.execute(create_catalog(catalog.name, catalog.flink_options()))
        session.execute(use_catalog(catalog.name))
        session.execute("CREATE DATABASE dwd")
        yield session
        session.delete()


def _batch(flink: Session, *statements: str) -> None:
    for statement in statements:
        flink.execute(statement, config=BATCH, timeout_seconds=120)


def _snapshots(table: TableReader) -> tuple[Snapshot, ...]:
    return table.snapshots(0, table.latest_snapshot_id() or 0).snapshots


def test_partitions_of_a_compacted_primary_key_table_are_told_with_their_types(
    flink: Session, catalog: PaimonCatalog
) -> None:
    _batch(
        flink,
        """CREATE TABLE dwd.orders (
            id BIGINT, dt DATE, region STRING, amount DECIMAL(10, 2) COMMENT 'in euro',
            seen_at TIMESTAMP_LTZ(3), tags MAP<STRING, ARRAY<INT>>,
            PRIMARY KEY (id, dt, region) NOT ENFORCED
        ) COMMENT 'all orders' PARTITIONED BY (dt, region)
        WITH ('bucket' = '1', 'changelog-producer' = 'lookup', 'write-only' = 'true')""",
        """INSERT INTO dwd.orders (id, dt, region, amount) VALUES
            (1, DATE '2026-01-01', 'eu', 1.5), (2, DATE '2026-01-01', 'eu', 2),
            (3, DATE '2026-01-02', 'süd', 3)""",
        "INSERT INTO dwd.orders (id, dt, region, amount) VALUES (2, DATE '2026-01-01', 'eu', 20)",
        "CALL sys.compact(`table` => 'dwd.orders', partitions => 'dt=2026-01-01,region=eu')",
    )
    reader: CatalogReader = catalog.open()
    assert reader.tables() == ("dwd.orders",)
    table = reader.table("dwd.orders")

    schema = table.schema()
    assert [(c.name, c.type, c.nullable, c.comment) for c in schema.columns] == [
        ("id", "BIGINT", False, None),
        ("dt", "DATE", False, None),
        ("region", "STRING", False, None),
        ("amount", "DECIMAL(10, 2)", True, "in euro"),
        ("seen_at", "TIMESTAMP_LTZ(3)", True, None),
        ("tags", "MAP<STRING, ARRAY<INT>>", True, None),
    ]
    assert schema.primary_key == ("id", "dt", "region")
    assert schema.partition_keys == ("dt", "region")
    assert schema.comment == "all orders"
    assert schema.options["changelog-producer"] == "lookup"

    snapshots = _snapshots(table)
    assert [snapshot.commit_kind for snapshot in snapshots] == ["APPEND", "APPEND", "COMPACT"]
    assert [snapshot.delta_record_count for snapshot in snapshots] == [3, 1, -1]
    # No changelog is 0 to Paimon 1.3 and nothing to 2.0.
    assert [snapshot.changelog_record_count or 0 for snapshot in snapshots] == [0, 0, 2]
    first, second, compacted = (table.changes(snapshot.id).partitions for snapshot in snapshots)
    assert {tuple(p.partition.values()): p.rows_added for p in first} == {
        (date(2026, 1, 1), "eu"): 2,
        (date(2026, 1, 2), "süd"): 1,
    }
    (changed,) = second
    assert (changed.files_added, changed.rows_added, changed.files_deleted) == (1, 1, 0)
    (merged,) = compacted
    assert merged.partition == {"dt": date(2026, 1, 1), "region": "eu"}
    assert (merged.rows_added, merged.rows_deleted) == (2, 3)
    assert (merged.files_added, merged.files_deleted) == (1, 2)
    assert merged.bytes_deleted == changed.bytes_added + next(
        p.bytes_added for p in first if p.partition["region"] == "eu"
    )
    assert sorted(table.read(columns=["id", "amount"]).to_pylist(), key=lambda row: row["id"]) == [
        {"id": number, "amount": pytest.approx(amount)}
        for number, amount in ((1, 1.5), (2, 20), (3, 3))
    ]


def test_a_null_partition_and_an_overwrite_of_an_append_table(
    flink: Session, catalog: PaimonCatalog
) -> None:
    _batch(
        flink,
        "CREATE TABLE dwd.events (id BIGINT, dt STRING, hr INT) PARTITIONED BY (dt, hr)",
        """INSERT INTO dwd.events VALUES (1, '20260101', 0), (2, CAST(NULL AS STRING), 1),
            (3, '20260101', CAST(NULL AS INT))""",
        "INSERT OVERWRITE dwd.events PARTITION (dt = '20260101', hr = 0) SELECT CAST(9 AS BIGINT)",
    )
    table = catalog.open().table("dwd.events")
    assert {tuple(p.partition.values()): p.rows_added for p in table.changes(1).partitions} == {
        ("20260101", 0): 1,
        (None, 1): 1,
        ("20260101", None): 1,
    }
    overwrite = table.changes(2)
    assert overwrite.snapshot.commit_kind == "OVERWRITE"
    (partition,) = overwrite.partitions
    assert partition.partition == {"dt": "20260101", "hr": 0}
    assert (partition.rows_added, partition.rows_deleted) == (1, 1)


def test_flinks_own_expiry_leaves_a_gap_and_an_analysis_touches_no_partition(
    flink: Session, catalog: PaimonCatalog
) -> None:
    _batch(
        flink,
        "CREATE TABLE dwd.events (id BIGINT)",
        "INSERT INTO dwd.events VALUES (1)",
        "INSERT INTO dwd.events VALUES (2)",
        "INSERT INTO dwd.events VALUES (3)",
        "ANALYZE TABLE dwd.events COMPUTE STATISTICS",
        "CALL sys.expire_snapshots(`table` => 'dwd.events', retain_max => 2, retain_min => 1)",
    )
    table = catalog.open().table("dwd.events")
    found = table.snapshots(0, 4)
    assert [(s.id, s.commit_kind) for s in found.snapshots] == [(3, "APPEND"), (4, "ANALYZE")]
    assert found.expired == ((1, 2),)
    assert table.changes(4).partitions == ()
    assert sorted(table.read()["id"].to_pylist()) == [1, 2, 3]


def test_the_watermark_of_a_streaming_job_is_a_time_and_its_commits_are_seen_one_by_one(
    flink: Session, cluster: FlinkCluster, catalog: PaimonCatalog
) -> None:
    flink.execute(
        """CREATE TEMPORARY TABLE clicks (
            id BIGINT, seen_at AS LOCALTIMESTAMP,
            WATERMARK FOR seen_at AS seen_at - INTERVAL '5' SECOND
        ) WITH ('connector' = 'datagen', 'rows-per-second' = '20')"""
    )
    flink.execute(
        "CREATE TABLE dwd.clicks (id BIGINT, seen_at TIMESTAMP(3)) "
        "WITH ('bucket' = '-1', 'write-only' = 'true')"
    )
    job_id = flink.execute(
        "INSERT INTO dwd.clicks SELECT id, seen_at FROM clicks",
        config={**STREAMING, "pipeline.name": "paimon room test"},
    ).job_id
    assert job_id is not None
    table = catalog.open().table("dwd.clicks")
    try:
        snapshots = _until_watermark(table)
    finally:
        with cluster.job_manager() as job_manager:
            job_manager.cancel(job_id)
    assert [snapshot.id for snapshot in snapshots] == list(range(1, len(snapshots) + 1))
    assert {snapshot.commit_kind for snapshot in snapshots} == {"APPEND"}
    assert len({snapshot.commit_user for snapshot in snapshots}) == 1
    identifiers = [snapshot.commit_identifier for snapshot in snapshots]
    assert identifiers == sorted(set(identifiers))
    for snapshot in snapshots:
        rows = sum(p.rows_added for p in table.changes(snapshot.id).partitions)
        assert rows == snapshot.delta_record_count
    newest = snapshots[-1]
    assert newest.watermark is not None
    assert timedelta(0) < newest.committed_at - newest.watermark < timedelta(seconds=60)
    assert newest.watermark < datetime.now(timezone.utc)


def _until_watermark(table: TableReader) -> tuple[Snapshot, ...]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        latest = table.latest_snapshot()
        if latest is not None and latest.id >= 3 and latest.watermark is not None:
            return table.snapshots(0, latest.id).snapshots
        time.sleep(0.5)
    raise AssertionError("no snapshot with a watermark within 60 s")

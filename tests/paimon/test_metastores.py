"""One suite for every kind of catalog, each on a real server, written by Flink, read by us."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, ProgressPolicy, SystemDatabase
from lakehouse_dagster.flink import Session, create_catalog, use_catalog
from lakehouse_dagster.paimon import CatalogReader
from lakehouse_dagster.secret_names import is_secret
from lakehouse_dagster.streaming.progress import ProgressCursor, ProgressEvent, moved
from lakehouse_dagster.streaming.start import start_or_adopt
from lakehouse_dagster.streaming.stop import cancel
from tests.support.catalogs import KINDS, CatalogCluster, CatalogServers, catalog_cluster
from tests.support.laboratory import until

pytestmark = [pytest.mark.flink, pytest.mark.services]

BATCH = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}
COPY = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '1s';
CREATE DATABASE IF NOT EXISTS {database};
CREATE TABLE IF NOT EXISTS {database}.numbers (id BIGINT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE counted (id BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '20',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '100000'
);
INSERT INTO {database}.numbers SELECT id FROM counted;
"""


@pytest.fixture(scope="module")
def cluster(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CatalogCluster]:
    folder = tmp_path_factory.mktemp("catalogs") / "stack"
    with catalog_cluster(folder, flink_engine) as running:
        yield running


@pytest.fixture(scope="module")
def servers(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CatalogServers]:
    with CatalogServers(tmp_path_factory.mktemp("servers"), flink_engine) as running:
        yield running


@pytest.fixture(params=KINDS)
def catalog(request: pytest.FixtureRequest, servers: CatalogServers) -> PaimonCatalog:
    return servers.catalog(request.param)


@pytest.fixture
def database() -> str:
    """Of its own for each test: a REST server has one warehouse for all of them."""
    return f"db_{uuid4().hex[:8]}"


@pytest.fixture
def flink(cluster: CatalogCluster, catalog: PaimonCatalog, database: str) -> Iterator[Session]:
    with FlinkCluster(cluster.rest_url, cluster.sql_gateway_url).sql_gateway() as gateway:
        session = gateway.open_session("metastores")
        session.execute(create_catalog(catalog.name, catalog.flink_options()))
        session.execute(use_catalog(catalog.name))
        session.execute(f"CREATE DATABASE {database}")
        yield session
        session.delete()


def _tables(reader: CatalogReader, database: str) -> list[str]:
    return [table for table in reader.tables() if table.startswith(f"{database}.")]


@pytest.mark.every_engine
def test_what_flink_writes_is_listed_and_read(
    flink: Session, catalog: PaimonCatalog, database: str
) -> None:
    for statement in (
        f"""CREATE TABLE {database}.orders (
            dt STRING, id BIGINT, amount INT COMMENT 'in cents', PRIMARY KEY (dt, id) NOT ENFORCED
        ) PARTITIONED BY (dt) WITH ('bucket' = '1', 'write-only' = 'true')""",
        f"CREATE TABLE {database}.blank (id BIGINT)",
        f"INSERT INTO {database}.orders VALUES ('20260101', 1, 10), ('20260102', 2, 20)",
        f"INSERT INTO {database}.orders VALUES ('20260101', 1, 11)",
    ):
        flink.execute(statement, config=BATCH, timeout_seconds=120)
    reader = catalog.open()
    assert database in reader.databases()
    assert _tables(reader, database) == [f"{database}.blank", f"{database}.orders"]
    assert sorted(row[0] for row in flink.execute(f"SHOW TABLES IN {database}").rows) == [
        "blank",
        "orders",
    ]

    orders = reader.table(f"{database}.orders")
    assert orders.exists()
    schema = orders.schema()
    assert [(c.name, c.type, c.comment) for c in schema.columns] == [
        ("dt", "STRING", None),
        ("id", "BIGINT", None),
        ("amount", "INT", "in cents"),
    ]
    assert (schema.primary_key, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert orders.latest_snapshot_id() == 2
    assert [
        (s.id, s.commit_kind, s.delta_record_count) for s in orders.snapshots(0, 2).snapshots
    ] == [(1, "APPEND", 2), (2, "APPEND", 1)]
    assert [dict(p.partition) for p in orders.changes(2).partitions] == [{"dt": "20260101"}]
    rows = orders.read().to_pylist()
    assert sorted((row["dt"], row["id"], row["amount"]) for row in rows) == [
        ("20260101", 1, 11),
        ("20260102", 2, 20),
    ]
    assert orders.read(columns=["amount"], snapshot_id=1)["amount"].to_pylist() == [10, 20]

    empty = reader.table(f"{database}.blank")
    assert (empty.exists(), empty.latest_snapshot_id()) == (True, None)
    missing = reader.table(f"{database}.nothing")
    assert (missing.exists(), missing.latest_snapshot_id()) == (False, None)


def test_a_streaming_job_is_started_and_its_progress_told(
    cluster: CatalogCluster,
    catalog: PaimonCatalog,
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="lakehouse_dagster")
    job, table = f"count-{database}", f"{database}.numbers"
    (tmp_path / "count.sql").write_text(COPY.format(name=job, database=database))
    lake = Lakehouse(
        catalog=catalog,
        flink=FlinkCluster(cluster.rest_url, cluster.sql_gateway_url),
        name=f"metastores-{database}",
        system_database=SystemDatabase(f"sqlite:///{tmp_path / 'lakehouse.db'}"),
    )
    loaded = lake.load("count.sql", base_folder=tmp_path)
    with loaded.runtime.hold(job, "test") as held:
        start_or_adopt(held)
        try:
            event = until(lambda: _progress(catalog, table), "progress", seconds=90)
        finally:
            cancel(held)
    assert event.commits_by_kind == {"APPEND": event.last_snapshot}
    rows = catalog.open().table(table).read(snapshot_id=event.last_snapshot)["id"].to_pylist()
    assert sorted(rows) == list(range(1, event.rows_written + 1))
    secrets = [value for key, value in catalog.options.items() if is_secret(key)]
    assert not [secret for secret in secrets if secret in caplog.text + repr(lake)]


def _progress(catalog: PaimonCatalog, table: str) -> ProgressEvent | None:
    """The table's first event, once there are two snapshots with rows."""
    news = moved(
        catalog.open(),
        [table],
        ProgressCursor(),
        now=datetime.now(timezone.utc),
        policy=ProgressPolicy(),
    )
    assert news.problems == {}
    event = news.events[0] if news.events else None
    return event if event and event.last_snapshot >= 2 and event.rows_written else None


@pytest.mark.parametrize("kind", ["filesystem", "jdbc", "jdbc_on_s3", "rest"])
def test_pypaimon_given_our_options_sees_the_same_tables(
    kind: str, servers: CatalogServers, cluster: CatalogCluster, database: str
) -> None:
    from pypaimon import CatalogFactory

    catalog = servers.catalog(kind)
    with FlinkCluster(cluster.rest_url, cluster.sql_gateway_url).sql_gateway() as gateway:
        session = gateway.open_session("metastores")
        session.execute(create_catalog(catalog.name, catalog.flink_options()))
        session.execute(f"CREATE DATABASE {catalog.name}.{database}")
        session.execute(f"CREATE TABLE {catalog.name}.{database}.orders (id BIGINT)")
        session.delete()
    theirs = CatalogFactory.create(catalog.pypaimon_options())
    assert theirs.list_tables(database) == ["orders"]
    assert _tables(catalog.open(), database) == [f"{database}.orders"]

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from lakehouse_dagster.errors import CatalogError, SnapshotNotFoundError, TableNotFoundError
from lakehouse_dagster.paimon import CatalogReader, ColumnSchema, PaimonCatalog
from tests.paimon.writing import Writer

KEYED = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("dt", pa.date32())]
)
DAY = date(2026, 1, 1)


@pytest.fixture
def catalog(warehouse: Path) -> CatalogReader:
    return PaimonCatalog(str(warehouse)).open()


@pytest.fixture
def users(warehouse: Path) -> Writer:
    """A primary key table: snapshot 1 has Ann and Bob, snapshot 2 renames Bob to Bert."""
    writer = Writer(warehouse, "ods.users", KEYED, primary_keys=("id",), options={"bucket": "1"})
    writer.append([{"id": 1, "name": "Ann", "dt": DAY}, {"id": 2, "name": "Bob", "dt": DAY}])
    writer.append([{"id": 2, "name": "Bert", "dt": DAY}])
    return writer


def test_databases_and_tables_are_listed_and_nothing_else(
    warehouse: Path, catalog: CatalogReader
) -> None:
    Writer(warehouse, "ods.users", KEYED)
    Writer(warehouse, "dwd.orders", KEYED)
    (warehouse / "dwd.db" / "no table").mkdir()
    (warehouse / "dwd.db" / "file").touch()
    (warehouse / "empty.db").mkdir()
    (warehouse / "lost+found").mkdir()
    assert catalog.databases() == ("dwd", "empty", "ods")
    assert catalog.tables() == ("dwd.orders", "ods.users")


def test_an_empty_warehouse_has_no_tables_and_a_missing_one_is_an_error(
    warehouse: Path, catalog: CatalogReader
) -> None:
    assert catalog.tables() == ()
    missing = PaimonCatalog(str(warehouse / "gone")).open()
    with pytest.raises(CatalogError, match=r"gone does not exist\. Look at its path"):
        missing.tables()


def test_a_schema_names_columns_keys_options_and_comments(
    warehouse: Path, catalog: CatalogReader
) -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"description": "the key"}),
            ("price", pa.decimal128(10, 2)),
            ("at", pa.timestamp("ms")),
            ("zoned", pa.timestamp("ms", tz="UTC")),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("city", pa.string()), ("post code", pa.int32())])),
            pa.field("dt", pa.date32(), nullable=False),
        ]
    )
    Writer(
        warehouse,
        "dwd.orders",
        columns,
        primary_keys=("id", "dt"),
        partition_keys=("dt",),
        options={"bucket": "2", "s3.secret-key": "hush"},
        comment="all orders",
    )
    schema = catalog.table("dwd.orders").schema()
    assert [(c.name, c.type, c.nullable) for c in schema.columns] == [
        ("id", "BIGINT", False),
        ("price", "DECIMAL(10, 2)", True),
        ("at", "TIMESTAMP(3)", True),
        ("zoned", "TIMESTAMP_LTZ(3)", True),
        ("tags", "ARRAY<STRING>", True),
        ("place", "ROW<city STRING, `post code` INT>", True),
        ("dt", "DATE", False),
    ]
    assert schema.columns[0] == ColumnSchema("id", "BIGINT", False, "the key")
    assert schema.primary_key == ("id", "dt")
    assert schema.partition_keys == ("dt",)
    assert schema.options == {"bucket": "2", "s3.secret-key": "****"}
    assert schema.comment == "all orders"


def test_rows_are_read_merged_by_key(users: Writer, catalog: CatalogReader) -> None:
    rows = catalog.table("ods.users").read()
    assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "Ann", "dt": DAY},
        {"id": 2, "name": "Bert", "dt": DAY},
    ]


def test_rows_are_read_as_of_a_snapshot(users: Writer, catalog: CatalogReader) -> None:
    rows = catalog.table("ods.users").read(columns=["name"], snapshot_id=1)
    assert sorted(rows["name"].to_pylist()) == ["Ann", "Bob"]


def test_columns_come_in_the_order_asked_for(users: Writer, catalog: CatalogReader) -> None:
    rows = catalog.table("ods.users").read(columns=["name", "id"])
    assert rows.column_names == ["name", "id"]
    assert sorted(rows["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_a_limit_is_kept_exactly(
    users: Writer, catalog: CatalogReader, limit: int, count: int
) -> None:
    for snapshot_id in (1, 2):
        rows = catalog.table("ods.users").read(limit=limit, snapshot_id=snapshot_id)
        assert rows.num_rows == count


def test_a_table_without_commits_reads_as_no_rows(warehouse: Path, catalog: CatalogReader) -> None:
    Writer(warehouse, "ods.users", KEYED)
    rows = catalog.table("ods.users").read()
    assert (rows.num_rows, rows.column_names) == (0, ["id", "name", "dt"])


def test_an_unknown_column_is_refused_with_those_there_are(
    users: Writer, catalog: CatalogReader
) -> None:
    with pytest.raises(CatalogError, match=r"has no column nme\. Its columns are id, name, dt\."):
        catalog.table("ods.users").read(columns=["id", "nme"])


def test_an_expired_snapshot_cannot_be_read(users: Writer, catalog: CatalogReader) -> None:
    users.expire(1)
    with pytest.raises(SnapshotNotFoundError, match=r"ods\.users has no snapshot 1"):
        catalog.table("ods.users").read(snapshot_id=1)


def test_a_missing_table_is_named_when_it_is_needed(catalog: CatalogReader) -> None:
    table = catalog.table("ods.users")
    for need in (table.schema, table.read, lambda: table.read(snapshot_id=1)):
        with pytest.raises(TableNotFoundError, match=r"ods\.users"):
            need()


@pytest.mark.parametrize(
    "name",
    ["users", "", ".users", "ods.", "ods.users$files", "ods/../x.users", "ods...", "a b.c d/e"],
)
def test_a_name_that_no_table_can_have_is_refused(catalog: CatalogReader, name: str) -> None:
    with pytest.raises(TableNotFoundError, match="is not the name of a table"):
        catalog.table(name)


def test_a_broken_data_file_is_an_error_that_names_the_table(
    users: Writer, catalog: CatalogReader
) -> None:
    for file in users.folder.glob("bucket-*/data-*"):
        file.write_bytes(b"not parquet")
    with pytest.raises(CatalogError, match=r"Could not read the table ods\.users: "):
        catalog.table("ods.users").read()


def test_a_broken_schema_file_is_an_error_that_names_the_table(
    users: Writer, catalog: CatalogReader
) -> None:
    (users.folder / "schema" / "schema-0").write_text("{")
    with pytest.raises(CatalogError, match=r"Could not read the schema of the table ods\.users: "):
        catalog.table("ods.users").schema()


@pytest.mark.parametrize("name", ["with space", "süd 日本", "100%25 #1?"])
def test_a_warehouse_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    Writer(folder, "ods.users", KEYED).append([{"id": 1, "name": "Ann", "dt": DAY}])
    for warehouse in (str(folder), f"file://{folder}"):
        catalog = PaimonCatalog(warehouse).open()
        assert catalog.tables() == ("ods.users",)
        table = catalog.table("ods.users")
        assert table.latest_snapshot_id() == 1
        assert table.changes(1).partitions[0].rows_added == 1
        assert table.read()["name"].to_pylist() == ["Ann"]
    assert sorted(os.listdir(tmp_path)) == [name]


def test_reading_leaves_the_warehouse_as_it_was(users: Writer, warehouse: Path) -> None:
    def files() -> dict[str, float]:
        return {str(file): file.stat().st_mtime for file in warehouse.rglob("*")}

    before = files()
    catalog = PaimonCatalog(str(warehouse)).open()
    table = catalog.table("ods.users")
    catalog.tables()
    table.schema()
    table.latest_snapshot()
    table.snapshots(0, 2)
    table.changes(2)
    table.read()
    assert files() == before


def test_what_pypaimon_itself_says_agrees(users: Writer, warehouse: Path) -> None:
    theirs = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("ods.users")
    ours = PaimonCatalog(str(warehouse)).open().table("ods.users")
    latest, snapshot = theirs.snapshot_manager().get_latest_snapshot(), ours.latest_snapshot()
    assert snapshot is not None
    assert (latest.id, latest.commit_user) == (snapshot.id, snapshot.commit_user)

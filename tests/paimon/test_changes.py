from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from lakehouse_dagster.errors import SnapshotNotFoundError, TableNotFoundError
from lakehouse_dagster.paimon import PaimonCatalog, PartitionChanges, TableReader
from tests.paimon.writing import Writer


def _reader(warehouse: Path, name: str = "dwd.orders") -> TableReader:
    return PaimonCatalog(str(warehouse)).open().table(name)


def _by_day(reader: TableReader, snapshot_id: int) -> dict[Any, PartitionChanges]:
    return {p.partition["dt"]: p for p in reader.changes(snapshot_id).partitions}


DAILY = pa.schema([("id", pa.int64()), ("dt", pa.date32())])
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


@pytest.fixture
def daily(warehouse: Path) -> Writer:
    return Writer(warehouse, "dwd.orders", DAILY, partition_keys=("dt",))


def test_an_append_adds_files_bytes_and_rows_to_its_partitions(
    daily: Writer, warehouse: Path
) -> None:
    daily.append([{"id": 1, "dt": FIRST}, {"id": 2, "dt": FIRST}, {"id": 3, "dt": SECOND}])
    changes = _reader(warehouse).changes(1)
    assert changes.snapshot.commit_kind == "APPEND"
    assert {p.partition["dt"]: (p.files_added, p.rows_added) for p in changes.partitions} == {
        FIRST: (1, 2),
        SECOND: (1, 1),
    }
    assert sum(p.bytes_added for p in changes.partitions) == daily.data_bytes()
    assert all(
        p.files_deleted == p.rows_deleted == p.bytes_deleted == 0 for p in changes.partitions
    )


def test_only_the_partitions_of_that_snapshot_are_told(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": FIRST}])
    daily.append([{"id": 2, "dt": SECOND}])
    daily.append([{"id": 3, "dt": SECOND}])
    assert list(_by_day(_reader(warehouse), 3)) == [SECOND]
    assert list(_by_day(_reader(warehouse), 1)) == [FIRST]


def test_an_overwrite_deletes_the_old_files_of_its_partition_only(
    daily: Writer, warehouse: Path
) -> None:
    daily.append([{"id": 1, "dt": FIRST}, {"id": 2, "dt": SECOND}])
    daily.append([{"id": 3, "dt": FIRST}, {"id": 4, "dt": FIRST}])
    before = _by_day(_reader(warehouse), 1)[FIRST].bytes_added
    before += _by_day(_reader(warehouse), 2)[FIRST].bytes_added
    daily.append([{"id": 9, "dt": FIRST}], overwrite={"dt": FIRST})
    changes = _reader(warehouse).changes(3)
    assert changes.snapshot.commit_kind == "OVERWRITE"
    (first,) = changes.partitions
    assert first.partition == {"dt": FIRST}
    assert (first.files_added, first.rows_added) == (1, 1)
    assert (first.files_deleted, first.rows_deleted) == (2, 3)
    assert first.bytes_deleted == before


def test_a_null_partition_is_told_as_none(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": None}, {"id": 2, "dt": FIRST}])
    changes = _by_day(_reader(warehouse), 1)
    assert changes[None].rows_added == 1
    assert changes[FIRST].rows_added == 1


def test_partition_values_of_several_columns_keep_their_types_and_order(warehouse: Path) -> None:
    values = {
        "region": "süd-west, a region with a long name",
        "dt": date(1969, 12, 31),
        "hour": 23,
        "small": -3,
        "big": 2**40,
        "flag": True,
        "price": Decimal("12.30"),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000),
        "code": "x",
        "nothing": None,
    }
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("ms")),
            ("region", pa.string()),
            ("dt", pa.date32()),
            ("hour", pa.int32()),
            ("small", pa.int8()),
            ("big", pa.int64()),
            ("flag", pa.bool_()),
            ("price", pa.decimal128(10, 2)),
            ("code", pa.string()),
            ("nothing", pa.string()),
        ]
    )
    writer = Writer(warehouse, "dwd.orders", columns, partition_keys=tuple(values))
    writer.append([{"id": 1, **values}])
    (partition,) = _reader(warehouse).changes(1).partitions
    assert partition.partition == values
    assert list(partition.partition) == list(values)
    assert {key: type(value) for key, value in partition.partition.items()} == {
        key: type(value) for key, value in values.items()
    }


def test_a_table_without_partitions_has_one_unnamed_partition(warehouse: Path) -> None:
    writer = Writer(warehouse, "dwd.orders", pa.schema([("id", pa.int64())]))
    writer.append([{"id": number} for number in range(7)])
    (partition,) = _reader(warehouse).changes(1).partitions
    assert partition == PartitionChanges({}, 1, 0, writer.data_bytes(), 0, 7, 0)


def test_rows_of_a_primary_key_table_are_counted_before_merging(warehouse: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    writer = Writer(warehouse, "dwd.orders", columns, primary_keys=("id",), options={"bucket": "2"})
    for _ in range(2):
        writer.append([{"id": number, "name": "a"} for number in range(10)])
    reader = _reader(warehouse)
    (partition,) = reader.changes(2).partitions
    assert (partition.rows_added, partition.files_added) == (10, 2)
    assert reader.read().num_rows == 10


def test_snapshots_before_a_schema_change_are_still_read(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": FIRST}])
    daily.catalog.alter_table(
        "dwd.orders", [SchemaChange.add_column("note", AtomicType("STRING"), None, None)], False
    )
    daily.columns = daily.columns.append(pa.field("note", pa.string()))
    daily.append([{"id": 2, "dt": SECOND, "note": "x"}])
    reader = _reader(warehouse)
    assert (reader.changes(1).snapshot.schema_id, list(_by_day(reader, 1))) == (0, [FIRST])
    assert (reader.changes(2).snapshot.schema_id, list(_by_day(reader, 2))) == (1, [SECOND])


def test_changes_need_no_data_file(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": FIRST}])
    for file in daily.folder.glob("dt=*/bucket-*/data-*"):
        file.unlink()
    assert _by_day(_reader(warehouse), 1)[FIRST].rows_added == 1


def test_a_snapshot_that_expired_is_named(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": FIRST}])
    daily.append([{"id": 2, "dt": FIRST}])
    daily.expire(1)
    for missing in (1, 3):
        with pytest.raises(SnapshotNotFoundError, match=f"dwd.orders has no snapshot {missing}"):
            _reader(warehouse).changes(missing)


def test_a_snapshot_that_expires_while_it_is_read_is_not_half_told(
    daily: Writer, warehouse: Path
) -> None:
    daily.append([{"id": 1, "dt": FIRST}])
    for file in (daily.folder / "manifest").glob("manifest-*-0"):
        if "list" not in file.name:
            file.unlink()
    with pytest.raises(SnapshotNotFoundError, match="its snapshot has expired"):
        _reader(warehouse).changes(1)


def test_changes_of_a_missing_table_say_that_the_table_is_missing(warehouse: Path) -> None:
    with pytest.raises(TableNotFoundError, match=r"has no table dwd\.orders"):
        _reader(warehouse).changes(1)


def test_the_partitions_of_a_snapshot_are_those_with_files(daily: Writer, warehouse: Path) -> None:
    daily.append([{"id": 1, "dt": FIRST}, {"id": 2, "dt": SECOND}, {"id": 3, "dt": None}])
    daily.append([{"id": 4, "dt": SECOND}])
    daily.truncate({"dt": FIRST})
    reader = _reader(warehouse)
    found = {p.partition["dt"]: p.newest_file_at for p in reader.partitions(2)}
    assert set(found) == {FIRST, SECOND, None}
    assert found[SECOND] > found[FIRST]
    assert {p.partition["dt"] for p in reader.partitions(3)} == {SECOND, None}
    assert reader.oldest_snapshot_id() == 1
    daily.expire(1)
    assert reader.oldest_snapshot_id() == 2
    with pytest.raises(SnapshotNotFoundError, match=r"dwd.orders has no snapshot 1"):
        reader.partitions(1)

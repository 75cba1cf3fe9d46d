from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.paimon import PaimonCatalog, SnapshotRange, TableReader
from lakehouse_dagster.paimon.snapshots import missing_runs
from tests.paimon.writing import Writer

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture
def orders(warehouse: Path) -> Writer:
    """A table with snapshots 1 to 3."""
    writer = Writer(warehouse, "dwd.orders", COLUMNS)
    for number in range(3):
        writer.append([{"id": number}])
    return writer


@pytest.fixture
def reader(warehouse: Path) -> TableReader:
    return PaimonCatalog(str(warehouse)).open().table("dwd.orders")


def _edit(writer: Writer, snapshot_id: int, **changes: Any) -> None:
    file = writer.folder / "snapshot" / f"snapshot-{snapshot_id}"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _copy_snapshot(writer: Writer, source: int, target: int) -> None:
    folder = writer.folder / "snapshot"
    document = json.loads((folder / f"snapshot-{source}").read_text())
    (folder / f"snapshot-{target}").write_text(json.dumps({**document, "id": target}))


def test_the_latest_snapshot_follows_each_commit(orders: Writer, reader: TableReader) -> None:
    assert reader.latest_snapshot_id() == 3
    orders.append([{"id": 9}])
    assert reader.latest_snapshot_id() == 4


def test_a_table_that_does_not_exist_yet_has_no_snapshot(
    warehouse: Path, reader: TableReader
) -> None:
    assert reader.latest_snapshot_id() is None
    assert reader.latest_snapshot() is None
    assert reader.snapshot(1) is None
    assert reader.snapshots(0, 5) == SnapshotRange((), ())
    in_a_missing_warehouse = PaimonCatalog(str(warehouse / "gone")).open().table("dwd.orders")
    assert in_a_missing_warehouse.latest_snapshot_id() is None


def test_a_table_without_commits_has_no_snapshot(warehouse: Path, reader: TableReader) -> None:
    Writer(warehouse, "dwd.orders", COLUMNS)
    assert reader.latest_snapshot_id() is None


@pytest.mark.parametrize("hint", [b"", b"2", b"1", b"7", b"\x00\xff", b"three", b"-1", b" 3\n"])
def test_a_hint_that_lags_behind_or_is_broken_is_not_believed(
    orders: Writer, reader: TableReader, hint: bytes
) -> None:
    (orders.folder / "snapshot" / "LATEST").write_bytes(hint)
    assert reader.latest_snapshot_id() == 3


def test_a_missing_hint_is_replaced_by_looking_at_the_folder(
    orders: Writer, reader: TableReader
) -> None:
    (orders.folder / "snapshot" / "LATEST").unlink()
    for stray in ("snapshot-", "snapshot-99.tmp", ".snapshot-98", "snapshot-0", "EARLIEST"):
        (orders.folder / "snapshot" / stray).touch()
    assert reader.latest_snapshot_id() == 3


def test_the_folder_is_compared_by_number_not_by_text(orders: Writer, reader: TableReader) -> None:
    _copy_snapshot(orders, 3, 10)
    (orders.folder / "snapshot" / "LATEST").unlink()
    assert reader.latest_snapshot_id() == 10


def test_a_hint_without_any_snapshot_file_is_an_error_not_an_empty_table(
    orders: Writer, reader: TableReader
) -> None:
    orders.expire(1, 2, 3)
    with pytest.raises(CatalogError, match="has a snapshot 3 according to its file LATEST"):
        reader.latest_snapshot_id()


def test_many_tables_are_asked_at_once_from_threads(orders: Writer, warehouse: Path) -> None:
    catalog = PaimonCatalog(str(warehouse)).open()
    names = ["dwd.orders", "dwd.missing"] * 50
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: catalog.table(name).latest_snapshot_id(), names))
    assert found == [3, None] * 50


def test_a_snapshot_tells_who_committed_what_and_when(orders: Writer, reader: TableReader) -> None:
    snapshot = reader.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.id, snapshot.schema_id, snapshot.commit_kind) == (3, 0, "APPEND")
    assert snapshot.delta_record_count == 1
    assert snapshot.changelog_record_count is None
    assert snapshot.watermark is None
    assert snapshot.commit_identifier == 2**63 - 1
    age = datetime.now(timezone.utc) - snapshot.committed_at
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert snapshot.committed_at.tzinfo is timezone.utc
    written = json.loads((orders.folder / "snapshot" / "snapshot-3").read_text())
    assert snapshot.commit_user == written["commitUser"]


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (1767225600123, datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=timezone.utc)),
        (0, datetime(1970, 1, 1, tzinfo=timezone.utc)),
        (-(2**63), None),
        (2**63 - 1, None),
        (None, None),
    ],
)
def test_a_watermark_is_a_time_or_none_when_there_is_none(
    orders: Writer, reader: TableReader, stored: int | None, read: datetime | None
) -> None:
    _edit(orders, 3, watermark=stored, changelogRecordCount=5)
    snapshot = reader.snapshot(3)
    assert snapshot is not None
    assert snapshot.watermark == read
    assert snapshot.changelog_record_count == 5


def test_snapshots_after_the_last_seen_come_in_order(orders: Writer, reader: TableReader) -> None:
    found = reader.snapshots(1, 3)
    assert [snapshot.id for snapshot in found.snapshots] == [2, 3]
    assert found.expired == ()
    assert reader.snapshots(3, 3) == SnapshotRange((), ())


def test_snapshots_that_expired_unseen_are_reported_as_gaps(
    orders: Writer, reader: TableReader
) -> None:
    orders.append([{"id": 3}])
    orders.expire(1, 3)
    found = reader.snapshots(0, 4)
    assert [snapshot.id for snapshot in found.snapshots] == [2, 4]
    assert found.expired == ((1, 1), (3, 3))


def test_snapshots_that_were_never_made_are_not_a_gap(orders: Writer, reader: TableReader) -> None:
    assert reader.snapshots(2, 99).expired == ()
    assert [snapshot.id for snapshot in reader.snapshots(2, 99).snapshots] == [3]
    assert reader.snapshots(5, 99) == SnapshotRange((), ())


def test_a_long_gap_is_found_without_trying_every_snapshot(
    orders: Writer, reader: TableReader
) -> None:
    for number in (1_000_001, 1_000_003):
        _copy_snapshot(orders, 3, number)
    orders.expire(1, 2)
    (orders.folder / "snapshot" / "LATEST").write_text("1000003")
    found = reader.snapshots(0, 1_000_003)
    assert [snapshot.id for snapshot in found.snapshots] == [3, 1_000_001, 1_000_003]
    assert found.expired == ((1, 2), (4, 1_000_000), (1_000_002, 1_000_002))


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"id": 3}', '{"id": 3, "schemaId": "x"}'])
def test_a_broken_snapshot_file_is_an_error_that_names_the_table(
    orders: Writer, reader: TableReader, content: str
) -> None:
    (orders.folder / "snapshot" / "snapshot-3").write_text(content)
    with pytest.raises(CatalogError, match=r"dwd\.orders"):
        reader.snapshot(3)


@given(
    after=st.integers(0, 50),
    length=st.integers(0, 40),
    present=st.sets(st.integers(1, 100)),
)
def test_gaps_and_snapshots_together_make_the_whole_range(
    after: int, length: int, present: set[int]
) -> None:
    upto = after + length
    inside = sorted(number for number in present if after < number <= upto)
    runs = missing_runs(after, upto, inside)
    missing = [number for first, last in runs for number in range(first, last + 1)]
    assert sorted(missing + inside) == list(range(after + 1, upto + 1))
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(runs))

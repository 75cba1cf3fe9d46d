"""What moved in real Paimon tables since the last look."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_dagster import PaimonCatalog, ProgressPolicy
from lakehouse_dagster.paimon import CatalogReader
from lakehouse_dagster.streaming.events import progress_metadata
from lakehouse_dagster.streaming.progress import (
    Moved,
    ProgressCursor,
    ProgressEvent,
    advance,
    describe,
    moved,
)
from tests.paimon.writing import Writer
from tests.streaming.making import NOW

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
POLICY = ProgressPolicy(progress_interval="1m", threads=4)


class Lake:
    """A warehouse with tables that pypaimon writes."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.reader: CatalogReader = PaimonCatalog(warehouse=str(warehouse)).open()
        self._ids = itertools.count()

    def table(self, name: str, commits: int = 0, **declared: Any) -> Writer:
        writer = Writer(
            self.warehouse,
            name,
            declared.pop("columns", COLUMNS),
            primary_keys=declared.pop("primary_keys", ("id",)),
            options={"bucket": "1"},
            **declared,
        )
        for _ in range(commits):
            self.commit(writer)
        return writer

    def commit(self, writer: Writer, rows: int = 1, **values: Any) -> None:
        writer.append([{"id": next(self._ids), "v": "x", **values} for _ in range(rows)])

    def moved(
        self,
        *tables: str,
        cursor: ProgressCursor | None = None,
        after: timedelta = timedelta(0),
        **policy: Any,
    ) -> Moved:
        return moved(
            self.reader,
            tables,
            cursor or ProgressCursor(),
            now=NOW + after,
            policy=replace(POLICY, **policy),
        )


@pytest.fixture
def lake(warehouse: Path) -> Lake:
    return Lake(warehouse)


def only(news: Moved) -> ProgressEvent:
    assert news.problems == {}
    (event,) = news.events
    return event


LATER = timedelta(minutes=2)


def test_new_snapshots_become_one_event_with_its_numbers(lake: Lake) -> None:
    orders = lake.table("ods.orders")
    lake.commit(orders, rows=3)
    lake.commit(orders, rows=2)
    event = only(lake.moved("ods.orders"))
    assert (event.first_snapshot, event.last_snapshot, event.data_version) == (1, 2, "2")
    assert (event.rows_written, event.rows_removed) == (5, 0)
    assert (event.files_added, event.files_deleted) == (2, 0)
    assert event.bytes_added == orders.data_bytes()
    assert event.commits_by_kind == {"APPEND": 2}
    assert (event.partitions, event.expired, event.snapshots_not_looked_into) == ((), (), 0)
    newest = lake.reader.table("ods.orders").latest_snapshot()
    assert newest is not None
    assert (event.committed_at, event.commit_user) == (newest.committed_at, newest.commit_user)


def test_only_what_came_since_the_last_event_is_told(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=2)
    cursor = advance(ProgressCursor(), lake.moved("ods.orders").events, NOW)
    assert lake.moved("ods.orders", cursor=cursor, after=LATER) == Moved((), {}, 0)
    lake.commit(orders, rows=4)
    event = only(lake.moved("ods.orders", cursor=cursor, after=LATER))
    assert (event.first_snapshot, event.last_snapshot, event.rows_written) == (3, 3, 4)


def test_a_table_is_told_of_at_most_once_an_interval(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=1)
    cursor = advance(ProgressCursor(), lake.moved("ods.orders").events, NOW)
    lake.commit(orders)
    soon = timedelta(seconds=59)
    assert lake.moved("ods.orders", cursor=cursor, after=soon).events == ()
    lake.commit(orders)
    event = only(lake.moved("ods.orders", cursor=cursor, after=timedelta(seconds=60)))
    assert (event.first_snapshot, event.last_snapshot) == (2, 3)


def test_a_lost_cursor_repeats_the_data_version(lake: Lake) -> None:
    lake.table("ods.orders", commits=3)
    first = only(lake.moved("ods.orders"))
    for damaged in (
        None,
        "",
        "{",
        '{"tables": 3}',
        '{"tables": {"ods.orders": {"snapshot": "x"}}}',
    ):
        again = only(lake.moved("ods.orders", cursor=ProgressCursor.parse(damaged)))
        assert again.data_version == first.data_version == "3"


def test_the_cursor_survives_being_stored(lake: Lake) -> None:
    lake.table("ods.orders", commits=3)
    cursor = advance(ProgressCursor(), lake.moved("ods.orders").events, NOW)
    assert ProgressCursor.parse(cursor.stored()) == cursor
    assert cursor.tables["ods.orders"].snapshot == 3
    assert len(cursor.stored()) < 100


def test_tables_that_do_not_exist_or_have_no_snapshot_say_nothing(lake: Lake) -> None:
    lake.table("ods.empty")
    assert lake.moved("ods.empty", "ods.none", "other.none") == Moved((), {}, 0)


def test_an_unmanaged_warehouse_that_does_not_exist_is_no_problem(tmp_path: Path) -> None:
    reader = PaimonCatalog(warehouse=str(tmp_path / "nowhere")).open()
    assert moved(reader, ["ods.a"], ProgressCursor(), now=NOW, policy=POLICY) == Moved((), {}, 0)


def test_upstream_comes_first_whatever_moved_first(lake: Lake) -> None:
    for name in ("app.c", "dwd.b", "ods.a"):
        lake.table(name, commits=1)
    events = lake.moved("ods.a", "dwd.b", "app.c").events
    assert [event.table for event in events] == ["ods.a", "dwd.b", "app.c"]


def test_events_of_one_tick_are_bounded_and_the_rest_comes_next(lake: Lake) -> None:
    names = [f"ods.t{n}" for n in range(5)]
    for name in names:
        lake.table(name, commits=1)
    cursor, told, left = ProgressCursor(), [], []
    for tick in range(3):
        now = timedelta(seconds=10 * tick)
        news = lake.moved(*names, cursor=cursor, after=now, events_per_tick=2)
        told.append([event.table for event in news.events])
        left.append(news.left_over)
        cursor = advance(cursor, news.events, NOW + now)
    assert told == [["ods.t0", "ods.t1"], ["ods.t2", "ods.t3"], ["ods.t4"]]
    assert left == [3, 1, 0]


def test_a_busy_table_does_not_starve_the_others(lake: Lake) -> None:
    names = ["ods.a_busy", "ods.b", "ods.c"]
    writers = [lake.table(name, commits=1) for name in names]
    cursor, told = ProgressCursor(), []
    for tick in range(6):
        for writer in writers:
            lake.commit(writer)
        now = LATER * tick
        news = lake.moved(*names, cursor=cursor, after=now, events_per_tick=1)
        told += [event.table for event in news.events]
        cursor = advance(cursor, news.events, NOW + now)
    assert told == names * 2


def test_snapshots_expired_before_they_were_seen_are_a_gap(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=2)
    cursor = advance(ProgressCursor(), lake.moved("ods.orders").events, NOW)
    for _ in range(5):
        lake.commit(orders)
    orders.expire(1, 2, 3, 4)
    event = only(lake.moved("ods.orders", cursor=cursor, after=LATER))
    assert (event.first_snapshot, event.last_snapshot) == (3, 7)
    assert event.expired == ((3, 4),)
    assert (event.rows_written, event.commits_by_kind) == (3, {"APPEND": 3})


def test_what_expired_before_the_first_look_is_no_gap(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=4)
    orders.expire(1, 2)
    event = only(lake.moved("ods.orders"))
    assert (event.first_snapshot, event.last_snapshot, event.expired) == (3, 4, ())


def test_a_table_made_anew_is_told_of_from_its_beginning(lake: Lake) -> None:
    lake.table("ods.orders", commits=3)
    cursor = advance(ProgressCursor(), lake.moved("ods.orders").events, NOW)
    orders = lake.table("ods.fresh", commits=1)
    folder = lake.warehouse / "ods.db"
    (folder / "orders").rename(lake.warehouse / "dropped")
    orders.folder.rename(folder / "orders")
    event = only(lake.moved("ods.orders", cursor=cursor, after=LATER))
    assert (event.first_snapshot, event.last_snapshot) == (1, 1)
    cursor = advance(cursor, [event], NOW + LATER)
    assert cursor.tables["ods.orders"].snapshot == 1


def test_the_partitions_that_changed_are_named(lake: Lake) -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("v", pa.string()),
            pa.field("dt", pa.string(), nullable=False),
            pa.field("hour", pa.int32(), nullable=False),
        ]
    )
    hours = lake.table(
        "app.hours",
        columns=columns,
        partition_keys=("dt", "hour"),
        primary_keys=("id", "dt", "hour"),
    )
    lake.commit(hours, dt="20260102", hour=7)
    lake.commit(hours, dt="20260101", hour=23)
    lake.commit(hours, dt="20260101", hour=23)
    event = only(lake.moved("app.hours"))
    assert event.partitions == (
        ({"dt": "20260101", "hour": 23}, 3),
        ({"dt": "20260102", "hour": 7}, 1),
    )


def test_a_null_partition_is_named_null(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
    days = lake.table("app.days", columns=columns, partition_keys=("dt",), primary_keys=())
    lake.commit(days, dt=None)
    event = only(lake.moved("app.days"))
    assert event.partitions == (({"dt": None}, 1),)
    assert progress_metadata(event, NOW)["partitions"] == "dt=NULL"


def test_rows_removed_by_an_overwrite_are_counted(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.string()), ("dt", pa.string())])
    days = lake.table("app.days", columns=columns, partition_keys=("dt",), primary_keys=())
    lake.commit(days, rows=3, dt="a")
    cursor = advance(ProgressCursor(), lake.moved("app.days").events, NOW)
    days.append([{"id": 1, "v": "y", "dt": "a"}], overwrite={"dt": "a"})
    event = only(lake.moved("app.days", cursor=cursor, after=LATER))
    assert (event.rows_written, event.rows_removed) == (1, 3)
    assert event.commits_by_kind == {"OVERWRITE": 1}


def test_only_the_newest_snapshots_are_looked_into(lake: Lake) -> None:
    lake.table("ods.orders", commits=6)
    table = lake.reader.table("ods.orders")
    event = describe(table, 0, 6, looked_into=2)
    assert event is not None
    assert (event.rows_written, event.snapshots_not_looked_into) == (2, 4)
    assert event.commits_by_kind == {"APPEND": 6}


def test_snapshots_that_were_not_read_count_as_not_looked_into(lake: Lake) -> None:
    lake.table("ods.orders", commits=6)
    event = describe(lake.reader.table("ods.orders"), 1, 6, looked_into=2, read=3)
    assert event is not None
    assert (event.first_snapshot, event.last_snapshot) == (2, 6)
    assert (event.rows_written, event.snapshots_not_looked_into) == (2, 3)
    assert event.commits_by_kind == {"APPEND": 3}


def test_snapshots_that_have_all_expired_make_no_event(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=3)
    orders.expire(1, 2)
    assert describe(lake.reader.table("ods.orders"), 0, 2) is None


Damage = Callable[[Writer], None]


def _no_json(writer: Writer) -> None:
    (writer.folder / "snapshot" / "snapshot-2").write_text("no json")


def _half_a_snapshot(writer: Writer) -> None:
    (writer.folder / "snapshot" / "snapshot-2").write_text('{"id": 2}')


def _without_manifests(writer: Writer) -> None:
    for path in (writer.folder / "manifest").iterdir():
        path.unlink()


def _without_schema(writer: Writer) -> None:
    for path in (writer.folder / "schema").iterdir():
        path.unlink()


def _scrambled_schema(writer: Writer) -> None:
    for path in (writer.folder / "schema").iterdir():
        path.write_text("{}")


def _scrambled_manifests(writer: Writer) -> None:
    for path in (writer.folder / "manifest").iterdir():
        path.write_bytes(b"no avro")


@pytest.mark.parametrize(
    "damage",
    [
        _no_json,
        _half_a_snapshot,
        _without_manifests,
        _without_schema,
        _scrambled_schema,
        _scrambled_manifests,
    ],
)
def test_a_broken_table_is_a_problem_and_the_others_go_on(lake: Lake, damage: Damage) -> None:
    broken = lake.table("ods.broken", commits=2)
    lake.table("ods.good", commits=1)
    damage(broken)
    news = lake.moved("ods.broken", "ods.good")
    assert [event.table for event in news.events] == ["ods.good"]
    assert list(news.problems) == ["ods.broken"]
    assert "broken" in news.problems["ods.broken"]


def test_a_broken_hint_does_not_matter(lake: Lake) -> None:
    orders = lake.table("ods.orders", commits=2)
    (orders.folder / "snapshot" / "LATEST").write_text("not a number")
    assert only(lake.moved("ods.orders")).last_snapshot == 2


def test_a_name_that_no_table_can_have_is_a_problem(lake: Lake) -> None:
    news = lake.moved("ods.$branch")
    assert list(news.problems) == ["ods.$branch"]


def test_a_snapshot_that_expires_while_it_is_read_is_left_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = lake.table("ods.orders", commits=3)
    table = lake.reader.table("ods.orders")
    spans = table.snapshots

    def expiring(after: int, upto: int) -> Any:
        found = spans(after, upto)
        orders.expire(1)
        return found

    monkeypatch.setattr(table, "snapshots", expiring)
    event = describe(table, 0, 3)
    assert event is not None
    assert (event.rows_written, event.snapshots_not_looked_into) == (2, 1)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("many"))
    template = lake.table("ods.t0", commits=1)
    for n in range(1, 300):
        _clone(template.folder, lake.warehouse / "ods.db" / f"t{n}")
    return lake


def _clone(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=lambda a, b: Path(b).hardlink_to(a))


def test_three_hundred_quiet_tables_are_looked_at_in_a_moment(many: Lake) -> None:
    names = [f"ods.t{n}" for n in range(300)]
    cursor = ProgressCursor.model_validate(
        {"tables": {name: {"snapshot": 1, "reported_at": NOW} for name in names}}
    )
    started = time.process_time()
    assert many.moved(*names, cursor=cursor, after=LATER).events == ()
    assert time.process_time() - started < 2

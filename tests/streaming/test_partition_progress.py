"""When partitions of real Paimon tables are told of, and what is read for it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_dagster import PaimonCatalog, ProgressPolicy
from lakehouse_dagster.paimon import TableReader
from lakehouse_dagster.streaming.partition_keys import PartitionKeys
from lakehouse_dagster.streaming.partition_progress import (
    Changed,
    PartitionCursor,
    PartitionReader,
    due,
    outside_now,
    room_for_each,
    shared_out,
    taken_in,
    told,
)
from lakehouse_dagster.streaming.partitions import TablePartitions
from lakehouse_dagster.streaming.progress import ProgressCursor
from tests.paimon.writing import Writer

POLICY = ProgressPolicy(partition_grace="10m", partition_quiet="30m")
DAYS = {"column": "dt", "every": "day", "format": "%Y%m%d", "start": "20260101"}
COLUMNS = pa.schema([("id", pa.int64()), ("dt", pa.string())])


def days(**more: Any) -> PartitionKeys:
    return PartitionKeys("dwd.t", TablePartitions.read({**DAYS, **more}), {"dt": "STRING"})


def dynamic() -> PartitionKeys:
    return PartitionKeys("dwd.t", TablePartitions.read({"dynamic": True}), {"dt": "STRING"})


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return first + timedelta(days=day - 1, hours=hour, minutes=minute)


MUCH_LATER = at(400)


def change(
    snapshot: int, committed_at: datetime, *changed: str, watermark: datetime | None = None
) -> Changed:
    return Changed(snapshot, committed_at, watermark, dict.fromkeys(changed, committed_at))


def after(
    keys: PartitionKeys, *changes: Changed, cursor: PartitionCursor | None = None, room: int = 99
) -> PartitionCursor:
    cursor = cursor or PartitionCursor()
    for changed in changes:
        cursor = taken_in(cursor, changed, keys, policy=POLICY, room=room)
    return cursor


def is_due(keys: PartitionKeys, cursor: PartitionCursor, now: datetime) -> list[str]:
    return due(cursor, keys, now=now, policy=POLICY)


# When


def test_a_day_is_told_of_ten_minutes_after_its_end_however_busy_it_was() -> None:
    keys = days()
    cursor = after(keys, *(change(n, at(2, n), "20260102") for n in range(1, 24)))
    assert is_due(keys, cursor, at(2, 23, 59)) == []
    assert is_due(keys, cursor, at(3, 0, 9)) == []
    assert is_due(keys, cursor, at(3, 0, 10)) == ["20260102"]
    assert cursor.pending["20260102"].snapshot == 23


def test_where_there_is_a_watermark_the_day_ends_when_it_passes() -> None:
    keys = days()
    cursor = after(keys, change(1, at(3, 0, 20), "20260102", watermark=at(2, 23, 50)))
    assert is_due(keys, cursor, at(3, 0, 20)) == []
    cursor = after(keys, change(2, at(3, 0, 30), watermark=at(3, 0, 10)), cursor=cursor)
    assert is_due(keys, cursor, at(3, 0, 30)) == ["20260102"]


def test_a_watermark_that_stands_still_does_not_keep_a_day_back_for_ever() -> None:
    keys = days()
    cursor = after(keys, change(1, at(3, 0, 20), "20260102", watermark=at(2, 23, 50)))
    assert is_due(keys, cursor, at(3, 0, 49)) == []
    assert is_due(keys, cursor, at(3, 0, 50)) == ["20260102"]


def test_late_data_is_told_of_once_when_it_has_come_to_rest() -> None:
    keys = days()
    cursor = told(after(keys, change(1, at(2, 12), "20260102")), ["20260102"])
    assert is_due(keys, cursor, at(9)) == []
    late = [change(n, at(3, 1, n), "20260102") for n in range(2, 30)]
    cursor = after(keys, *late, cursor=cursor)
    assert cursor.pending["20260102"].late
    assert is_due(keys, cursor, at(3, 1, 58)) == []
    assert is_due(keys, cursor, at(3, 1, 59)) == ["20260102"]


def test_late_data_that_never_rests_is_told_of_in_the_end() -> None:
    keys = days()
    cursor = told(after(keys, change(1, at(2, 12), "20260102")), ["20260102"])
    cursor = after(
        keys, *(change(n, at(3, 1, n), "20260102") for n in range(2, 400)), cursor=cursor
    )
    assert is_due(keys, cursor, at(3, 7, 1)) == []
    assert is_due(keys, cursor, at(3, 7, 2)) == ["20260102"]


def test_a_day_that_dagster_does_not_have_yet_waits_although_it_rests() -> None:
    keys = days()
    cursor = after(keys, change(1, at(2, 1), "20260102"))
    assert is_due(keys, cursor, at(2, 23)) == []
    open_too = days(end_offset=1)
    assert is_due(open_too, cursor, at(2, 1, 29)) == []
    assert is_due(open_too, cursor, at(2, 1, 30)) == ["20260102"]


def test_the_day_ends_where_the_users_are() -> None:
    keys = days(timezone="Asia/Shanghai")
    cursor = after(keys, change(1, at(2, 2), "20260102"))
    assert is_due(keys, cursor, at(2, 16, 9)) == []
    assert is_due(keys, cursor, at(2, 16, 10)) == ["20260102"]


def test_what_has_no_window_is_told_of_when_it_rests_or_has_waited_long() -> None:
    keys = dynamic()
    cursor = after(keys, change(1, at(1), "eu", "us"))
    assert is_due(keys, cursor, at(1, 0, 29)) == []
    assert is_due(keys, cursor, at(1, 0, 30)) == ["eu", "us"]
    cursor = told(cursor, ["eu"])
    busy = after(keys, *(change(n, at(1, 0, 10 * n), "us") for n in range(1, 60)), cursor=cursor)
    assert is_due(keys, busy, at(1, 5, 59)) == []
    assert is_due(keys, busy, at(1, 6)) == ["us"]


def test_the_oldest_comes_first_and_each_table_has_its_turn() -> None:
    keys = days()
    cursor = after(keys, change(1, at(20), "20260103", "20260101", "20260102"))
    assert is_due(keys, cursor, at(21)) == ["20260101", "20260102", "20260103"]
    waiting = {"ods.a": ["1", "2", "3", "4"], "dwd.b": ["1"], "app.c": ["1", "2"]}
    assert shared_out(waiting, 5) == {"ods.a": ["1", "2"], "dwd.b": ["1"], "app.c": ["1", "2"]}
    assert shared_out(waiting, 1) == {"ods.a": ["1"]}
    assert shared_out({"a": []}, 3) == {}


def test_room_is_shared_among_tables() -> None:
    assert [room_for_each(n) for n in (0, 1, 4, 10, 300)] == [500, 500, 500, 200, 20]


def test_what_does_not_fit_is_taken_in_later_from_where_it_stopped() -> None:
    keys = dynamic()
    whole = change(7, at(1), *(f"p{n:02}" for n in range(50)))
    cursor = after(keys, change(6, at(1), "p48"), whole, room=20)
    assert len(cursor.pending) == 20
    assert (cursor.seen, cursor.within) == (6, "p18")
    seen = set(cursor.pending)
    while cursor.seen < 7:
        cursor = after(keys, whole, cursor=told(cursor, list(cursor.pending)), room=20)
        seen |= set(cursor.pending)
    assert (cursor.seen, cursor.within) == (7, None)
    assert seen == set(whole.changed_at)


def test_a_cursor_is_small_and_survives_being_stored() -> None:
    keys = days()
    every_day = [(at(1) + timedelta(days=n)).strftime("%Y%m%d") for n in range(500)]
    cursor = after(keys, change(1, at(501), *every_day), room=room_for_each(1))
    stored = ProgressCursor(partitions={"dwd.t": cursor}).stored()
    assert len(stored) < 25_000
    assert ProgressCursor.parse(stored).partitions["dwd.t"] == cursor


# What is read


@dataclass
class Reading:
    """One table, and a cursor that goes on from tick to tick."""

    table: TableReader
    writer: Writer
    keys: PartitionKeys
    cursor: PartitionCursor = field(default_factory=PartitionCursor)
    known: Set[str] = frozenset()

    def __post_init__(self) -> None:
        self.reader = PartitionReader(POLICY)

    def write(self, *values: str | None) -> None:
        self.writer.append([{"id": n, "dt": value} for n, value in enumerate(values)])

    def tick(self, room: int = 99, now: datetime = MUCH_LATER) -> PartitionCursor:
        self.cursor = self.reader.catch_up(
            self.table, self.keys, self.cursor, now=now, room=room, known=lambda: self.known
        )
        return self.cursor

    def versions(self) -> dict[str, int]:
        return {key: item.snapshot for key, item in self.cursor.pending.items()}

    def all_told(self) -> None:
        self.cursor = told(self.cursor, list(self.cursor.pending))


@pytest.fixture
def reading(warehouse: Path) -> Reading:
    writer = Writer(warehouse, "dwd.t", COLUMNS, partition_keys=("dt",))
    return Reading(PaimonCatalog(str(warehouse)).open().table("dwd.t"), writer, dynamic())


def test_the_version_is_the_newest_snapshot_that_changed_the_partition(reading: Reading) -> None:
    reading.write("a", "b")
    reading.write("b")
    reading.write("c", None)
    reading.tick()
    assert reading.versions() == {"a": 1, "b": 2, "c": 3, "__DEFAULT_PARTITION__": 3}
    reading.all_told()
    reading.write("a")
    reading.tick()
    assert reading.versions() == {"a": 4}


def test_nothing_new_reads_nothing(reading: Reading) -> None:
    assert reading.tick().seen == 0
    reading.write("a")
    reading.tick()
    reading.all_told()
    before = reading.cursor
    assert reading.tick() == before


def test_reading_stops_when_there_was_enough_and_goes_on_later(reading: Reading) -> None:
    for value in ("a", "b", "c"):
        reading.write(value)
    left = iter([False, False, True])
    cursor = reading.reader.catch_up(
        reading.table,
        reading.keys,
        reading.cursor,
        now=MUCH_LATER,
        room=99,
        known=set,
        enough=lambda: next(left),
    )
    assert (cursor.seen, set(cursor.pending)) == (2, {"a", "b"})
    reading.cursor = cursor
    reading.tick()
    assert reading.versions() == {"a": 1, "b": 2, "c": 3}


def test_at_first_sight_what_expired_counts_as_of_the_oldest_snapshot(reading: Reading) -> None:
    for value in ("a", "b", "c", "d"):
        reading.write(value)
    reading.writer.expire(1, 2)
    reading.tick()
    assert reading.versions() == {"a": 3, "b": 3, "c": 3, "d": 4}


def test_a_lost_cursor_does_not_repeat_what_dagster_has(reading: Reading) -> None:
    for value in ("a", "b", "c", "d"):
        reading.write(value)
    reading.writer.expire(1, 2)
    reading.known = {"a", "c"}
    reading.tick()
    assert reading.versions() == {"b": 3, "d": 4}


def test_after_a_gap_what_has_new_files_is_told_of(reading: Reading) -> None:
    reading.write("a")
    reading.write("b")
    reading.tick()
    reading.all_told()
    reading.write("c")
    reading.write("d")
    reading.writer.expire(1, 2, 3)
    # Paimon does not say in which time zone a file's time is: half a day is looked back.
    earlier = {"seen_at": reading.cursor.seen_at}
    later = {"seen_at": datetime.now(timezone.utc) + timedelta(days=2)}
    before = reading.cursor
    found = {}
    for name, seen_at in (("earlier", earlier), ("later", later)):
        reading.cursor = before.model_copy(update=seen_at)
        reading.tick()
        assert reading.cursor.seen == 4
        found[name] = reading.versions()
    assert found == {"earlier": {"a": 4, "b": 4, "c": 4, "d": 4}, "later": {}}


def test_many_partitions_come_in_portions_and_each_once(reading: Reading) -> None:
    names = [f"p{n:05}" for n in range(600)]
    reading.write(*names)
    reading.write("q")
    reading.writer.expire(1)
    met: list[str] = []
    ticks = 0
    while reading.cursor.seen < 2:
        reading.tick(room=100)
        assert len(reading.cursor.pending) <= 100
        portion = sorted(reading.cursor.pending)[:40]
        met += portion
        reading.cursor = told(reading.cursor, portion)
        ticks += 1
        assert ticks < 40
    met += sorted(reading.cursor.pending)
    assert met == [*names, "q"]


def test_a_listing_is_read_once_while_it_is_worked_through(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading.write(*(f"p{n:03}" for n in range(100)))
    reading.write("q")
    reading.writer.expire(1)
    asked: list[int] = []
    partitions = reading.table.partitions

    def counting(snapshot: int) -> Any:
        asked.append(snapshot)
        return partitions(snapshot)

    monkeypatch.setattr(reading.table, "partitions", counting)
    while reading.cursor.seen < 2:
        reading.tick(room=20)
        reading.all_told()
    assert asked == [2]
    assert reading.reader.listings == {}


def test_what_expires_while_it_is_worked_through_is_gone_on_with(reading: Reading) -> None:
    reading.write(*(f"p{n:03}" for n in range(30)))
    reading.write("p000")
    met: set[str] = set()
    reading.tick(room=20)
    met |= set(reading.cursor.pending)
    reading.all_told()
    reading.writer.expire(1)
    while reading.cursor.seen < 2:
        reading.tick(room=20)
        met |= set(reading.cursor.pending)
        last = reading.versions()
        reading.all_told()
    assert met == {f"p{n:03}" for n in range(30)}
    assert set(last.values()) == {2}


def test_a_table_made_anew_begins_anew(reading: Reading, warehouse: Path) -> None:
    reading.write("a")
    reading.write("b")
    reading.tick()
    reading.all_told()
    fresh = Writer(warehouse, "dwd.fresh", COLUMNS, partition_keys=("dt",))
    fresh.append([{"id": 1, "dt": "b"}])
    reading.writer.folder.rename(warehouse / "dropped")
    fresh.folder.rename(reading.writer.folder)
    reading.tick()
    assert reading.versions() == {"b": 1}


def test_another_declaration_begins_anew(reading: Reading) -> None:
    reading.write("20260102", "x")
    reading.tick()
    reading.all_told()
    reading.keys = days()
    reading.tick()
    assert reading.versions() == {"20260102": 1}
    assert reading.cursor.outside == ("dt=x",)


def test_partitions_outside_are_named_and_not_dropped_silently(reading: Reading) -> None:
    reading.keys = days()
    reading.write("20260102", "20251231", None)
    reading.tick()
    assert list(reading.versions()) == ["20260102"]
    assert list(reading.cursor.outside) == ["dt=20251231", "dt=NULL"]
    assert reading.cursor.outside_count == 2
    reading.writer.truncate({"dt": "20251231"})
    reading.write("30260101", "yesterday")
    reading.tick()
    assert list(reading.cursor.outside) == ["dt=30260101", "dt=NULL", "dt=yesterday"]
    assert outside_now(reading.table, reading.keys, at(400)) == reading.cursor.outside


def test_tomorrow_is_not_outside_but_next_year_is(reading: Reading) -> None:
    reading.keys = days()
    reading.write("20260103", "20270101")
    reading.tick(now=at(2, 12))
    assert reading.cursor.outside == ("dt=20270101",)
    assert is_due(reading.keys, reading.cursor, at(2, 12)) == []


def test_a_compaction_changes_no_partition(reading: Reading) -> None:
    reading.write("a")
    document = reading.writer.folder / "snapshot" / "snapshot-1"
    document.write_text(document.read_text().replace("APPEND", "COMPACT"))
    reading.tick()
    assert (reading.versions(), reading.cursor.seen) == ({}, 1)

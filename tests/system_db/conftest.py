"""A fresh system database for each test, on SQLite and on Postgres, and a clock to be moved."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakehouse_dagster.system_db import Database, SystemDatabase
from tests.support.postgres import PostgresServer, running_postgres


class MovedClock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real server for all tests that stop nothing; each has its own database."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a system database could be, on each of the backends."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lakehouse.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Where a system database could be: a file that does not exist yet."""
    return f"sqlite:///{tmp_path}/lakehouse.db"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with SystemDatabase(url).connect() as database:
        yield database


@pytest.fixture
def sqlite_db(sqlite_url: str) -> Iterator[Database]:
    with SystemDatabase(sqlite_url).connect() as database:
        yield database

"""A fresh system database for each test, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakehouse_dagster.system_db import Database, SystemDatabase


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


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/lakehouse.db"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with SystemDatabase(url).connect() as database:
        yield database

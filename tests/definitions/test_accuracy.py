"""The truth, on cases small enough to work out by hand, and what the check finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from definitions import accuracy
from definitions.accuracy import AccuracyReport, check_accuracy
from definitions.business import AGENT, CITY, WORK_ORDER, BusinessSettings
from definitions.comparison import compare
from definitions.event_log import EventLog
from definitions.simulator import Pace, Simulator, SimulatorSettings
from definitions.truth import EXPECTED, connect, load_events
from lakehouse_dagster.errors import ConfigurationError

MORNING = "2026-01-01 09:15:00.000"
EVENING = "2026-01-01 23:59:59.999"
NEXT_DAY = "2026-01-02 00:00:00.000"


def lines(*rows: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def order(
    order_id: int,
    version: int,
    status: str,
    *,
    agent: int = 1,
    city: int = 1,
    amount: float = 100.0,
    at: str = MORNING,
) -> dict[str, Any]:
    return {
        "order_id": order_id,
        "agent_id": agent,
        "city_id": city,
        "status": status,
        "amount": amount,
        "submitted_at": at,
        "updated_at": at,
        "version": version,
    }


def agent(agent_id: int, version: int, name: str, team: str) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "agent_name": name,
        "team": team,
        "updated_at": MORNING,
        "version": version,
    }


def city(city_id: int, version: int, name: str, region: str) -> dict[str, Any]:
    return {
        "city_id": city_id,
        "city_name": name,
        "region": region,
        "updated_at": MORNING,
        "version": version,
    }


EVENTS = {
    WORK_ORDER: lines(
        order(1, 2, "approved", amount=120.5),  # arrives before the version that it replaces
        order(1, 1, "submitted"),
        order(1, 2, "approved", amount=120.5),  # repeated
        order(2, 1, "submitted", agent=2, at=EVENING),
        order(2, 2, "changed", agent=1, at=EVENING),  # moves to agent 1
        order(3, 1, "submitted", agent=2),
        order(3, 2, "cancelled", agent=2),
        order(4, 1, "submitted", at=NEXT_DAY),
        order(4, 2, "cancelled", at=NEXT_DAY),
        order(4, 3, "approved", amount=7.25, at=NEXT_DAY),  # taken up again
        order(5, 1, "submitted", agent=9, city=2, at=NEXT_DAY),  # agent 9 is not known
    ),
    AGENT: lines(
        agent(1, 1, "Wang 001", "north"), agent(1, 3, "Wang 001", "east"), agent(2, 1, "Li", "west")
    ),
    CITY: lines(city(1, 1, "Beijing", "Bohai Rim"), city(2, 1, "Shanghai", "Yangtze Delta")),
}


def answer(table: str, columns: str) -> list[tuple[Any, ...]]:
    connection = connect(EVENTS)
    return connection.execute(f"SELECT {columns} FROM ({EXPECTED[table]}) ORDER BY ALL").fetchall()


def test_the_truth_keeps_the_newest_version_of_every_order() -> None:
    assert answer("ods.work_order", "order_id, version, status, agent_id, amount") == [
        (1, 2, "approved", 1, Decimal("120.50")),
        (2, 2, "changed", 1, Decimal("100.00")),
        (3, 2, "cancelled", 2, Decimal("100.00")),
        (4, 3, "approved", 1, Decimal("7.25")),
        (5, 1, "submitted", 9, Decimal("100.00")),
    ]


def test_the_truth_widens_what_is_not_cancelled_by_the_newest_agent_and_city() -> None:
    assert answer("dwd.work_order", "dt, order_id, agent_name, team, city_name, order_version") == [
        ("20260101", 1, "Wang 001", "east", "Beijing", 2),
        ("20260101", 2, "Wang 001", "east", "Beijing", 2),
        ("20260102", 4, "Wang 001", "east", "Beijing", 3),
        ("20260102", 5, None, None, "Shanghai", 1),
    ]


def test_the_truth_of_agents_and_days_has_no_empty_groups() -> None:
    assert answer("app.agent_day", "*") == [
        ("20260101", 1, "Wang 001", "east", 2, 1, Decimal("220.50"), Decimal("120.50")),
        ("20260102", 1, "Wang 001", "east", 1, 1, Decimal("7.25"), Decimal("7.25")),
        ("20260102", 9, None, None, 1, 0, Decimal("100.00"), Decimal("0.00")),
    ]


def test_the_truth_of_cities_and_hours() -> None:
    assert answer("app.city_hour", "dt, hh, city_id, city_name, orders, agents, amount") == [
        ("20260101", "09", 1, "Beijing", 1, 1, Decimal("120.50")),
        ("20260101", "23", 1, "Beijing", 1, 1, Decimal("100.00")),
        ("20260102", "00", 1, "Beijing", 1, 1, Decimal("7.25")),
        ("20260102", "00", 2, "Shanghai", 1, 1, Decimal("100.00")),
    ]


def test_the_truth_of_no_events_is_no_rows() -> None:
    connection = connect({})
    assert [connection.execute(sql).fetchall() for sql in EXPECTED.values()] == [[]] * 6


CITIES = "SELECT * FROM newest_city"


def cities(*rows: tuple[int, str, str]) -> pa.Table:
    """Rows of ods.city as Paimon gives them: another order of columns, milliseconds, INT keys."""
    return pa.table(
        {
            "version": pa.array([1] * len(rows), pa.int64()),
            "city_id": pa.array([row[0] for row in rows], pa.int64()),
            "city_name": pa.array([row[1] for row in rows], pa.string()),
            "region": pa.array([row[2] for row in rows], pa.string()),
            "updated_at": pa.array([datetime(2026, 1, 1, 9, 15)] * len(rows), pa.timestamp("ms")),
        }
    )


BEIJING, SHANGHAI = (1, "Beijing", "Bohai Rim"), (2, "Shanghai", "Yangtze Delta")


def test_equal_rows_in_any_order_are_equal() -> None:
    result = compare(connect(EVENTS), "ods.city", CITIES, cities(SHANGHAI, BEIJING))
    assert result.equal
    assert (result.rows_expected, result.rows_found) == (2, 2)
    assert result.describe() == "ods.city: equal, 2 rows"


def test_a_missing_row_is_found() -> None:
    result = compare(connect(EVENTS), "ods.city", CITIES, cities(BEIJING))
    assert (result.equal, result.missing_rows, result.surplus_rows) == (False, 1, 0)
    assert result.missing_samples[0]["city_name"] == "Shanghai"


def test_a_ghost_row_is_found() -> None:
    result = compare(
        connect(EVENTS), "ods.city", CITIES, cities(BEIJING, SHANGHAI, (3, "Wuhan", "Inland"))
    )
    assert (result.equal, result.missing_rows, result.surplus_rows) == (False, 0, 1)
    assert result.surplus_samples[0]["city_id"] == 3


def test_a_row_that_is_there_twice_is_found() -> None:
    result = compare(connect(EVENTS), "ods.city", CITIES, cities(BEIJING, SHANGHAI, SHANGHAI))
    assert (result.equal, result.missing_rows, result.surplus_rows) == (False, 0, 1)


def test_a_wrong_value_is_one_row_missing_and_one_surplus() -> None:
    result = compare(
        connect(EVENTS), "ods.city", CITIES, cities(BEIJING, (2, "Shanghai", "Inland"))
    )
    assert (result.equal, result.missing_rows, result.surplus_rows) == (False, 1, 1)
    assert "surplus {'city_id': 2" in result.describe()


def test_null_is_not_an_empty_text_and_equals_null() -> None:
    connection = connect({AGENT: lines(agent(1, 1, "Wang", "north") | {"team": None})})
    sql = "SELECT agent_name, team FROM newest_agent"
    right = pa.table({"agent_name": ["Wang"], "team": pa.array([None], pa.string())})
    wrong = pa.table({"agent_name": ["Wang"], "team": [""]})
    assert compare(connection, "ods.agent", sql, right).equal
    assert not compare(connection, "ods.agent", sql, wrong).equal


def test_a_table_without_snapshot_misses_all_its_rows() -> None:
    result = compare(connect(EVENTS), "ods.city", CITIES, None)
    assert (result.equal, result.missing_rows, result.rows_found) == (False, 2, 0)


def test_other_columns_are_a_problem_of_their_own() -> None:
    result = compare(connect(EVENTS), "ods.city", CITIES, pa.table({"city_id": [1]}))
    assert not result.equal
    assert "has columns ['city_id']" in result.describe()


class FakeLake:
    """Tables that hold the truth after ``lag`` looks, with what a test plants in them."""

    def __init__(self, folder: Path, lag: int = 0) -> None:
        self._log = EventLog(folder)
        self._lag = lag
        self.looks = 0
        self.reads: list[str] = []
        self.planted: dict[str, pa.Table] = {}
        self.later: dict[str, pa.Table] = {}

    def latest_snapshot_id(self, table: str) -> int | None:
        self.looks += table == "ods.work_order"  # the first that a look asks for
        if self.looks <= self._lag:
            return None
        return 2 if table in self.later else 1

    def read(self, table: str, snapshot_id: int) -> pa.Table:
        self.reads.append(table)
        if snapshot_id == 2:
            return self.later[table]
        return self.planted.get(table, self.truth(table))

    def truth(self, table: str) -> pa.Table:
        last = self._log.last_round()
        assert last is not None
        return load_events(self._log, last).execute(EXPECTED[table]).to_arrow_table()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(accuracy, "POLL_SECONDS", 0.01)
    business = BusinessSettings(seed=5, orders_per_round=10, order_changes_per_round=10)
    with Simulator(tmp_path, SimulatorSettings(business, Pace(0))) as simulator:
        simulator.run(4)
    return tmp_path


def test_tables_that_hold_the_truth_are_equal_and_read_once(folder: Path) -> None:
    lake = FakeLake(folder)
    report = check_accuracy(folder, lake)
    assert report.equal
    assert report.round_number == 3
    assert report.stayed_equal is None
    assert sorted(lake.reads) == sorted(EXPECTED)
    assert report.snapshots == dict.fromkeys(EXPECTED, 1)


def test_the_check_waits_for_tables_that_lag_behind(folder: Path) -> None:
    heard: list[AccuracyReport] = []
    report = check_accuracy(folder, FakeLake(folder, lag=3), on_wait=heard.append)
    assert report.equal
    assert len(heard) == 3
    assert not any(waiting.equal for waiting in heard)


def test_planted_rows_are_reported_by_table(folder: Path) -> None:
    lake = FakeLake(folder)
    orders, days = lake.truth("dwd.work_order"), lake.truth("app.agent_day")
    lake.planted["dwd.work_order"] = orders.slice(2)
    lake.planted["app.agent_day"] = pa.concat_tables([days, days.slice(0, 1)])
    report = check_accuracy(folder, lake, timeout_seconds=0)
    found = {t.table: (t.missing_rows, t.surplus_rows) for t in report.tables if not t.equal}
    assert found == {"dwd.work_order": (2, 0), "app.agent_day": (0, 1)}
    assert report.describe().startswith("NOT equal after round 3")


def test_the_check_compares_again_two_checkpoints_later(folder: Path) -> None:
    counts = iter([10, 10, 11, 12])
    report = check_accuracy(
        folder, FakeLake(folder), checkpoint_counts=lambda: {"dwd_work_order": next(counts)}
    )
    assert report.stayed_equal
    assert next(counts, None) is None
    assert "2 checkpoints later still equal" in report.describe()


def test_tables_that_were_right_only_for_a_moment_do_not_pass(folder: Path) -> None:
    lake = FakeLake(folder)

    def counts() -> dict[str, int]:
        lake.later["app.city_hour"] = lake.truth("app.city_hour").slice(1)
        counted[0] += 2
        return {"app_city_hour": counted[0]}

    counted = [0]
    report = check_accuracy(folder, lake, checkpoint_counts=counts)
    assert report.stayed_equal is False
    assert not report.equal
    assert [t.table for t in report.tables if not t.equal] == ["app.city_hour"]


def test_a_job_whose_checkpoints_stand_still_is_named(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="app_city_hour: fewer than 2 checkpoints"):
        check_accuracy(
            folder,
            FakeLake(folder),
            timeout_seconds=0.05,
            checkpoint_counts=lambda: {"app_city_hour": 4},
        )


def test_there_is_nothing_to_check_before_the_first_round(tmp_path: Path) -> None:
    EventLog(tmp_path).create()
    with pytest.raises(ConfigurationError, match="No round was written"):
        check_accuracy(tmp_path, FakeLake(tmp_path))

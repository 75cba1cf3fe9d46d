"""The simulated business: deterministic, and as awkward as promised."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from definitions.business import (
    AGENT,
    CANCELLED,
    CITY,
    KINDS,
    WORK_ORDER,
    Business,
    BusinessSettings,
    Round,
    WorkOrder,
)

SETTINGS = BusinessSettings(
    seed=7, agents=5, cities=3, orders_per_round=10, order_changes_per_round=30, orders_max=100
)


def rounds(count: int, settings: BusinessSettings = SETTINGS) -> list[Round]:
    business = Business(settings)
    return [business.next_round() for _ in range(count)]


def orders(made: list[Round]) -> list[WorkOrder]:
    return [row for r in made for row in r.events[WORK_ORDER] if isinstance(row, WorkOrder)]


def test_the_same_seed_makes_the_same_bytes_and_another_seed_others() -> None:
    def lines(seed: int) -> list[bytes]:
        made = rounds(15, replace(SETTINGS, seed=seed))
        return [r.json_lines(kind) for r in made for kind in KINDS]

    assert lines(7) == lines(7)
    assert lines(7) != lines(8)


def test_a_seed_means_the_same_events_on_every_machine() -> None:
    first = sorted(rounds(1)[0].json_lines(WORK_ORDER).splitlines())[0]
    assert json.loads(first) == {
        "order_id": 1,
        "agent_id": 5,
        "city_id": 2,
        "status": "approved",
        "amount": 471134.27,
        "submitted_at": "2026-01-01 00:09:45.916",
        "updated_at": "2026-01-01 00:12:29.526",
        "version": 3,
    }


def test_two_rows_of_the_same_version_are_the_same_row() -> None:
    by_version: dict[tuple[int, int], set[WorkOrder]] = {}
    for order in orders(rounds(40)):
        by_version.setdefault((order.order_id, order.version), set()).add(order)
    assert {len(rows) for rows in by_version.values()} == {1}


def test_the_moment_of_submission_never_changes() -> None:
    moments: dict[int, set[object]] = {}
    for order in orders(rounds(40)):
        moments.setdefault(order.order_id, set()).add(order.submitted_at)
    assert {len(of_order) for of_order in moments.values()} == {1}


def test_events_come_repeated_late_and_out_of_order() -> None:
    made = rounds(40)
    copies = Counter((o.order_id, o.version) for o in orders(made))
    assert max(copies.values()) > 1

    newest: dict[int, int] = {}
    overtaken = 0
    for order in orders(made):
        overtaken += order.version < newest.get(order.order_id, 0)
        newest[order.order_id] = max(order.version, newest.get(order.order_id, 0))
    assert overtaken > 50

    first_seen: dict[int, int] = {}
    for order in orders(made):
        first_seen.setdefault(order.order_id, order.version)
    assert max(first_seen.values()) > 1


def test_orders_are_cancelled_and_taken_up_again_and_move_between_agents_and_cities() -> None:
    histories: dict[int, dict[int, WorkOrder]] = {}
    for order in orders(rounds(60)):
        histories.setdefault(order.order_id, {})[order.version] = order
    steps = [
        (history[version], history[version + 1])
        for history in histories.values()
        for version in history
        if version + 1 in history
    ]
    assert any(after.status == CANCELLED for _, after in steps)
    assert any(b.status == CANCELLED and a.status != CANCELLED for b, a in steps)
    assert any(before.agent_id != after.agent_id for before, after in steps)
    assert any(before.city_id != after.city_id for before, after in steps)
    assert all(before.updated_at <= after.updated_at for before, after in steps)


def test_agents_and_cities_change() -> None:
    made = rounds(60)
    for kind in (AGENT, CITY):
        versions = [row.version for r in made for row in r.events[kind]]
        assert min(versions) == 1
        assert max(versions) > 2


def test_no_order_is_submitted_beyond_the_bound_but_changes_go_on() -> None:
    made = rounds(40)
    assert max(order.order_id for order in orders(made)) == SETTINGS.orders_max
    assert len(orders(made[-5:])) > 100


def test_without_lateness_and_repeats_every_version_comes_once_and_in_its_round() -> None:
    settings = replace(SETTINGS, late_share=0.0, repeated_share=0.0)
    made = rounds(5, settings)
    assert [len(r.events[WORK_ORDER]) for r in made] == [40] * 5
    assert set(Counter((o.order_id, o.version) for o in orders(made)).values()) == {1}


def test_a_business_without_agents_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one agent"):
        BusinessSettings(agents=0)

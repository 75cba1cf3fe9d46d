"""The made-up business behind the demo: agents, cities and viewing tickets that change.

Pure and deterministic: the same settings give the same rounds of events, on any machine. Whoever
wants to go on after a restart builds a new ``Business`` and asks for the earlier rounds again.

Every event is the whole row as its owner saw it, with a ``version`` that counts the changes of that
row. What makes the events hard is how they are *delivered*: some rounds late (a row's first version
may come after its third), some twice, and shuffled within a file.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

WORK_ORDER = "work_order"
AGENT = "agent"
CITY = "city"
KINDS = (WORK_ORDER, AGENT, CITY)
"""The kinds of events; each has its own folder of input files and its own ODS table."""

SUBMITTED, APPROVED, CHANGED, CANCELLED = "submitted", "approved", "changed", "cancelled"

_TEAMS = ("north", "south", "east", "west", "new homes", "rentals")
_REGIONS = ("Bohai Rim", "Yangtze Delta", "Pearl River", "Inland")
_CITY_NAMES = (
    *("Beijing", "Shanghai", "Shenzhen", "Guangzhou", "Hangzhou", "Chengdu", "Nanjing", "Tianjin"),
    *("Wuhan", "Xi'an", "Suzhou", "Qingdao", "Changsha", "Dalian", "Xiamen", "Ningbo"),
)
_FAMILY_NAMES = ("Wang", "Li", "Zhang", "Liu", "Chen", "Yang", "Zhao", "Huang", "Zhou", "Wu")


@dataclass(frozen=True)
class BusinessSettings:
    """What the business looks like; part of a simulation's identity, like its seed.

    Shares are probabilities between 0 and 1. ``round_minutes`` is simulated time: with 30, one day
    of submission takes forty-eight rounds. After ``orders_max`` orders no new ones are submitted,
    and the existing ones go on changing: tables and state stay bounded however long it runs.
    """

    seed: int = 1
    start_at: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    round_minutes: int = 30
    agents: int = 40
    cities: int = 8
    orders_per_round: int = 50
    order_changes_per_round: int = 50
    agent_changes_per_round: float = 1.0
    city_changes_per_round: float = 0.2
    orders_max: int = 10_000
    repeated_share: float = 0.08
    late_share: float = 0.10
    late_rounds_max: int = 4

    def __post_init__(self) -> None:
        if self.agents < 1 or self.cities < 1 or self.orders_max < 1:
            raise ValueError("A business needs at least one agent, one city and one order.")
        if self.late_rounds_max < 1:
            raise ValueError("late_rounds_max counts rounds and must be at least 1.")


@dataclass(frozen=True)
class WorkOrder:
    order_id: int
    agent_id: int
    city_id: int
    status: str
    amount_cents: int
    submitted_at: datetime
    updated_at: datetime
    version: int


@dataclass(frozen=True)
class Agent:
    agent_id: int
    agent_name: str
    team: str
    updated_at: datetime
    version: int


@dataclass(frozen=True)
class City:
    city_id: int
    city_name: str
    region: str
    updated_at: datetime
    version: int


Row = WorkOrder | Agent | City


@dataclass(frozen=True)
class Round:
    """The events delivered in one round, in the order in which they are written."""

    number: int
    events: Mapping[str, tuple[Row, ...]]

    def json_lines(self, kind: str) -> bytes:
        """The round's events of one kind as Flink's ``json`` format reads them, a line an event."""
        return b"".join(_json_line(row) for row in self.events.get(kind, ()))


class Business:
    """Makes the rounds of one simulation, one after the other from round 0."""

    def __init__(self, settings: BusinessSettings) -> None:
        self._settings = settings
        self._next_round = 0
        self._orders: list[WorkOrder] = []
        self._agents: dict[int, Agent] = {}
        self._cities: dict[int, City] = {}
        self._late: dict[int, list[tuple[str, Row]]] = defaultdict(list)

    def next_round(self) -> Round:
        """Let the business live through one round and deliver what is due."""
        number = self._next_round
        self._next_round += 1
        rng = random.Random(f"{self._settings.seed}/{number}")  # noqa: S311 (not for secrets)
        started_at = self._settings.start_at + timedelta(
            minutes=self._settings.round_minutes * number
        )
        happened: list[tuple[str, Row]] = []
        happened += [(CITY, row) for row in self._live_cities(rng, number, started_at)]
        happened += [(AGENT, row) for row in self._live_agents(rng, number, started_at)]
        happened += [(WORK_ORDER, row) for row in self._submit_orders(rng, started_at)]
        happened += [(WORK_ORDER, row) for row in self._change_orders(rng, started_at)]
        return Round(number, self._deliver(rng, number, happened))

    def _live_cities(self, rng: random.Random, number: int, at: datetime) -> list[City]:
        if number == 0:
            for city_id in range(1, self._settings.cities + 1):
                name = _CITY_NAMES[(city_id - 1) % len(_CITY_NAMES)]
                self._cities[city_id] = City(city_id, name, rng.choice(_REGIONS), at, 1)
            return list(self._cities.values())
        changed = []
        for _ in range(_count(rng, self._settings.city_changes_per_round)):
            city = rng.choice(list(self._cities.values()))
            renamed = city.city_name.split(" (")[0] + rng.choice(("", " (metro)", " (district)"))
            city = replace(
                city,
                city_name=renamed,
                region=rng.choice(_REGIONS),
                updated_at=self._moment(rng, at),
                version=city.version + 1,
            )
            self._cities[city.city_id] = city
            changed.append(city)
        return changed

    def _live_agents(self, rng: random.Random, number: int, at: datetime) -> list[Agent]:
        if number == 0:
            for agent_id in range(1, self._settings.agents + 1):
                name = f"{rng.choice(_FAMILY_NAMES)} {agent_id:03d}"
                self._agents[agent_id] = Agent(agent_id, name, rng.choice(_TEAMS), at, 1)
            return list(self._agents.values())
        changed = []
        for _ in range(_count(rng, self._settings.agent_changes_per_round)):
            agent = rng.choice(list(self._agents.values()))
            name = agent.agent_name
            if rng.random() < 0.2:
                name = f"{rng.choice(_FAMILY_NAMES)} {agent.agent_id:03d}"
            agent = replace(
                agent,
                agent_name=name,
                team=rng.choice(_TEAMS),
                updated_at=self._moment(rng, at),
                version=agent.version + 1,
            )
            self._agents[agent.agent_id] = agent
            changed.append(agent)
        return changed

    def _submit_orders(self, rng: random.Random, at: datetime) -> list[WorkOrder]:
        room = self._settings.orders_max - len(self._orders)
        submitted = []
        for _ in range(min(room, self._settings.orders_per_round)):
            submitted_at = self._moment(rng, at)
            order = WorkOrder(
                order_id=len(self._orders) + 1,
                agent_id=rng.randint(1, self._settings.agents),
                city_id=rng.randint(1, self._settings.cities),
                status=SUBMITTED,
                amount_cents=rng.randrange(1_000, 100_000_000),
                submitted_at=submitted_at,
                updated_at=submitted_at,
                version=1,
            )
            self._orders.append(order)
            submitted.append(order)
        return submitted

    def _change_orders(self, rng: random.Random, at: datetime) -> list[WorkOrder]:
        changed = []
        for _ in range(self._settings.order_changes_per_round if self._orders else 0):
            position = rng.randrange(len(self._orders))
            order = self._changed(rng, self._orders[position])
            order = replace(
                order,
                # A change cannot come before the submission it changes.
                updated_at=max(self._moment(rng, at), order.updated_at),
                version=order.version + 1,
            )
            self._orders[position] = order
            changed.append(order)
        return changed

    def _changed(self, rng: random.Random, order: WorkOrder) -> WorkOrder:
        """One change of one order: most are approved; a cancelled order may be taken up again."""
        what = rng.random()
        if what < 0.45:
            return replace(order, status=APPROVED)
        if what < 0.65:
            return replace(order, status=CANCELLED)
        if what < 0.80:
            return replace(order, status=CHANGED, agent_id=rng.randint(1, self._settings.agents))
        if what < 0.90:
            return replace(order, status=CHANGED, city_id=rng.randint(1, self._settings.cities))
        return replace(order, status=CHANGED, amount_cents=rng.randrange(1_000, 100_000_000))

    def _deliver(
        self, rng: random.Random, number: int, happened: list[tuple[str, Row]]
    ) -> dict[str, tuple[Row, ...]]:
        """Hold back what is late, say again what is repeated, and shuffle."""
        due = self._late.pop(number, [])
        for kind, row in happened:
            if rng.random() < self._settings.late_share:
                self._late[self._later(rng, number)].append((kind, row))
            else:
                due.append((kind, row))
            if rng.random() < self._settings.repeated_share:
                again = number if rng.random() < 0.5 else self._later(rng, number)
                (due if again == number else self._late[again]).append((kind, row))
        rng.shuffle(due)
        return {kind: tuple(row for k, row in due if k == kind) for kind in KINDS}

    def _later(self, rng: random.Random, number: int) -> int:
        return number + rng.randint(1, self._settings.late_rounds_max)

    def _moment(self, rng: random.Random, at: datetime) -> datetime:
        return at + timedelta(milliseconds=rng.randrange(self._settings.round_minutes * 60_000))


def _count(rng: random.Random, mean: float) -> int:
    """An integer with this mean: 1.5 gives 1 or 2, each half of the time."""
    whole = int(mean)
    return whole + (rng.random() < mean - whole)


def _json_line(row: Row) -> bytes:
    values: dict[str, Any] = {}
    for name, value in asdict(row).items():
        if isinstance(value, datetime):
            # The `SQL` timestamp standard of Flink's JSON format; TIMESTAMP has no zone: UTC.
            values[name] = value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
        elif name == "amount_cents":
            values["amount"] = value / 100
        else:
            values[name] = value
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"

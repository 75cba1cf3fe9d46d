"""The fixed part of the laboratory: every row of the fault table, with seeds that never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehouse_dagster.local.stack import LocalStack
from tests.chaos.ledger import Entry, Outcome
from tests.chaos.plan import PlannedFault, Row
from tests.chaos.runner import play
from tests.chaos.scenario import scenario_of
from tests.chaos.stack import stack_of
from tests.support.stacks import up

pytestmark = pytest.mark.chaos

SEED = 4
SIDE_BY_SIDE = 4

FAULTS = [
    (Row.KILLED, "JobManager while the job runs"),
    (Row.ANSWERS, "halted between the check and the POST until the next has started"),
    (Row.RIVALS, "a cancelled run goes on after another began"),
    (Row.BY_HAND, "cancelled in Flink's page"),
    (Row.BY_HAND, "the same SQL submitted by hand beside the running job"),
    (Row.UNREACHABLE, "the JobManager hangs"),
    (Row.RESTORE_POINT, "the newest checkpoint was begun and never completed"),
    (Row.INCOMPATIBLE, "another key of the state, restarted by a person"),
    (Row.SICK, "a bad record makes it restart for ever"),
    (Row.DATABASE, "an older copy while the job runs"),
    (Row.SLOTS, "no slot is free for a job that starts"),
    (Row.FLEET, "twenty jobs cancelled on the cluster at once"),
    (Row.KILLED, "TaskManager during a start"),
    (Row.ANSWERS, "the answer to the INSERT is lost"),
    (Row.DATABASE, "an older copy while the job is down"),
]

Fault = tuple[Row, str]
Played = Callable[[Row, str], Entry]


@pytest.fixture(scope="module")
def laboratory(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalStack, Path]]:
    """A cluster whose processes are killed, and a folder for the logs of faults that fail."""
    folder = tmp_path_factory.mktemp("chaos")
    stack = stack_of(folder / "stack", flink_engine)
    with up(stack):
        yield stack, folder


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, laboratory: tuple[LocalStack, Path], flink_engine: str
) -> Played:
    """How a fault went; all that were selected are played at the first question, side by side."""
    stack, folder = laboratory
    entries: dict[Fault, Entry] = {}
    wanted = [fault for item in request.session.items if (fault := _fault_of(item, flink_engine))]

    def play_one(fault: Fault) -> Entry:
        number = FAULTS.index(fault) + 1
        return play(PlannedFault(SEED, flink_engine, number, *fault), stack, folder)

    def ask(row: Row, variant: str) -> Entry:
        if not entries:
            beside = [fault for fault in wanted if not scenario_of(*fault).cluster_wide]
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                entries.update(zip(beside, pool.map(play_one, beside), strict=True))
        if (row, variant) not in entries:
            entries[row, variant] = play_one((row, variant))
        return entries[row, variant]

    return ask


def _fault_of(item: pytest.Item, engine: str) -> Fault | None:
    """The fault that a collected test of this module plays on this engine."""
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("flink_engine") != engine or "variant" not in call.params:
        return None
    return call.params["row"], call.params["variant"]


def _assert_passed(entry: Entry) -> None:
    if entry.outcome is Outcome.NOT_RUNNABLE:
        pytest.skip(entry.detail)
    assert entry.outcome is Outcome.PASSED, f"[{entry.moment}] {entry.detail}"


def _name(value: object) -> str:
    return value.value if isinstance(value, Row) else str(value)


@pytest.mark.parametrize(("row", "variant"), FAULTS, ids=_name)
def test_exactly_one_job_and_every_row_once_after(row: Row, variant: str, played: Played) -> None:
    _assert_passed(played(row, variant))


def test_every_row_of_the_table_is_in_the_fixed_part() -> None:
    assert {row for row, _ in FAULTS} == set(Row)

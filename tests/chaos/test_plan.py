"""A plan follows from its seed, and a ledger from what was done."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.chaos.ledger import Entry, Ledger, Outcome, summary
from tests.chaos.plan import PlannedFault, Row, plan
from tests.chaos.scenario import scenario_of, variants

ALL = variants()


def test_every_row_of_the_table_has_several_variants() -> None:
    assert set(ALL) == set(Row)
    assert all(len(names) >= 2 for names in ALL.values())
    assert sum(len(names) for names in ALL.values()) >= 60


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    first, again = (plan(100, 7, "flink-2.0", ALL) for _ in range(2))
    assert first == again
    assert [fault.random().random() for fault in first] == [f.random().random() for f in again]
    assert plan(100, 8, "flink-2.0", ALL) != first


def test_a_longer_plan_begins_with_the_shorter_one() -> None:
    assert plan(300, 7, "flink-2.0", ALL)[:50] == plan(50, 7, "flink-2.0", ALL)


def test_thirty_three_faults_are_three_of_every_row_and_three_hundred_ten_of_every_row() -> None:
    few = Counter(fault.row for fault in plan(33, 1, "flink-1.20", ALL))
    assert few == dict.fromkeys(Row, 3)
    many = Counter(fault.row for fault in plan(300, 1, "flink-2.0", ALL))
    assert min(many.values()) >= 10
    assert many[Row.FLEET] < many[Row.KILLED]


def test_every_variant_comes_before_one_comes_again() -> None:
    faults = [fault for fault in plan(300, 3, "flink-2.0", ALL) if fault.row is Row.RIVALS]
    first = [fault.variant for fault in faults[: len(ALL[Row.RIVALS])]]
    assert sorted(first) == sorted(ALL[Row.RIVALS])


def test_faults_on_the_shared_cluster_itself_are_played_alone() -> None:
    for row in (Row.KILLED, Row.SLOTS, Row.FLEET):
        assert all(scenario_of(row, name).cluster_wide for name in ALL[row])


def _entry(fault: PlannedFault, outcome: Outcome) -> Entry:
    return Entry.of(fault, outcome, moment="at once", seconds=1.25, detail="")


def test_a_run_is_resumed_from_its_ledger(tmp_path: Path) -> None:
    first, second, third, fourth = plan(4, 1, "flink-2.0", ALL)
    ledger = Ledger(tmp_path / "deep" / "ledger.jsonl")
    ledger.append(_entry(first, Outcome.PASSED))
    ledger.append(_entry(second, Outcome.FAILED))
    ledger.append(_entry(third, Outcome.NOT_RUNNABLE))
    with ledger.path.open("a") as file:
        file.write('{"seed": 1, "engine": "fli')  # the machine went down here
    again = Ledger(ledger.path)
    assert again.entries == ledger.entries
    assert [again.lacks(fault) for fault in (first, second, third, fourth)] == [
        *(False, False, True, True)
    ]
    assert again.lacks(second, again=True)
    assert not again.lacks(first, again=True)


def test_an_entry_after_a_torn_line_is_read_again(tmp_path: Path) -> None:
    (fault,) = plan(1, 1, "flink-2.0", ALL)
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"seed": 1, "engine": "fli')
    Ledger(path).append(_entry(fault, Outcome.PASSED))
    assert [entry.outcome for entry in Ledger(path).entries] == [Outcome.PASSED]


def test_the_summary_counts_rows_and_outcomes() -> None:
    faults = plan(22, 1, "flink-2.0", ALL)
    entries = [_entry(fault, Outcome.PASSED) for fault in faults[:-1]]
    table = summary([*entries, _entry(faults[-1], Outcome.HUNG)])
    assert table.splitlines()[-1].split() == ["all", "21", "0", "1", "0"]
    (fleet,) = (line for line in table.splitlines() if line.startswith("fleet"))
    assert fleet.split() == ["fleet", "1", "0", "1", "0", "1.2"]

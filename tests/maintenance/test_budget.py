"""Order, limits and grouping of what is due."""

from __future__ import annotations

from lakehouse_dagster.maintenance.actions import Action, ActionKind, Decision
from lakehouse_dagster.maintenance.budget import RunPlan, Spent, within_budget
from lakehouse_dagster.maintenance.spec import Limits
from tests.maintenance.facts import MIB


def due(
    table: str, rewrite_mib: int, benefit: float, kind: ActionKind = ActionKind.COMPACT_FULL
) -> Decision:
    action = Action(table, kind, "why", rewrite_bytes=rewrite_mib * MIB, benefit=benefit)
    return Decision(table, (action,))


def tables(plan: RunPlan) -> list[tuple[str, ...]]:
    return [group.tables for group in plan.groups]


def test_the_most_files_less_for_each_byte_come_first() -> None:
    limits = Limits(small_table="1 mb")
    plan = within_budget([due("a", 1000, 10), due("b", 1000, 90), due("c", 100, 20)], limits)
    assert tables(plan) == [("c",), ("b",), ("a",)]


def test_what_rewrites_nothing_goes_before_what_does() -> None:
    plan = within_budget([due("a", 500, 50), due("b", 0, 5, ActionKind.EXPIRE_SNAPSHOTS)], Limits())
    assert tables(plan) == [("b",), ("a",)]


def test_what_goes_beyond_the_bytes_of_a_run_is_postponed_with_the_reason() -> None:
    limits = Limits(size_a_run="1000 mb", small_table="1 mb")
    plan = within_budget([due("a", 800, 80), due("b", 300, 20), due("c", 100, 1)], limits)
    assert tables(plan) == [("a",), ("c",)]
    (postponed,) = plan.postponed
    assert postponed.action.table == "b"
    assert postponed.reason == (
        "1 actions with more benefit per byte take 838860800 bytes of 1048576000 bytes a run."
    )


def test_a_table_larger_than_the_budget_gets_its_turn_alone() -> None:
    plan = within_budget([due("a", 5000, 80)], Limits(size_a_run="1000 mb"))
    assert tables(plan) == [("a",)]


def test_small_tables_share_a_flink_job_and_big_ones_stand_alone() -> None:
    plan = within_budget(
        [due("a", 10, 5), due("b", 20, 5), due("big", 900, 5), due("c", 5, 5, ActionKind.COMPACT)],
        Limits(),
    )
    assert tables(plan) == [("c",), ("a", "b"), ("big",)]


def test_nothing_begins_while_as_many_actions_run_as_may() -> None:
    plan = within_budget([due("a", 10, 5)], Limits(concurrent=2), running=2)
    assert plan.groups == ()
    assert plan.postponed[0].reason == "2 actions are under way, and at most 2 may be."


def test_of_each_table_only_the_first_action_is_taken() -> None:
    first, second = due("a", 10, 5), due("a", 0, 9, ActionKind.EXPIRE_SNAPSHOTS)
    both = Decision("a", (*first.actions, *second.actions))
    assert [g.actions[0].kind for g in within_budget([both], Limits()).groups] == [
        ActionKind.COMPACT_FULL
    ]


def test_what_a_run_did_before_counts_against_its_limits() -> None:
    limits = Limits(size_a_run="1000 mb", actions_a_run=5, small_table="1 mb")
    before = Spent(4, 900 * MIB)
    plan = within_budget([due("a", 300, 20)], limits, spent=before)
    assert plan.groups == ()
    assert plan.postponed[0].reason == (
        "4 actions with more benefit per byte take 943718400 bytes of 1048576000 bytes a run."
    )
    plan = within_budget([due("a", 30, 20), due("b", 20, 5)], limits, spent=before)
    assert tables(plan) == [("a",)]
    assert plan.postponed[0].reason == "One run does at most 5 actions."
    assert before.and_for(plan.groups) == Spent(5, 930 * MIB)


def test_a_table_whose_compaction_waits_gets_what_else_is_due() -> None:
    compaction, expiry = due("b", 900, 90), due("b", 0, 5, ActionKind.EXPIRE_SNAPSHOTS)
    both = Decision("b", (*compaction.actions, *expiry.actions))
    plan = within_budget([due("a", 900, 500), both], Limits(size_a_run="1 gb", small_table="1 mb"))
    assert [(g.actions[0].table, g.actions[0].kind) for g in plan.groups] == [
        ("b", ActionKind.EXPIRE_SNAPSHOTS),
        ("a", ActionKind.COMPACT_FULL),
    ]
    assert [p.action for p in plan.postponed] == list(compaction.actions)

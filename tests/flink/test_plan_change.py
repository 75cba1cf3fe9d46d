"""What a changed statement means for its job's state: kept, doubtful, lost, or given to another."""

from __future__ import annotations

from lakehouse_dagster.flink import ExecutionPlan, PlanChange, Verdict, compare
from lakehouse_dagster.flink.running_plan import plan_of_running
from tests.flink.recorded_plans import explained, recorded

UIDS = {f"paimon.lake.ods.{table}.sink.operator-uid.suffix": "ods.job" for table in "abcd"} | {
    f"paimon.lake.ods.{table}.source.operator-uid.suffix": "ods.job" for table in "abcd"
}


def copies(*pairs: tuple[str, str]) -> ExecutionPlan:
    """A statement set of ``INSERT INTO ods.<sink> SELECT … FROM <source>``, in their order."""
    lines = []
    for at, (source, sink) in enumerate(pairs):
        n = at * 10
        lines += [
            f"{n} Source {source}",
            f"{n + 1} Map <-FORWARD {n}",
            f"{n + 2} Writer : {sink} <-FORWARD {n + 1}",
            f"{n + 3} Global Committer : {sink} <-FORWARD {n + 2}",
        ]
    lines += [f"{1000 + at} end: Writer <-FORWARD {at * 10 + 3}" for at in range(len(pairs))]
    return explained(*lines, sinks=tuple(f"ods.{sink}" for _, sink in pairs), config=UIDS)


def changed(old: ExecutionPlan, new: ExecutionPlan) -> PlanChange:
    return compare(old, new)


def test_the_same_plan_keeps_all_state_and_has_nothing_to_say() -> None:
    plan = recorded("join").plan()
    change = compare(plan, plan)
    assert change == PlanChange()
    assert change.verdict is Verdict.KEPT
    assert change.in_words() == ()


def test_a_source_put_before_another_would_get_its_state() -> None:
    change = changed(copies(("inc", "a")), copies(("clicks", "b"), ("inc", "a")))
    assert change.verdict is Verdict.MOVED
    assert change.sources_moved == (
        ("the source lake.default.inc", "the source lake.default.clicks"),
    )
    assert change.sources_added == ("lake.default.clicks",)
    assert change.sinks_added == ("b",)


def test_a_statement_set_may_grow_at_its_end() -> None:
    change = changed(copies(("inc", "a")), copies(("inc", "a"), ("clicks", "b")))
    assert change.verdict is Verdict.KEPT
    assert change.in_words() == ("reads lake.default.clicks as well", "writes b as well")


def test_two_sources_that_change_places_would_get_each_others_state() -> None:
    change = changed(copies(("inc", "a"), ("clicks", "b")), copies(("clicks", "b"), ("inc", "a")))
    assert change.verdict is Verdict.MOVED
    assert len(change.sources_moved) == 2
    assert change.sources_added == change.sources_removed == ()


def test_a_source_in_the_place_of_another_would_get_its_state() -> None:
    change = changed(copies(("inc", "a")), copies(("clicks", "a")))
    assert change.verdict is Verdict.MOVED
    assert change.in_words() == (
        "reads lake.default.clicks as well",
        "no longer reads lake.default.inc",
    )


def test_a_source_of_the_lake_before_another_moves_it_to_a_place_without_state() -> None:
    """Paimon's source has an id of its own, but takes a place in the order all the same."""
    old = copies(("inc", "a"))
    new = explained(
        "1 Source c of the lake",
        "2 Map <-FORWARD 1",
        "3 Writer : b <-FORWARD 2",
        "4 Global Committer : b <-FORWARD 3",
        "5 Source inc",
        "6 Map <-FORWARD 5",
        "7 Writer : a <-FORWARD 6",
        "8 Global Committer : a <-FORWARD 7",
        "9 end: Writer <-FORWARD 4",
        "10 end: Writer <-FORWARD 8",
        sinks=("ods.b", "ods.a"),
        config=UIDS,
    )
    change = changed(old, new)
    assert change.verdict is Verdict.LOST
    assert change.lost == ("the source lake.default.inc",)
    assert change.reordered == ("the source lake.default.inc",)


def test_a_source_of_the_lake_keeps_its_state_wherever_it_stands() -> None:
    def reading(*numbered: str) -> ExecutionPlan:
        return explained(*numbered, sinks=("ods.b",), config=UIDS)

    old = reading(
        "1 Source a of the lake",
        "2 Writer : b <-FORWARD 1",
        "3 Global Committer : b <-FORWARD 2",
    )
    new = reading(
        "1 Source c of the lake",
        "2 Source a of the lake",
        "3 Map <-FORWARD 1,2",
        "4 Writer : b <-FORWARD 3",
        "5 Global Committer : b <-FORWARD 4",
    )
    assert changed(old, new).verdict is Verdict.KEPT


def test_a_source_that_is_shuffled_now_has_another_id_and_loses_its_state() -> None:
    """Rows that went straight on, and are grouped now: Flink numbers the source anew."""
    change = changed(recorded("plain").plan(), recorded("agg").plan())
    assert change.verdict is Verdict.LOST
    assert "the source lake.default.inc" in change.lost
    assert change.reordered == ("the source lake.default.inc",)
    assert change.sinks_removed == ("a",)
    assert change.sinks_added == ("agg",)


def aggregate(what: str, *, before: str = "") -> ExecutionPlan:
    lines = ["1 Source a of the lake"]
    if before:
        lines.append(f"2 Calc({before}) <-FORWARD 1")
    lines += [
        f"3 GroupAggregate({what}) <-HASH {2 if before else 1}",
        "4 Writer : b <-FORWARD 3",
        "5 Global Committer : b <-FORWARD 4",
    ]
    return explained(*lines, sinks=("ods.b",), config=UIDS)


def test_an_aggregate_that_computes_something_else_may_not_fit_its_state() -> None:
    change = changed(aggregate("SUM(amount)"), aggregate("MAX(amount)"))
    assert change.verdict is Verdict.MAY_NOT_FIT
    assert change.stateful_operators_changed == (
        ("GroupAggregate(SUM(amount))", "GroupAggregate(MAX(amount))"),
    )


def test_an_aggregate_behind_a_new_operator_is_numbered_anew() -> None:
    change = changed(aggregate("SUM(x)"), aggregate("SUM(x)", before="where=[(x > 1)]"))
    assert change.verdict is Verdict.LOST
    assert change.lost == ("GroupAggregate(SUM(x))",)


def test_only_operators_that_hold_state_count_when_that_is_known() -> None:
    old, new = aggregate("SUM(x)"), aggregate("SUM(x)", before="where=[(x > 1)]")
    ids = {node.operator_id for node in old.nodes if node.kind != "GroupAggregate"}
    change = compare(old, new, with_state=[i for i in ids if i])
    assert change.verdict is Verdict.KEPT


def test_two_aggregates_that_change_places_would_get_each_others_state() -> None:
    def both(first: str, second: str) -> ExecutionPlan:
        return explained(
            "1 Source a of the lake",
            f"2 GroupAggregate({first}) <-HASH 1",
            "3 Writer : b <-FORWARD 2",
            f"4 GroupAggregate({second}) <-HASH 1",
            "5 Writer : c <-FORWARD 4",
            sinks=("ods.b", "ods.c"),
            config=UIDS,
        )

    change = changed(both("SUM(x)", "SUM(y)"), both("SUM(y)", "SUM(x)"))
    assert change.verdict is Verdict.MOVED
    assert change.operators_moved == (
        ("GroupAggregate(SUM(x))", "GroupAggregate(SUM(y))"),
        ("GroupAggregate(SUM(y))", "GroupAggregate(SUM(x))"),
    )


def test_an_operator_of_another_kind_in_the_place_of_one_would_get_its_state() -> None:
    old = aggregate("SUM(x)")
    new = explained(
        "1 Source a of the lake",
        "3 Rank(x) <-HASH 1",
        "4 Writer : b <-FORWARD 3",
        "5 Global Committer : b <-FORWARD 4",
        sinks=("ods.b",),
        config=UIDS,
    )
    assert changed(old, new).operators_moved == (("GroupAggregate(SUM(x))", "Rank(x)"),)


def test_a_table_that_is_written_no_more_leaves_its_writers_state_behind() -> None:
    change = changed(copies(("inc", "a"), ("clicks", "b")), copies(("inc", "a")))
    assert change.verdict is Verdict.LOST
    assert change.sinks_removed == ("b",)
    assert set(change.lost) == {
        "the source lake.default.clicks",
        "the writer of b",
        "the global committer of b",
    }


def test_another_parallelism_alone_keeps_the_state() -> None:
    one, two = recorded("agg").plan(), recorded("par2").plan()
    change = changed(one, two)
    assert change.verdict is Verdict.KEPT
    assert (
        "GroupAggregate(groupBy=[text], select=[text, SUM(amount) AS EXPR$1])",
        1,
        2,
    ) in change.parallelism_changes


def test_of_a_job_that_was_never_explained_only_what_is_certain_is_said() -> None:
    """By the ids in its checkpoint and the first operators of its chains."""
    running = plan_of_running(recorded("agg").running)
    same = compare(running, recorded("agg").plan(), with_state=recorded("agg").operators)
    assert same.verdict is Verdict.KEPT
    other = compare(running, recorded("plain").plan(), with_state=recorded("agg").operators)
    assert other.verdict is Verdict.LOST
    assert "the source lake.default.inc" in other.lost
    assert other.unknown_lost > 0

"""What a table is due for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakehouse_dagster.maintenance.actions import (
    Action,
    ActionKind,
    Blocked,
    Decision,
    Holder,
    Past,
    Situation,
)
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.spec import (
    Compaction,
    CompactSpec,
    ExpireSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
    slack,
)
from lakehouse_dagster.paimon.file_facts import TableFacts, TableKind, TagFacts
from lakehouse_dagster.system_db import Lease
from tests.maintenance.facts import MIB, NOW, bucket, table

DEFAULT = TablePolicy()


def decided(facts: TableFacts, policy: TablePolicy = DEFAULT, **situation: Any) -> Decision:
    return decide(facts, policy, Situation(**situation), NOW)


def only(decision: Decision) -> Action:
    (action,) = decision.actions
    return action


UNSETTLED = bucket(files=7, size_bytes=200 * MIB, settled_bytes=80 * MIB, levels=3)
OLD = {
    "snapshot_count": 60,
    "oldest_snapshot_id": 41,
    "oldest_snapshot_at": NOW - timedelta(days=2),
}


def test_a_table_in_shape_is_due_for_nothing() -> None:
    assert decided(table(bucket())) == Decision("ods.orders")


def test_a_table_without_snapshots_is_due_for_nothing() -> None:
    assert decided(TableFacts("ods.orders")) == Decision("ods.orders")


def test_too_many_unmerged_files_in_one_bucket_are_compacted() -> None:
    busy = bucket(1, files=22, level0_files=21, level0_bytes=5 * MIB)
    action = only(decided(table(bucket(0), busy)))
    assert action.kind is ActionKind.COMPACT
    assert action.reason == "bucket 1 has 21 unmerged files."
    assert action.partitions is None


def test_bytes_outside_the_highest_level_lead_to_a_full_compaction() -> None:
    action = only(decided(table(UNSETTLED)))
    assert action.kind is ActionKind.COMPACT_FULL
    assert action.rewrite_bytes == 200 * MIB
    assert action.benefit == 5  # 200 MiB are two files of 128 MiB
    assert "60% of 209715200 bytes outside its highest level" in action.reason


def test_little_is_not_rewritten_only_because_its_share_is_large() -> None:
    small = bucket(files=3, size_bytes=9 * MIB, settled_bytes=MIB, levels=2)
    assert decided(table(small)).actions == ()


def test_rows_marked_as_deleted_lead_to_a_full_compaction() -> None:
    action = only(decided(table(bucket(deleted_records=200))))
    assert action.reason == "bucket 0 has 200 of 1000 rows marked as deleted."


def test_a_table_whose_writers_mark_rows_as_deleted_is_not_compacted_beside_them() -> None:
    marked = table(bucket(deleted_records=200), options={"deletion-vectors.enabled": "true"})
    found = decided(marked)
    assert found.actions == ()
    assert "would come back" in found.held_back[0]
    alone = {"deletion-vectors.enabled": "true", "write-only": "true"}
    assert only(decided(replace(marked, options=alone))).kind is ActionKind.COMPACT_FULL
    assert decided(table(bucket(), options=marked.options)).held_back == ()


def test_small_files_of_an_append_table_are_compacted_partition_by_partition() -> None:
    many = bucket(0, "20260101", files=12, small_files=11, small_bytes=4 * MIB)
    few = bucket(0, "20260102", files=12, small_files=3)
    action = only(decided(table(many, few, kind=TableKind.APPEND)))
    assert action.kind is ActionKind.COMPACT
    assert action.partitions == ((("dt", "20260101"),),)
    assert action.rewrite_bytes == 4 * MIB


def test_what_was_merged_and_is_still_small_is_not_written_again_for_a_few_files_more() -> None:
    rest = bucket(files=20, small_files=20, small_bytes=100 * MIB)
    assert decided(table(rest, kind=TableKind.APPEND)).actions == ()
    tiny = replace(rest, small_bytes=10 * MIB)
    assert only(decided(table(tiny, kind=TableKind.APPEND))).rewrite_bytes == 10 * MIB
    fills_a_file = replace(rest, small_bytes=256 * MIB)
    assert only(decided(table(fills_a_file, kind=TableKind.APPEND))).rewrite_bytes == 256 * MIB


def test_levels_say_nothing_of_an_append_table() -> None:
    assert decided(table(replace(UNSETTLED, small_files=0), kind=TableKind.APPEND)).actions == ()


def test_one_run_takes_the_worst_partitions_and_leaves_the_rest_for_the_next() -> None:
    buckets = [
        bucket(0, f"d{n:05}", files=20 + n, small_files=20, small_bytes=MIB) for n in range(10_000)
    ]
    policy = TablePolicy(compact=CompactSpec(partitions_a_run=3))
    action = only(decided(table(*buckets, kind=TableKind.APPEND), policy))
    assert [p[0][1] for p in action.partitions or ()] == ["d00020", "d00019", "d00018"]
    assert "20 partitions" not in action.reason
    assert "18 partitions wait for the next run" in action.reason


def test_rows_that_wait_for_buckets_are_compacted() -> None:
    waiting = bucket(-2, files=4, level0_files=4)
    action = only(decided(table(waiting, total_buckets=-2)))
    assert action.reason == "bucket -2 has 4 files that no reader sees yet."


@pytest.mark.parametrize("compaction", [Compaction.OFF, Compaction.BATCH])
def test_nobody_compacts_a_table_whose_compaction_is_off_or_that_has_its_own_job(
    compaction: Compaction,
) -> None:
    dedicated = compaction is Compaction.BATCH
    found = decided(
        table(UNSETTLED), TablePolicy(compaction=compaction), compacts_by_itself=dedicated
    )
    assert found.actions == ()


DEDICATED = TablePolicy(Compaction.DEDICATED)
WRITE_ONLY = {"write-only": "true"}


@pytest.mark.parametrize(
    ("options", "runs", "said"),
    [
        (
            {},
            False,
            "declared, but its writers compact it still: run `lakehouse tables dedicate od",
        ),
        (
            {},
            True,
            "declared, but its writers compact it still: run `lakehouse tables dedicate ods",
        ),
        (
            WRITE_ONLY,
            False,
            "Nobody compacts it: it is write-only, and its compaction job compact-",
        ),
        (WRITE_ONLY, True, None),
    ],
)
def test_a_table_that_is_to_have_its_own_compaction_job_gets_no_other_compaction(
    options: dict[str, str], runs: bool, said: str | None
) -> None:
    found = decided(
        table(UNSETTLED, options=options),
        DEDICATED,
        compaction_job="compact-ods.orders",
        compacts_by_itself=runs,
    )
    assert found.actions == ()
    assert len(found.advice) == (said is not None)
    assert said is None or said in found.advice[0]


def test_a_compaction_job_that_is_declared_no_more_is_told_of() -> None:
    found = decided(table(UNSETTLED, options=WRITE_ONLY), compacts_by_itself=True)
    assert found.actions == ()
    assert "runs on, though compaction: dedicated is declared no more" in found.advice[0]


def test_rows_that_wait_for_buckets_are_compacted_whatever_is_declared() -> None:
    waiting = bucket(-2, files=4, level0_files=4)
    found = decided(
        table(waiting, total_buckets=-2), DEDICATED, compaction_job="compact-ods.orders"
    )
    assert only(found).kind is ActionKind.COMPACT
    assert "Write compaction: batch." in found.advice[0]


def test_a_table_that_nobody_can_give_a_compaction_job_is_compacted_in_batches() -> None:
    assert only(decided(table(UNSETTLED), DEDICATED)).kind is ActionKind.COMPACT_FULL


def test_the_figures_are_told_though_nothing_is_due() -> None:
    old = {"oldest_snapshot_at": NOW - timedelta(hours=20), "snapshot_count": 7}
    found = decided(table(bucket(level0_files=2), **old))
    assert found.actions == ()
    assert found.figures == {
        "files": "1",
        "bytes": str(100 * MIB),
        "level 0": "2",
        "small files": "0",
        "snapshots": "7, the oldest 20h old",
        "manifests": "3",
    }
    assert "level 0" not in decided(table(bucket(), kind=TableKind.APPEND)).figures


def test_compaction_waits_for_its_window() -> None:
    policy = TablePolicy(compact=CompactSpec(cron="0 5 * * *"))
    found = decided(table(UNSETTLED), policy)
    assert found.actions == ()
    assert found.held_back == (
        "full compaction is due and waits for its window (0 5 * * *), which opens at "
        "2026-11-30 05:00 UTC.",
    )
    policy = TablePolicy(compact=CompactSpec(cron="0 3 * * *", lasts="31m"))
    assert decided(table(UNSETTLED), policy).actions


def test_who_restarts_for_batch_compactions_is_advised_to_have_none() -> None:
    def advice(restarts: int, **options: str) -> tuple[str, ...]:
        past = {ActionKind.COMPACT: Past(done_at=NOW, writer_restarts=restarts)}
        return decided(table(UNSETTLED, options=options), past=past).advice

    (told,) = advice(3)
    assert told.startswith("Batch compactions on record made its writers restart 3 times: ")
    assert "compaction: dedicated spares them that" in told
    assert advice(2) == ()
    assert advice(9, **{"write-only": "true"}) == ()


def test_what_failed_is_tried_again_later_and_later() -> None:
    def after(minutes: int, failures: int) -> Decision:
        past = Past(failed_at=NOW - timedelta(minutes=minutes), failures=failures)
        return decided(table(UNSETTLED), past={ActionKind.COMPACT_FULL: past})

    assert after(4, 1).actions == ()
    said = "full compaction failed once; tried again after 2026-11-30 03:31 UTC."
    assert after(4, 1).held_back == (said,)
    assert after(4, 1).blocked == (Blocked(ActionKind.COMPACT_FULL, said),)
    past = Past(failed_at=NOW, failures=2, error="It met a conflict.")
    (said,) = decided(table(UNSETTLED), past={ActionKind.COMPACT_FULL: past}).held_back
    assert said.startswith("full compaction failed 2 times in a row; tried again after ")
    assert said.endswith(" UTC. It failed with: It met a conflict.")
    assert after(6, 1).actions
    assert after(19, 3).actions == ()
    assert after(21, 3).actions
    assert after(361, 50).actions


def test_old_snapshots_expire_down_to_the_least_number() -> None:
    action = only(decided(table(bucket(), **OLD)))
    assert action.kind is ActionKind.EXPIRE_SNAPSHOTS
    assert action.keep == 10
    assert action.older_than == NOW - timedelta(days=1)


def test_snapshots_that_are_young_or_few_stay() -> None:
    young = {**OLD, "oldest_snapshot_at": NOW - timedelta(hours=23)}
    assert decided(table(bucket(), **young)).actions == ()
    few = {**OLD, "snapshot_count": 10, "oldest_snapshot_id": 91}
    assert decided(table(bucket(), **few)).actions == ()


@pytest.mark.parametrize(("keep_for", "due_after"), [("1d", 26.4), ("10d", 246), ("10h", 11)])
def test_a_table_that_is_written_all_the_time_is_not_due_all_the_time(
    keep_for: str, due_after: float
) -> None:
    policy = TablePolicy(expire=ExpireSpec(keep_for=keep_for))

    def due(hours: float, **situation: Any) -> tuple[Action, ...]:
        old = {**OLD, "oldest_snapshot_at": NOW - timedelta(hours=hours)}
        return decided(table(bucket(), **old), policy, **situation).actions

    assert due(due_after * 0.999) == ()
    (action,) = due(due_after * 1.001)
    assert action.older_than == NOW - timedelta(hours=due_after) + slack(ExpireSpec(1, keep_for))


def test_a_reader_that_lags_behind_and_moves_on_lets_go_what_is_worth_its_while() -> None:
    found = decided(table(bucket(), **OLD), holders=(holder("a", 42, 47),))
    assert found.actions == ()
    assert "Old snapshots are kept for streaming job a" in found.held_back[0]
    assert only(decided(table(bucket(), **OLD), holders=(holder("a", 60, 45),))).needed_from == 60


def holder(name: str, snapshot: int | None, hours_ago: float | None) -> Holder:
    at = None if hours_ago is None else NOW - timedelta(hours=hours_ago)
    return Holder("streaming job", name, snapshot, at)


def test_nothing_expires_that_somebody_still_needs() -> None:
    found = decided(table(bucket(), **OLD), holders=(holder("a", 60, 40), holder("b", 75, 30)))
    assert only(found).older_than == NOW - timedelta(hours=40)
    assert only(found).needed_from == 60
    assert found.held_back == (
        "Old snapshots are kept for streaming job a (needs snapshot 60); streaming job b (needs "
        "snapshot 75).",
    )


@pytest.mark.parametrize(("needed", "hours_ago"), [(41, 48), (7, None), (None, None)])
def test_nothing_expires_at_all_for_a_reader_at_the_oldest_or_an_unknown_snapshot(
    needed: int | None, hours_ago: float | None
) -> None:
    found = decided(table(bucket(), **OLD), holders=(holder("dwd", needed, hours_ago),))
    assert found.actions == ()
    assert "streaming job dwd" in found.held_back[0]


@pytest.mark.parametrize(("needed", "hours_ago"), [(95, 2), (101, None)])
def test_a_reader_that_keeps_up_holds_nothing_back(needed: int, hours_ago: float | None) -> None:
    found = decided(table(bucket(), **OLD), holders=(holder("dwd", needed, hours_ago),))
    assert only(found).older_than == NOW - timedelta(days=1)
    assert found.held_back == ()


CHANGELOGS = {
    **OLD,
    "changelog_count": 30,
    "oldest_changelog_id": 11,
    "oldest_changelog_at": NOW - timedelta(days=5),
}
KEPT = TablePolicy(expire=None, changelogs=ExpireSpec(keep_at_least=10, keep_for="2d"))


def test_changelogs_expire_by_their_own_age_and_number() -> None:
    action = only(decided(table(bucket(), **CHANGELOGS), KEPT))
    assert (action.kind, action.keep) == (ActionKind.EXPIRE_CHANGELOGS, 10)
    assert action.older_than == NOW - timedelta(days=2)
    young = {**CHANGELOGS, "oldest_changelog_at": NOW - timedelta(days=1)}
    assert decided(table(bucket(), **young), KEPT).actions == ()


def test_changelogs_that_somebody_still_needs_stay() -> None:
    found = decided(table(bucket(), **CHANGELOGS), KEPT, holders=(holder("a", 20, None),))
    assert only(found).needed_from == 20
    for needed in (11, 13, None):
        found = decided(table(bucket(), **CHANGELOGS), KEPT, holders=(holder("a", needed, None),))
        assert found.actions == ()
        assert found.held_back[0].startswith("Old changelogs are kept for streaming job a")


def test_partitions_expire_by_the_time_in_their_value_and_unread_ones_are_named() -> None:
    days = ["20260101", "20261129", "x1", None]
    policy = TablePolicy(partitions=PartitionExpirySpec("90d", format="%Y%m%d"))
    found = decided(table(*(bucket(0, day) for day in days)), policy)
    assert only(found).partitions == ((("dt", "20260101"),),)
    assert found.held_back == (
        "2 partitions stay, as dt is not of the format %Y%m%d: dt=x1, dt=NULL.",
    )


def test_where_all_partitions_are_past_none_goes_and_they_are_compacted_as_others() -> None:
    many = {"files": 12, "small_files": 12, "small_bytes": MIB, "size_bytes": MIB}
    policy = TablePolicy(partitions=PartitionExpirySpec("90d", format="%Y%m%d"))
    facts = table(
        *(bucket(0, day, **many) for day in ("20260101", "20260102", None)), kind=TableKind.APPEND
    )
    found = decided(facts, policy)
    assert only(found).kind is ActionKind.COMPACT
    assert len(only(found).partitions or ()) == 3
    assert found.held_back[1] == (
        "2 partitions are older than 90d, and none is younger, so all of them stay: dt=20260101, "
        "dt=20260102. Drop them by hand if they are to go; else raise partitions.keep_for."
    )


@pytest.mark.parametrize(("column", "said"), [("day", "day is no partition column"), (None, "the")])
def test_a_table_without_such_partitions_keeps_all(column: str | None, said: str) -> None:
    spec = PartitionExpirySpec("90d", column=column)
    (why,) = decided(table(bucket()), TablePolicy(partitions=spec)).held_back
    assert why == f"Partitions cannot expire: {said if column else 'the table has none'}."


def test_partitions_that_are_due_to_go_are_not_compacted_before() -> None:
    many = {"files": 12, "small_files": 12, "small_bytes": MIB, "size_bytes": MIB}
    days = ("20260101", "20261129", "x1")
    facts = table(*(bucket(0, day, **many) for day in days), kind=TableKind.APPEND)
    policy = TablePolicy(partitions=PartitionExpirySpec("90d", format="%Y%m%d"))
    merged, expired = decided(facts, policy).actions
    assert merged.partitions == ((("dt", "20261129"),), (("dt", "x1"),))
    assert (expired.kind, expired.partitions) == (
        ActionKind.EXPIRE_PARTITIONS,
        ((("dt", "20260101"),),),
    )


def test_what_stays_is_named_in_short_texts_however_much_it_is() -> None:
    policy = TablePolicy(partitions=PartitionExpirySpec("90d", format="%Y%m%d"))
    unread = (bucket(0, f"x{number:05}") for number in range(10_000))
    (why,) = decided(table(*unread), policy).held_back
    assert why.startswith("10000 partitions stay, as dt is not of the format %Y%m%d: dt=x00000, ")
    assert why.endswith("dt=x00009 and 9990 more.")
    (why,) = decided(table(*(bucket(0, f"{n}{'x' * 9_000}") for n in range(9))), policy).held_back
    assert f"dt=0{'x' * 59}…, dt=1{'x' * 59}…" in why
    assert len(why) < 1_000
    holders = tuple(holder(f"reader-{number:05}", 1, None) for number in range(10_000))
    (why,) = decided(table(bucket(), **OLD), holders=holders).held_back
    assert why.startswith("Old snapshots are kept for ")
    assert why.endswith(" and 9990 more.")
    assert len(why) < 1_000


def test_tags_go_a_bounded_number_a_run() -> None:
    old = TagFacts(3, NOW - timedelta(days=40), None)
    tags = {f"t{number:05}": old for number in range(10_000)}
    action = only(decided(table(bucket(), tags=tags), TablePolicy(tags=TagSpec("30d"))))
    assert action.names == tuple(sorted(tags))[:100]
    assert action.reason == "10000 tags are older than 30d; 100 go now."


def test_tags_under_a_branch_stay() -> None:
    old = TagFacts(3, NOW - timedelta(days=40), None)
    facts = table(bucket(), tags={"fix": old, "old": old, "new": replace(old, created_at=NOW)})
    found = decided(facts, TablePolicy(tags=TagSpec("30d")), protected_tags=frozenset({"fix"}))
    assert only(found).names == ("old",)
    assert found.held_back == ("Tags stay, as branches stand on them: fix.",)


ORPHANS = TablePolicy(orphans=OrphanSpec(every="7d", older_than="3d", most_files=100))


def after_search(days: float, files: int, **removal: Any) -> Decision:
    at = NOW - timedelta(days=days)
    search = Past(done_at=at, found_files=files, found_bytes=9, older_than=at - timedelta(days=3))
    past = {ActionKind.FIND_ORPHANS: search, ActionKind.REMOVE_ORPHANS: Past(**removal)}
    return decided(table(bucket()), ORPHANS, past=past)


def test_orphans_are_searched_for_before_anything_is_removed() -> None:
    action = only(decided(table(bucket()), ORPHANS))
    assert (action.kind, action.older_than) == (
        ActionKind.FIND_ORPHANS,
        NOW - timedelta(days=3),
    )


def test_what_a_search_found_goes_a_day_later_and_nothing_else() -> None:
    assert after_search(0.9, 5).actions == ()
    action = only(after_search(1.1, 5))
    assert action.kind is ActionKind.REMOVE_ORPHANS
    assert action.older_than == NOW - timedelta(days=4.1)
    assert after_search(1.1, 0).actions == ()
    assert after_search(2, 5, done_at=NOW - timedelta(days=0.5)).actions == ()


def test_more_orphans_than_the_bound_wait_for_a_person() -> None:
    found = after_search(2, 101)
    assert found.actions == ()
    assert (
        "101 files (9 bytes) that no snapshot knows are more than may be removed"
        in (found.held_back[0])
    )


def test_a_search_is_repeated_after_its_interval() -> None:
    assert after_search(6.9, 0).actions == ()
    assert only(after_search(7.1, 5)).kind is ActionKind.FIND_ORPHANS


@pytest.mark.parametrize("every", ["1h", "1d"])
def test_searches_in_short_intervals_do_not_put_off_the_removal(every: str) -> None:
    policy = TablePolicy(orphans=OrphanSpec(every=every, older_than="3d", most_files=100))

    def due(days: float, files: int) -> list[ActionKind]:
        found = Past(done_at=NOW - timedelta(days=days), found_files=files, older_than=NOW)
        past = {ActionKind.FIND_ORPHANS: found}
        return [a.kind for a in decided(table(bucket()), policy, past=past).actions]

    assert due(0.9, 5) == []
    assert due(1.1, 5) == [ActionKind.REMOVE_ORPHANS]
    assert due(2.1, 5) == [ActionKind.FIND_ORPHANS]
    assert due(1.1, 0) == due(1.1, 101) == [ActionKind.FIND_ORPHANS]


def test_many_manifests_are_merged() -> None:
    assert only(decided(table(bucket(), manifest_files=201))).kind is ActionKind.COMPACT_MANIFESTS
    assert decided(table(bucket(), manifest_files=200)).actions == ()
    whole = table(bucket(), manifest_files=201, manifest_bytes=201 * 7 * MIB)
    assert decided(whole).actions == ()
    small = replace(whole, options={"manifest.target-file-size": "64 mb"})
    assert only(decided(small)).kind is ActionKind.COMPACT_MANIFESTS


def test_nothing_is_done_to_a_corrupt_table_nor_beside_another_action() -> None:
    found = decided(table(UNSETTLED, problem="a manifest is gone."))
    gone = "Nothing is done to it: a manifest is gone."
    assert found == Decision("ods.orders", (), (gone,), (Blocked(None, gone),))
    beside = decided(table(UNSETTLED), held_by=Lease("k", "Dagster run 1a2b", 1, NOW, 60.0))
    reason = "Another action on it is under way: Dagster run 1a2b."
    assert beside == Decision(
        "ods.orders",
        (),
        (reason,),
        (
            Blocked(
                None,
                reason,
                "Wait for it to end, or cancel it, and try again; should it have died, its lease "
                "ends at 2026-11-30 03:30:00 UTC.",
            ),
        ),
    )


def test_what_is_due_at_once_comes_in_the_order_of_its_use() -> None:
    policy = TablePolicy(expire=ExpireSpec(keep_for="1h"), orphans=OrphanSpec())
    kinds = [a.kind for a in decided(table(UNSETTLED, manifest_files=500, **OLD), policy).actions]
    assert kinds == [
        ActionKind.COMPACT_FULL,
        ActionKind.EXPIRE_SNAPSHOTS,
        ActionKind.COMPACT_MANIFESTS,
        ActionKind.FIND_ORPHANS,
    ]

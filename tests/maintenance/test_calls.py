"""What is sent to the gateway: whole, bounded, and nothing in a value read as syntax."""

from __future__ import annotations

from dataclasses import replace

from lakehouse_dagster.maintenance.actions import Action, ActionKind, Partition, Situation
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.calls import calls_of
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    PartitionExpirySpec,
    TablePolicy,
)
from lakehouse_dagster.paimon.file_facts import BucketFacts, TableFacts, TableKind
from tests.maintenance.facts import MIB, NOW, bucket, table

PARTITIONS = 10_000
LONGEST = 20_000


def texts(action: Action) -> list[str]:
    return [call.text for call in calls_of(ActionGroup((action,)))]


def due(facts: TableFacts, policy: TablePolicy) -> Action:
    found = decide(facts, policy, Situation(), NOW)
    return found.actions[0]


def small(partition: str) -> BucketFacts:
    """A partition of twenty small files."""
    return bucket(
        0, partition, files=20, small_files=20, size_bytes=MIB, small_bytes=MIB, records=20
    )


def wide(partitions: int) -> TableFacts:
    buckets = (small(f"2020{number:06d}") for number in range(partitions))
    return table(*buckets, kind=TableKind.APPEND)


def test_one_run_compacts_a_bounded_part_of_ten_thousand_partitions_and_the_next_goes_on() -> None:
    facts, policy = wide(PARTITIONS), TablePolicy(compact=CompactSpec(partitions_a_run=50))
    action = due(facts, policy)
    assert action.partitions is not None
    assert len(action.partitions) == 50
    assert "9950 partitions wait for the next run" in action.reason
    (text,) = texts(action)
    assert len(text) < LONGEST
    done = set(action.partitions)
    left = replace(facts, buckets=tuple(b for b in facts.buckets if b.partition not in done))
    following = due(left, policy).partitions
    assert following is not None
    assert not done & set(following)


def test_many_or_long_partitions_are_told_in_several_calls_each_of_a_bounded_length() -> None:
    facts, policy = wide(5_000), TablePolicy(compact=CompactSpec(partitions_a_run=5_000))
    action = due(facts, policy)
    calls = texts(action)
    assert len(calls) > 1
    assert max(map(len, calls)) < LONGEST
    assert sum(text.count("dt=") for text in calls) == 5_000
    long: tuple[Partition, ...] = tuple((("dt", f"{n}-{'x' * 5_000}"),) for n in range(9))
    calls = texts(Action("ods.a", ActionKind.COMPACT, "a test", partitions=long))
    assert [text.count("dt=") for text in calls] == [3, 3, 3]


def test_partitions_expire_in_bounded_runs_and_calls() -> None:
    spec = PartitionExpirySpec("30d", format="%Y%m%d", partitions_a_run=5_000)
    months = [f"{year}{month:02d}01" for year in range(1000, 1200) for month in range(1, 13)]
    buckets = (bucket(0, month) for month in (*months, "20261130"))
    policy = TablePolicy(compact=None, expire=None, partitions=spec)
    action = due(table(*buckets), policy)
    calls = texts(action)
    assert len(calls) > 1
    assert max(map(len, calls)) < LONGEST
    assert sum(text.count("dt=") for text in calls) == len(months)
    bounded = replace(policy, partitions=replace(spec, partitions_a_run=7))
    days = (bucket(0, day) for day in (*(f"202001{day:02d}" for day in range(1, 29)), "20261130"))
    assert len(due(table(*days), bounded).partitions or ()) == 7


def test_values_that_the_syntax_of_partitions_would_cut_are_told_by_a_condition() -> None:
    action = Action(
        "ods.a",
        ActionKind.COMPACT_FULL,
        "a test",
        partitions=((("dt", "a,b='c"),), (("dt", None),)),
    )
    (text,) = texts(action)
    assert "`where` => '(dt = ''a,b=''''c'') OR (dt IS NULL)'" in text
    plain = replace(action, partitions=((("dt", "a"), ("h", None)),))
    assert "`partitions` => 'dt=a,h=__DEFAULT_PARTITION__'" in texts(plain)[0]


def test_a_partition_whose_values_could_be_read_as_another_one_never_expires() -> None:
    two = replace(bucket(0, "20200101"), partition=(("dt", "20200101"), ("r", "x,dt=20990101")))
    policy = TablePolicy(
        compact=None, expire=None, partitions=PartitionExpirySpec("30d", format="%Y%m%d")
    )
    facts = replace(table(two), partition_keys=("dt", "r"))
    found = decide(facts, policy, Situation(), NOW)
    assert found.actions == ()
    assert found.held_back[0].startswith("1 partitions stay, as a comma")


def test_expiries_have_no_calls_beforehand() -> None:
    assert texts(Action("ods.a", ActionKind.EXPIRE_SNAPSHOTS, "a test", keep=1)) == []

"""One run on a real engine: whatever is due has its turn, and what is due again waits."""

from __future__ import annotations

import pytest

from lakehouse_dagster.maintenance.maintain import Maintained, maintain_in_rounds
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    Limits,
    MaintenancePolicy,
    ManifestSpec,
    OrphanSpec,
    TablePolicy,
)
from tests.maintenance.tables import Tables
from tests.paimon.writing import Writer
from tests.streaming.test_progress import COLUMNS
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = pytest.mark.flink

TABLE, OTHER = "m.busy", "m.other"
POLICY = TablePolicy(
    # Two buckets are due, as two partitions are, and one of them has its turn in a run.
    compact=CompactSpec(small_files=5, partitions_a_run=1),
    expire=ExpireSpec(keep_at_least=1, keep_for="1ms"),
    manifests=ManifestSpec(files=1),
    orphans=OrphanSpec(),
)


def busy(lab: Laboratory) -> Tables:
    """A table that is due for everything, and for compaction and expiry again right after."""
    writer = Writer(
        lab.folder / "warehouse", TABLE, COLUMNS, partition_keys=("v",), options={"bucket": "-1"}
    )
    for number in range(6):
        writer.append([{"id": number, "v": "a"}, {"id": number, "v": "b"}])
    return Tables(lab)


def ran(tables: Tables, limits: Limits | None = None, **policies: TablePolicy) -> Maintained:
    policy = MaintenancePolicy(
        POLICY, {f"m.{name}": said for name, said in policies.items()}, limits or Limits()
    )
    names = [TABLE, *(f"m.{name}" for name in policies)]
    return maintain_in_rounds(tables.keeper, policy, names, holder="a test")


def kinds(outcome: Maintained) -> list[tuple[str, str, str]]:
    return [(r.table_name, r.kind, r.state.value) for r in outcome.done]


def later(outcome: Maintained) -> list[tuple[str, str, str]]:
    return [(p.action.table, p.action.kind.value, p.reason) for p in outcome.postponed]


def test_each_kind_of_action_has_one_turn_and_what_is_due_again_says_so(lab: Laboratory) -> None:
    tables = busy(lab)
    rows = tables.rows(TABLE)
    outcome = ran(tables)
    assert outcome.failures == ()
    assert kinds(outcome) == [
        (TABLE, "compact", "done"),
        (TABLE, "snapshot expiry", "done"),
        (TABLE, "manifest compaction", "done"),
        (TABLE, "orphan search", "done"),
    ]
    had = "It had its turn in this run; the next one goes on."
    assert later(outcome) == [(TABLE, "compact", had), (TABLE, "snapshot expiry", had)]
    assert tables.rows(TABLE) == rows
    assert [kind for _, kind, _ in kinds(ran(tables))][:2] == ["compact", "snapshot expiry"]


def test_a_run_has_one_measure_of_actions_however_often_it_looks(lab: Laboratory) -> None:
    outcome = ran(busy(lab), Limits(actions_a_run=2))
    assert [kind for _, kind, _ in kinds(outcome)] == ["compact", "snapshot expiry"]
    left = {kind: reason for _, kind, reason in later(outcome)}
    assert left.pop("compact") == "It had its turn in this run; the next one goes on."
    assert left == dict.fromkeys(
        ("manifest compaction", "orphan search"), "One run does at most 2 actions."
    )


def test_a_table_on_which_something_fails_keeps_no_other_from_its_turns(lab: Laboratory) -> None:
    tables = busy(lab)
    name = tables.make("other", "id INT, v STRING", bucket="-1")
    tables.fill(name, lambda n: f"({n}, 'x')", 6)
    next((tables.folder(name) / "bucket-0").glob("*.parquet")).unlink()
    outcome = ran(tables, other=TablePolicy(compact=CompactSpec(small_files=5), manifests=None))
    assert sorted(kinds(outcome)) == sorted(
        [
            (OTHER, "compact", "failed"),
            (TABLE, "compact", "done"),
            (TABLE, "snapshot expiry", "done"),
            (TABLE, "manifest compaction", "done"),
            (TABLE, "orphan search", "done"),
        ]
    )

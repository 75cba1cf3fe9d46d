"""Actions on real tables of a real engine: what they change, and that rows stay as they are."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.maintenance.perform import Performing, perform
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    MaintenancePolicy,
    ManifestSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
)
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState
from tests.maintenance.tables import Tables
from tests.paimon.writing import Writer
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

KEYED = "dt STRING, id INT, v STRING, PRIMARY KEY (dt, id) NOT ENFORCED"


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    return Tables(lab)


def done(tables: Tables, *actions: Action) -> tuple[ActionRecord, ...]:
    with tables.keeper.hold([a.table for a in actions], "a test") as held:
        records = perform(held, ActionGroup(actions), Performing())
    assert [(record.state, record.error) for record in records] == [
        (ActionState.DONE, None) for _ in actions
    ]
    return records


def now() -> datetime:
    return datetime.now(timezone.utc)


def test_a_full_compaction_merges_the_chosen_partitions_and_changes_no_row(
    tables: Tables,
) -> None:
    table = tables.make("keyed", KEYED, partitioned=True, **{"bucket": "1", "write-only": "true"})
    tables.fill(table, lambda n: f"('a', {n % 2}, 'x{n}'), ('b', {n}, 'y')", 4)
    before = tables.rows(table)
    action = Action(table, ActionKind.COMPACT_FULL, "a test", partitions=((("dt", "a"),),))
    (record,) = done(tables, action)
    files = {b.partition[0][1]: (b.files, b.level0_files) for b in tables.facts(table).buckets}
    assert files == {"a": (1, 0), "b": (4, 4)}
    assert tables.rows(table) == before
    assert record.flink_job_id is not None
    assert json.loads(record.before or "")["files"] == 8
    assert json.loads(record.after or "")["files"] == 5


def test_small_files_of_an_append_table_become_one(tables: Tables) -> None:
    table = tables.make("appended", "id INT, v STRING", bucket="-1")
    tables.fill(table, lambda n: f"({n}, 'x')", 12)
    before = tables.rows(table)
    policy = MaintenancePolicy(TablePolicy(compact=CompactSpec(small_files=5)))
    outcome = maintain(tables.keeper, policy, [table], holder="a test")
    assert [(r.kind, r.state, r.error) for r in outcome.done] == [
        ("compact", ActionState.DONE, None)
    ]
    assert tables.facts(table).files == 1
    assert tables.rows(table) == before
    assert maintain(tables.keeper, policy, [table], holder="a test").done == ()


def test_partitions_with_awkward_values_and_null_are_compacted(tables: Tables) -> None:
    table = tables.make("awkward", "id INT, dt STRING", partitioned=True, bucket="-1")
    tables.fill(
        table, lambda n: f"({n}, 'a,b=c;d'), ({n}, 'it''s'), ({n}, CAST(NULL AS STRING))", 6
    )
    policy = MaintenancePolicy(TablePolicy(compact=CompactSpec(small_files=5)))
    (record,) = maintain(tables.keeper, policy, [table], holder="a test").done
    assert (record.state, record.error) == (ActionState.DONE, None)
    assert {b.partition[0][1]: b.files for b in tables.facts(table).buckets} == {
        "a,b=c;d": 1,
        "it's": 1,
        None: 1,
    }


def test_small_tables_share_one_flink_job(tables: Tables) -> None:
    names = [tables.make(f"t{n}", "id INT", bucket="-1") for n in range(2)]
    other = tables.make("t0_other", "id INT", bucket="-1")
    for table in (*names, other):
        tables.fill(table, lambda n: f"({n})", 6)
    records = done(tables, *(Action(t, ActionKind.COMPACT_FULL, "a test") for t in names))
    assert len({record.flink_job_id for record in records}) == 1
    assert [tables.facts(table).files for table in (*names, other)] == [1, 1, 6]


def test_old_snapshots_expire_in_as_many_calls_as_it_takes(tables: Tables) -> None:
    table = "m.many"
    many = Writer(
        tables.warehouse, table, pa.schema([("id", pa.int32())]), options={"bucket": "-1"}
    )
    for number in range(60):
        many.append([{"id": number}])
    before = tables.rows(table)
    assert tables.facts(table).snapshot_count == 60
    done(tables, Action(table, ActionKind.EXPIRE_SNAPSHOTS, "a test", keep=4, older_than=now()))
    facts = tables.facts(table)
    assert (facts.snapshot_count, facts.oldest_snapshot_id) == (4, 57)
    assert tables.rows(table) == before


def test_snapshots_younger_than_the_bound_stay(tables: Tables) -> None:
    table = tables.make("young", "id INT", bucket="-1")
    tables.fill(table, lambda n: f"({n})", 3)
    bound = now()
    tables.fill(table, lambda n: f"({n})", 2)
    done(tables, Action(table, ActionKind.EXPIRE_SNAPSHOTS, "a test", keep=1, older_than=bound))
    assert tables.facts(table).oldest_snapshot_id in (3, 4)


def test_partitions_whose_time_is_past_go_and_unread_ones_stay(tables: Tables) -> None:
    table = tables.make("days", "id INT, dt STRING", partitioned=True, bucket="-1")
    tables.fill(table, lambda _: "(1, '20200101'), (2, '20200102'), (3, '29990101'), (4, 'x')", 1)
    policy = MaintenancePolicy(
        TablePolicy(partitions=PartitionExpirySpec("30d", format="%Y%m%d", partitions_a_run=1))
    )
    for left in ({"20200102", "29990101", "x"}, {"29990101", "x"}):
        outcome = maintain(tables.keeper, policy, [table], holder="a test")
        assert [(r.kind, r.error) for r in outcome.done] == [("partition expiry", None)]
        assert {b.partition[0][1] for b in tables.facts(table).buckets} == left
        assert "1 partitions stay" in outcome.decisions[0].held_back[0]
    assert maintain(tables.keeper, policy, [table], holder="a test").done == ()


def test_old_tags_go_unless_a_branch_stands_on_them(tables: Tables) -> None:
    table = tables.make("tagged", "id INT", bucket="-1")
    tables.fill(table, lambda n: f"({n})", 1)
    tables.run(
        f"CALL sys.create_tag('{table}', 'old')",
        f"CALL sys.create_tag('{table}', 'branched')",
        f"CALL sys.create_branch('{table}', 'fix', 'branched')",
    )
    policy = MaintenancePolicy(TablePolicy(tags=TagSpec("1ms")))
    outcome = maintain(tables.keeper, policy, [table], holder="a test")
    assert [(r.kind, r.error) for r in outcome.done] == [("tag expiry", None)]
    assert set(tables.facts(table).tags) == {"branched"}
    assert outcome.decisions[0].held_back == ("Tags stay, as branches stand on them: branched.",)
    assert tables.rows(table) == [(0,)]


def test_manifests_are_merged(tables: Tables) -> None:
    table = tables.make("manifests", "id INT", bucket="-1")
    tables.fill(table, lambda n: f"({n})", 6)
    assert tables.facts(table).manifest_files == 6
    policy = MaintenancePolicy(TablePolicy(manifests=ManifestSpec(files=5)))
    (record,) = maintain(tables.keeper, policy, [table], holder="a test").done
    assert record.error is None
    assert tables.facts(table).manifest_files < 6


def test_orphans_are_found_and_not_removed_before_a_day_has_passed(
    tables: Tables,
) -> None:
    import os
    import time

    table = tables.make("orphans", "id INT", bucket="-1")
    tables.fill(table, lambda n: f"({n})", 1)
    bucket = next((tables.lab.folder / "warehouse").rglob("bucket-0"))
    orphan, young = bucket / "data-lost-0.parquet", bucket / "data-young-0.parquet"
    for file, days in ((orphan, 9), (young, 2)):
        file.write_bytes(b"x" * 100)
        os.utime(file, (time.time() - days * 86400,) * 2)
    policy = MaintenancePolicy(TablePolicy(orphans=OrphanSpec(every="30d", older_than="3d")))
    (search,) = maintain(tables.keeper, policy, [table], holder="a test").done
    assert search.kind == "orphan search"
    assert json.loads(search.after or "")["orphan_files"] == 1
    assert maintain(tables.keeper, policy, [table], holder="a test").done == ()
    assert orphan.exists()
    bound = now() - timedelta(days=3)
    done(tables, Action(table, ActionKind.REMOVE_ORPHANS, "a test", older_than=bound))
    assert (orphan.exists(), young.exists()) == (False, True)
    assert tables.rows(table) == [(0,)]


def test_an_action_that_the_engine_refuses_is_a_failure_with_its_reason(tables: Tables) -> None:
    table = tables.make("there", "id INT", bucket="-1")
    tables.fill(table, lambda n: f"({n})", 1)
    wrong = Action(table, ActionKind.COMPACT_FULL, "a test", partitions=((("nope", "a"),),))
    with tables.keeper.hold([table], "a test") as held:
        (record,) = perform(held, ActionGroup((wrong,)), Performing())
    assert record.state is ActionState.FAILED
    assert "was not begun: " in str(record.error)
    assert "Cannot find field: nope" in str(record.error)


def test_policies_of_expiry_apply_to_real_snapshots(tables: Tables) -> None:
    table = tables.make("expiring", "id INT", **{"bucket": "-1", "snapshot.num-retained.min": "99"})
    tables.fill(table, lambda n: f"({n})", 6)
    policy = MaintenancePolicy(TablePolicy(expire=ExpireSpec(keep_at_least=2, keep_for="1ms")))
    (record,) = maintain(tables.keeper, policy, [table], holder="a test").done
    assert (record.kind, record.error) == ("snapshot expiry", None)
    assert tables.facts(table).snapshot_count == 2

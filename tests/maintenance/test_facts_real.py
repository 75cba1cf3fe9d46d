"""Facts that are brought forward equal a full reading, whatever Flink did to the table."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.perform import Performing, perform
from lakehouse_dagster.paimon.file_facts import InMemory
from lakehouse_dagster.streaming.runtime import utc_now
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

OPTIONS = {
    "bucket": "1",
    "write-only": "true",
    "deletion-vectors.enabled": "true",
    "changelog-producer": "lookup",
}
STEPS = (
    "INSERT INTO m.f VALUES ('a', 1, 'x'), ('b', 1, 'x')",
    "INSERT INTO m.f VALUES ('a', 1, 'y'), ('a', 2, 'y')",
    "CALL sys.compact(`table` => 'm.f', compact_strategy => 'full')",
    "INSERT INTO m.f VALUES ('a', 1, 'z')",
    "CALL sys.compact(`table` => 'm.f', compact_strategy => 'minor')",
    "CALL sys.create_tag('m.f', 'kept')",
    "CALL sys.create_branch('m.f', 'fix', 'kept')",
    "INSERT INTO m.`f$branch_fix` VALUES ('c', 1, 'branch')",
    "ALTER TABLE m.f ADD more INT",
    "INSERT INTO m.f VALUES ('c', 1, 'x', 7)",
    "INSERT OVERWRITE m.f PARTITION (dt = 'b') VALUES (5, 'only', 1)",
    "CALL sys.reset_consumer('m.f', 'somebody', 4)",
    "ALTER TABLE m.f SET ('bucket' = '2')",
    "CALL sys.rescale(`table` => 'm.f', bucket_num => 2, `partition` => 'dt=a')",
    "CALL sys.expire_snapshots(`table` => 'm.f', retain_max => 3, retain_min => 1)",
)


def test_facts_brought_forward_equal_a_full_reading_after_each_step(lab: Laboratory) -> None:
    tables = Tables(lab)
    tables.make(
        "f",
        "dt STRING, id INT, v STRING, PRIMARY KEY (dt, id) NOT ENFORCED",
        partitioned=True,
        **OPTIONS,
    )
    reader, store = lab.catalog.open().table("m.f"), InMemory()
    assert reader.facts(store) == tables.facts("m.f")
    deleted = 0
    for step in STEPS:
        tables.run(step)
        facts = reader.facts(store)
        assert facts == tables.facts("m.f"), step
        assert facts.problem is None, step
        deleted = max(deleted, sum(bucket.deleted_records for bucket in facts.buckets))
    assert deleted > 0
    assert facts.tags["kept"].created_at is not None
    assert facts.branches["fix"].tags == ("kept",)
    assert facts.consumers["somebody"].next_snapshot == 4
    assert facts.oldest_snapshot_id == 4  # the consumer's, whatever else was asked for
    ((files, size),) = tables.ask("SELECT COUNT(*), SUM(file_size_in_bytes) FROM m.`f$files`")
    assert (facts.files, facts.size_bytes) == (files, size)
    ((snapshots,),) = tables.ask("SELECT COUNT(*) FROM m.`f$snapshots`")
    assert facts.snapshot_count == snapshots


def test_changelogs_beside_snapshots_are_kept_by_their_own_policy(lab: Laboratory) -> None:
    tables = Tables(lab)
    table = tables.make(
        "c",
        "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED",
        partitioned=False,
        **{
            "bucket": "1",
            "changelog-producer": "input",
            "snapshot.num-retained.min": "2",
            "snapshot.num-retained.max": "2",
            "changelog.num-retained.min": "90",
            "changelog.num-retained.max": "99",
        },
    )
    tables.fill(table, lambda n: f"(1, {n})", 9)
    facts = tables.facts(table)
    newest = facts.changelog_count  # some of the INSERTs committed a compaction as well
    assert (facts.oldest_changelog_id, facts.snapshot_count) == (1, 2)
    assert facts.snapshot_id == newest + 2
    for needed, oldest in ((3, 3), (None, newest - 1)):
        action = Action(
            table,
            ActionKind.EXPIRE_CHANGELOGS,
            "a test",
            keep=2,
            older_than=utc_now() + timedelta(hours=1),
            needed_from=needed,
        )
        with tables.keeper.hold([table], "a test") as held:
            (record,) = perform(held, ActionGroup((action,)), Performing())
        assert (record.state, record.error) == (ActionState.DONE, None)
        assert lab.catalog.open().table(table).changelog_ids() == tuple(range(oldest, newest + 1))
    assert tables.rows(table) == [(1, 8)]

"""Commits that maintenance makes beside a writer are told from those of strangers."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.own_commits import will_commit
from lakehouse_dagster.maintenance.perform import Performing, perform, settle_all
from lakehouse_dagster.streaming.foreign_commits import ForeignCommits, look_for_foreign_commits
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
from tests.support.fixtures import lab
from tests.support.laboratory import TABLE, Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

SCRIPT = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.copied (id BIGINT, dt STRING) PARTITIONED BY (dt)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE incoming (id BIGINT, text STRING, amount INT) WITH (
  'connector' = 'filesystem', 'path' = '${{LAB}}/incoming', 'format' = 'json',
  'source.monitor-interval' = '200ms'
);
INSERT INTO ods.copied SELECT id, CONCAT('d', CAST(id AS STRING)) FROM incoming;
"""


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    """A running job of ours that writes four rows into as many partitions."""
    lab.script.write_text(SCRIPT.format(name=lab.job))
    lab.start()
    lab.source.write(4)
    made = Tables(lab)
    until(lambda: made.facts(TABLE).files == 4, "rows of the writer")
    return made


def others(tables: Tables) -> ForeignCommits:
    return look_for_foreign_commits(tables.keeper.runtime, TABLE)


def test_partitions_that_maintenance_drops_are_no_strangers_doing(tables: Tables) -> None:
    assert others(tables) == ForeignCommits(())
    action = Action(
        TABLE,
        ActionKind.EXPIRE_PARTITIONS,
        "a test",
        partitions=((("dt", "d1"),), (("dt", "d2"),)),
    )
    with tables.keeper.hold([TABLE], "a test") as held:
        (record,) = perform(held, ActionGroup((action,)), Performing())
    assert (record.state, record.error) == (ActionState.DONE, None)
    newest = tables.lab.catalog.open().table(TABLE).newest_snapshots(100)
    dropped = [s.commit_user for s in newest if s.commit_kind == "OVERWRITE"]
    assert json.loads(record.details)["commit_users"] == dropped
    assert len(dropped) == 1
    assert others(tables) == ForeignCommits(())


def test_of_a_run_that_died_it_is_known_once_it_is_settled(tables: Tables) -> None:
    actions = tables.keeper.actions
    details = json.dumps(
        {"calls": 1, **will_commit(tables.facts(TABLE).snapshot_id, only_removes=True)}
    )
    actions.begin(
        TABLE, "partition expiry", reason="", details=details, holder="a dead run", before=None
    )
    tables.run(f"CALL sys.drop_partition('{TABLE}', 'dt=d1')")
    meanwhile = others(tables)
    assert (meanwhile.users, meanwhile.passed) == (None, True)
    assert "maintenance that commits to this table is under way" in str(meanwhile)
    assert settle_all(tables.keeper, "a test", logging.getLogger("test")) == ()
    assert actions.running() == ()
    assert others(tables) == ForeignCommits(())


def test_a_stranger_who_overwrites_while_partitions_are_dropped_is_told(tables: Tables) -> None:
    actions = tables.keeper.actions
    before = tables.facts(TABLE).snapshot_id
    details = json.dumps({"calls": 1, **will_commit(before, only_removes=True)})
    actions.begin(
        TABLE, "partition expiry", reason="", details=details, holder="a dead run", before=None
    )
    tables.run(
        f"CALL sys.drop_partition('{TABLE}', 'dt=d1')",
        f"INSERT OVERWRITE {TABLE} PARTITION (dt = 'd2') VALUES (99)",
    )
    assert settle_all(tables.keeper, "a test", logging.getLogger("test")) == ()
    newest = tables.lab.catalog.open().table(TABLE).newest_snapshots(100)
    _, stranger = [s.commit_user for s in newest if s.commit_kind == "OVERWRITE"]
    assert others(tables) == ForeignCommits((stranger,))
    # A month later what we did is forgotten, and so is what others did.
    later = Clock(now=lambda: utc_now() + timedelta(days=31))
    runtime = replace(tables.keeper.runtime, clock=later)
    assert look_for_foreign_commits(runtime, TABLE) == ForeignCommits(())

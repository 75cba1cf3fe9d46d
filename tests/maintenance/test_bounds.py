"""What the checks say of a table's files and snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakehouse_dagster.maintenance.actions import Situation
from lakehouse_dagster.maintenance.bounds import COMPACTION_BACKLOG, EXPIRY_LAG, outcomes
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.spec import Compaction, ExpireSpec, TablePolicy
from lakehouse_dagster.maintenance.survey import Looked
from lakehouse_dagster.paimon.file_facts import TableFacts, TableKind
from lakehouse_dagster.streaming.checks import CheckOutcome
from tests.maintenance.facts import NOW, bucket, table


def outcome(name: str, facts: TableFacts, policy: TablePolicy, **situation: Any) -> CheckOutcome:
    seen = Situation(**situation)
    return outcomes(Looked(facts, seen, decide(facts, policy, seen, NOW)), policy, NOW)[name]


def test_files_of_an_append_table_wait_for_no_merge() -> None:
    many = bucket(files=90, level0_files=90)
    appended = table(many, kind=TableKind.APPEND)
    found = outcome(COMPACTION_BACKLOG, appended, TablePolicy())
    assert (found.passed, found.text) == (
        True,
        "No files of an append table wait to be merged by key.",
    )
    assert appended.level0_files == 0
    assert not outcome(COMPACTION_BACKLOG, table(many), TablePolicy()).passed


def test_a_backlog_says_that_nobody_compacts_the_table() -> None:
    facts = table(bucket(files=90, level0_files=90), options={"write-only": "true"})
    found = outcome(
        COMPACTION_BACKLOG, facts, TablePolicy(Compaction.DEDICATED), compaction_job="compact-o"
    )
    assert not found.passed
    assert "Nobody compacts it: it is write-only, and its compaction job compact-o" in found.text


@pytest.mark.parametrize("keep_for", ["1h", "1d", "30d"])
def test_expiry_does_not_lag_before_it_is_due(keep_for: str) -> None:
    policy = TablePolicy(expire=ExpireSpec(keep_for=keep_for))

    def found(hours: float) -> tuple[bool, bool]:
        at = NOW - timedelta(hours=hours)
        facts = table(bucket(), snapshot_count=60, oldest_snapshot_id=41, oldest_snapshot_at=at)
        due = bool(decide(facts, policy, Situation(), NOW).actions)
        return due, outcome(EXPIRY_LAG, facts, policy).passed

    due_after = {"1h": 1.1, "1d": 26.4, "30d": 726.0}[keep_for]
    assert found(due_after - 0.01) == (False, True)
    assert found(due_after + 23.9) == (True, True)
    assert found(due_after + 24.1) == (True, False)

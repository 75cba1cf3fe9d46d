"""What was done on a table, as a look finds it on record while others act."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_dagster.maintenance.actions import ActionKind, Past
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.situation import Surroundings
from lakehouse_dagster.maintenance.spec import TablePolicy
from lakehouse_dagster.system_db.maintenance_actions import ActionState, MaintenanceActions
from tests.maintenance.facts import NOW, bucket, table
from tests.streaming import making


def test_a_search_that_ends_while_a_look_reads_the_record_counts_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {"o": making.table("ods.o") + making.source("x") + making.job("o", "ods.o", "x")}
    keeper = Keeper(making.load(tmp_path, scripts).runtime)
    facts = table(bucket())
    record = keeper.actions.begin(
        facts.table,
        ActionKind.FIND_ORPHANS.value,
        reason="",
        details=f'{{"older_than": "{NOW.isoformat()}"}}',
        holder="a test",
        before=None,
    )
    found = Past(NOW + timedelta(minutes=1), found_files=3, found_bytes=30, older_than=NOW)
    before = keeper.actions.outcomes()
    assert before == ()
    keeper.actions.update(
        record.id,
        {
            "state": ActionState.DONE,
            "ended_at": found.done_at,
            "after": '{"orphan_files": 3, "orphan_bytes": 30}',
        },
    )

    def past() -> Past:
        situation = Surroundings(keeper).situation(facts, TablePolicy(), NOW)
        return situation.past[ActionKind.FIND_ORPHANS]

    assert past() == found
    monkeypatch.setattr(MaintenanceActions, "outcomes", lambda self: before)
    assert past() == found

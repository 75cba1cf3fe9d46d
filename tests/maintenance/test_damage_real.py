"""A data file that somebody deleted: found by a compaction, and then nothing is done any more."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_dagster.errors import MaintenanceRefusedError
from lakehouse_dagster.maintenance.checks import evaluate
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import compact_now, look, maintain
from lakehouse_dagster.maintenance.rescale import rescale
from lakehouse_dagster.maintenance.spec import (
    CheckBounds,
    CompactSpec,
    ExpireSpec,
    MaintenancePolicy,
    OrphanSpec,
    TablePolicy,
)
from lakehouse_dagster.maintenance.status import table_files
from lakehouse_dagster.maintenance.survey import survey
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState
from tests.maintenance.cases import T, small_files
from tests.maintenance.tables import Tables
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

POLICY = MaintenancePolicy(
    TablePolicy(
        compact=CompactSpec(small_files=5),
        expire=ExpireSpec(keep_at_least=1, keep_for="1ms"),
        orphans=OrphanSpec(older_than="1d"),
        bounds=CheckBounds(),
    )
)


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    """With an append table of six small files and as many snapshots."""
    made = Tables(lab)
    small_files(made, T)
    return made


@pytest.fixture
def file(tables: Tables) -> Path:
    """One of its data files."""
    return next(tables.folder(T).glob("bucket-0/*.parquet"))


def maintained(keeper: Keeper) -> list[tuple[str, ActionState]]:
    return [(r.kind, r.state) for r in maintain(keeper, POLICY, [T], holder="a test").done]


def found_gone(tables: Tables, file: Path) -> ActionRecord:
    """The compaction that meets the gap."""
    file.unlink()
    (record,) = maintain(tables.keeper, POLICY, [T], holder="a test").done
    assert (record.kind, record.state) == ("compact", ActionState.FAILED)
    return record


def test_a_file_that_is_gone_stops_everything_until_it_is_back(tables: Tables, file: Path) -> None:
    keeper, content = tables.keeper, file.read_bytes()
    error = found_gone(tables, file).error or ""
    assert file.name in error
    assert "Possible causes" not in error
    problem = f"its file bucket-0/{file.name} is gone"

    ((decision,), failures) = look(keeper, POLICY, [T])
    assert (decision.actions, failures) == ((), ())
    (why,) = decision.held_back
    assert why.startswith(f"Nothing is done to it: {problem}")
    assert maintained(keeper) == []
    ((_, looked),) = survey(keeper, POLICY, [T])
    checks = evaluate(keeper, POLICY, T, looked)
    assert set(checks) == {"small_files", "compaction_backlog", "expiry_lag", "orphan_files"}
    assert {c.passed for c in checks.values()} == {False}
    assert all(problem in c.text for c in checks.values())
    (of_status,) = table_files(keeper, None, [T])
    assert (of_status.problem or "").startswith(problem)
    (refused,) = compact_now(keeper, POLICY, [T], holder="a test").failures
    assert problem in str(refused.error)
    with pytest.raises(MaintenanceRefusedError, match="is gone"):
        rescale(keeper, T, 2, holder="a test")
    assert tables.facts(T).snapshot_count == 6

    file.write_bytes(content)
    assert maintained(keeper) == [("snapshot expiry", ActionState.DONE)]
    later = Clock(now=lambda: utc_now() + timedelta(minutes=6))
    assert maintained(Keeper(tables.lab.runtime(clock=later))) == [("compact", ActionState.DONE)]
    assert tables.rows(T) == [(str(n),) for n in range(6)]
    assert keeper.actions.unmended("FileNotFoundException") == {}


def test_a_file_that_is_needed_no_longer_holds_nothing_back(tables: Tables, file: Path) -> None:
    found_gone(tables, file)
    assert maintained(tables.keeper) == []
    tables.run(f"INSERT OVERWRITE {T} VALUES ('7')")
    assert maintained(tables.keeper) == [("snapshot expiry", ActionState.DONE)]
    assert tables.rows(T) == [("7",)]

"""A batch compaction beside a writer that compacts itself: retried, counted, and no row lost."""

from __future__ import annotations

import threading

import pytest

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.perform import Performing, perform
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState
from tests.maintenance.written import Written
from tests.support.fixtures import lab
from tests.support.laboratory import TABLE, Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink]

ROUNDS = 6


def test_compactions_that_lose_are_tried_again_and_restarts_of_the_writer_are_counted(
    lab: Laboratory,
) -> None:
    written = Written(lab, MaintenancePolicy())
    written.declare(keyed=True, **{"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    lab.source.write(20)
    writer = written.start().flink_job_id
    written.checkpoint(writer)
    done = threading.Event()

    def write() -> None:
        while not done.wait(0.2):
            lab.source.write(20)

    thread = threading.Thread(target=write)
    thread.start()
    records: list[ActionRecord] = []
    try:
        while len(records) < ROUNDS and not _met(records):
            action = Action(TABLE, ActionKind.COMPACT_FULL, "a test")
            with written.keeper.hold([TABLE], "a test") as held:
                how = Performing(attempts=2, first_pause_seconds=1)
                records += perform(held, ActionGroup((action,)), how)
    finally:
        done.set()
        thread.join()
    assert _met(records), f"no conflict in {ROUNDS} compactions"
    for record in records:
        if record.state is not ActionState.DONE:
            assert (record.state, record.attempts) == (ActionState.FAILED, 2)
            assert "conflict" in (record.error or "").lower()
            assert "compaction: dedicated" in (record.error or "")
    lab.copied_exactly(writer)
    # A writer that notices only at a later commit than the ones waited for is not counted.
    counted = sum(record.writer_restarts for record in records)
    assert counted <= written.restarts(writer) <= counted + 1


def _met(records: list[ActionRecord]) -> bool:
    return any(record.attempts > 1 or record.writer_restarts for record in records)

"""Tables with deletion vectors are compacted by one alone: else replaced rows come back."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import compact_now, look
from lakehouse_dagster.maintenance.spec import CompactSpec, MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from tests.maintenance.tables import Tables
from tests.maintenance.written import Written
from tests.support.by_hand import submit_by_hand
from tests.support.faults import HeldFile
from tests.support.fixtures import lab
from tests.support.laboratory import TABLE, Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

MARKING = {"deletion-vectors.enabled": "true"}


def test_paimon_sees_no_conflict_between_a_compaction_and_marks_that_are_set_meanwhile(
    lab: Laboratory,
) -> None:
    """Why such a table gets no batch compaction; once this fails, Paimon has mended it."""
    tables = Tables(lab)
    key = "id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
    table = tables.make("marked", key, **{"bucket": "2", **MARKING})
    for first, last in ((0, 2000), (2000, 2040)):  # one after the other: two levels in a bucket
        rows = ", ".join(f"({number}, 'old')" for number in range(first, last))
        tables.run(f"INSERT INTO {table} VALUES {rows}")
    live = "SELECT bucket, file_path FROM m.`marked$files` ORDER BY bucket, level"
    files = [(number, Path(str(path).removeprefix("file:"))) for number, path in tables.ask(live)]
    assert [number for number, _ in files] == [0, 0, 1, 1]
    replaced = sorted(pq.read_table(files[1][1])["id"].to_pylist())[:5]

    compaction = threading.Thread(
        target=tables.run,
        args=(f"CALL sys.compact(`table` => '{table}', compact_strategy => 'full')",),
    )
    with HeldFile(files[-1][1]) as file:  # of the other bucket: the INSERT does not need it
        file.take()
        compaction.start()
        file.wait_until_wanted()
        news = ", ".join(f"({number}, 'new')" for number in replaced)
        Tables(lab).run(f"INSERT INTO {table} VALUES {news}")
        file.let_go()
        compaction.join()
    assert tables.ask(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {table}") == [(2045, 2040)]


def test_nobody_compacts_it_by_hand_beside_its_writer(lab: Laboratory) -> None:
    written = Written(lab, MaintenancePolicy(TablePolicy()))
    written.declare(bucket="1", **MARKING)
    written.start()
    written.write(1)
    refused = compact_now(written.keeper, written.policy, [TABLE], holder="a test")
    assert refused.done == ()
    (failure,) = refused.failures
    assert f"{TABLE} is compacted by {lab.job}" in failure.error.message
    assert failure.error.remedy == f"Stop it first: lakehouse jobs stop {lab.job}."
    lab.stop(written.runtime)
    (record,) = compact_now(written.keeper, written.policy, [TABLE], holder="a test").done
    assert record.error is None
    lab.copied()


def test_nobody_compacts_it_beside_a_foreign_writer_and_for_a_day_after_it(
    lab: Laboratory,
) -> None:
    policy = MaintenancePolicy(TablePolicy(compact=CompactSpec(deleted_share=0.01), expire=None))
    written = Written(lab, policy)
    written.declare(bucket="1", **MARKING)
    job_id = submit_by_hand(lab)
    written.write(1)
    ids = [row.id for row in lab.source.rows]
    tables = Tables(lab)
    replaced = ", ".join(f"({number}, 'by hand', 0)" for number in ids[:5])
    tables.run(f"INSERT INTO {TABLE} VALUES {replaced}")  # a batch job: it is over
    assert sum(b.deleted_records for b in written.facts().buckets) == 5

    (decision,) = look(written.keeper, policy, [TABLE])[0]
    assert decision.actions == ()
    (why,) = decision.held_back
    refused = compact_now(written.keeper, policy, [TABLE], holder="a test")
    assert refused.done == ()
    (failure,) = refused.failures
    assert "such as a foreign one (commit user " in why
    assert f"{TABLE} is compacted by commit user " in failure.error.message
    # It runs on, and may have committed between the two.
    newest = lab.catalog.open().table(TABLE).newest_snapshots(100)
    streamed = [snapshot for snapshot in newest if snapshot.commit_identifier < 1_000_000]
    (user,) = {snapshot.commit_user for snapshot in streamed}
    times = {f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}" for snapshot in streamed}
    for text in (why, failure.error.message):
        told = re.search(r"commit user (\S+), which last committed (\S+ \S+) UTC", text)
        assert told is not None
        assert (told[1], told[2] in times) == (user, True)
    assert "Stop what commits under a user" in str(failure.error.remedy)

    with lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
    tomorrow = Clock(now=lambda: utc_now() + timedelta(days=1))
    keeper = Keeper(replace(written.runtime, clock=tomorrow))
    (record,) = compact_now(keeper, policy, [TABLE], holder="a test").done
    assert record.error is None
    assert len(tables.rows(TABLE)) == len(ids)

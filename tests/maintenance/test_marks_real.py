"""Tables with deletion vectors are compacted by one alone: else replaced rows come back."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakehouse_dagster.maintenance.maintain import compact_now
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from tests.maintenance.tables import Tables
from tests.maintenance.written import Written
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

"""What a lagging reader of ours needs is never removed, whether it runs or is stopped."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import look, maintain
from lakehouse_dagster.maintenance.read_again import read_again
from lakehouse_dagster.maintenance.spec import ExpireSpec, MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.runtime import Runtime
from tests.maintenance.tables import Tables
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

EXPIRING = MaintenancePolicy(
    TablePolicy(compact=None, expire=ExpireSpec(keep_at_least=1, keep_for="1ms"))
)
READER = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '300ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS m;
CREATE TABLE IF NOT EXISTS m.read (id INT) WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS m.written (id INT, part INT) PARTITIONED BY (part)
WITH ('bucket' = '-1', 'write-only' = 'true');
INSERT INTO m.read SELECT id FROM m.written {options};
"""
SLOWLY = "/*+ OPTIONS('continuous.discovery-interval' = '100 ms') */ WHERE {slow} IS NOT NULL"
# Some hundredths of a second for each row: splits are read one after the other.
SLOW = "SHA512(REPEAT(SHA512(REPEAT(CAST(id AS STRING), 200000)), 30000))"


class Reading:
    """A job that reads ``m.written`` row by row, and what maintenance thinks of it."""

    def __init__(self, lab: Laboratory, options: str) -> None:
        self.lab, self.name = lab, f"{lab.job}-reader"
        script = lab.folder / "reader.sql"
        script.write_text(READER.format(name=self.name, options=options))
        self.runtime: Runtime = lab.runtime(script)
        self.tables = Tables(lab)
        self.keeper = Keeper(self.runtime)

    def start(self) -> str:
        return self.lab.start(self.runtime, job=self.name).flink_job_id

    def write(self, snapshots: int, rows: int, first: int) -> None:
        """Commit so many snapshots of so many rows, each in a file of its own."""
        self.tables.run(
            *(
                "INSERT INTO m.written VALUES "
                + ", ".join(f"({first + number * rows + row}, {row})" for row in range(rows))
                for number in range(snapshots)
            )
        )

    def needed(self) -> int | None:
        """The first snapshot that maintenance believes the job to need."""
        (reader,) = read_again(self.runtime)
        return reader.tables["m.written"]

    def ids(self) -> Counter[object]:
        return Counter(row[0] for row in self.tables.rows("m.read"))

    def expire(self) -> None:
        outcome = maintain(self.keeper, EXPIRING, ["m.written"], holder="a test")
        assert [(r.kind, r.error) for r in outcome.done if r.error] == []
        assert outcome.failures == ()


def test_a_stopped_reader_with_unread_splits_keeps_their_snapshot_and_loses_nothing(
    lab: Laboratory,
) -> None:
    reading = Reading(lab, SLOWLY.format(slow=SLOW))
    reading.tables.run(
        "CREATE TABLE IF NOT EXISTS m.written (id INT, part INT) PARTITIONED BY (part) "
        "WITH ('bucket' = '-1', 'write-only' = 'true')"
    )
    reading.write(3, 60, 0)
    reading.start()
    until(lambda: reading.ids() or None, "the first rows")
    lab.stop(reading.runtime, job=reading.name)
    read = len(reading.ids())
    assert 0 < read < 180, "the reader is to be stopped while splits are pending"
    assert reading.needed() == 3
    reading.write(6, 1, 180)
    # By hand: nothing but the snapshots tells that the files of the third are still needed.
    reading.tables.run("CALL sys.compact(`table` => 'm.written', compact_strategy => 'full')")
    reading.expire()
    facts = reading.tables.facts("m.written")
    assert (facts.oldest_snapshot_id, facts.snapshot_id) == (3, 10)
    (decision,) = look(reading.keeper, EXPIRING, ["m.written"])[0]
    assert f"streaming job {reading.name} (needs snapshot 3)" in decision.held_back[0]
    reading.start()
    until(lambda: len(reading.ids()) == 186 or None, "all rows", seconds=120)
    assert reading.ids() == Counter(range(186))
    until(lambda: (reading.needed() or 0) > 10 or None, "the reader has caught up")
    reading.expire()
    assert reading.tables.facts("m.written").oldest_snapshot_id == 10


def test_expiry_beside_a_running_reader_loses_nothing(lab: Laboratory) -> None:
    reading = Reading(lab, SLOWLY.format(slow=SLOW))
    reading.tables.run(
        "CREATE TABLE IF NOT EXISTS m.written (id INT, part INT) PARTITIONED BY (part) "
        "WITH ('bucket' = '-1', 'write-only' = 'true')"
    )
    reading.write(1, 30, 0)
    job = reading.start()
    lab.wait_for_checkpoints(job, 1)
    for number in range(6):
        reading.write(1, 10, 30 + 10 * number)
        reading.expire()
        # Asked afterwards: the reader may have got on between the two, never back.
        needed = reading.needed()
        oldest = reading.tables.facts("m.written").oldest_snapshot_id or 0
        assert needed is None or oldest <= needed
    until(lambda: len(reading.ids()) == 90 or None, "all rows", seconds=120)
    assert reading.ids() == Counter(range(90))
    assert lab.checkpoints(job).restored_count == 0
    assert ActionKind.EXPIRE_SNAPSHOTS.value in {
        record.kind for record in reading.keeper.actions.of_table("m.written")
    }

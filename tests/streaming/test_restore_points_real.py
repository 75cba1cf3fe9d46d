"""What restore points say is what was really read, and tidying costs no row: on a real cluster."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lakehouse_dagster.flink import (
    CheckpointMetadata,
    SourceKind,
    known_checkpoint_metadata,
    read_checkpoint_metadata,
)
from lakehouse_dagster.streaming.lag import lag_now
from lakehouse_dagster.streaming.positions import read_positions
from lakehouse_dagster.streaming.retention import tidy
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.system_db import Incarnation
from tests.support.fixtures import lab as lab
from tests.support.laboratory import TABLE, Laboratory, until

pytestmark = pytest.mark.flink

MIRROR = "dws.mirror"
COUNTS = "dws.per_amount"

HEAD = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '400ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS dws;
"""
INTO_MIRROR = """\
CREATE TABLE IF NOT EXISTS dws.mirror (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
INSERT INTO dws.mirror SELECT id, text, amount FROM ods.copied /*+ OPTIONS({options}) */;
"""
INTO_COUNTS = """\
CREATE TABLE IF NOT EXISTS dws.per_amount (amount INT, n BIGINT, PRIMARY KEY (amount) NOT ENFORCED)
WITH ('bucket' = '1');
INSERT INTO dws.per_amount SELECT amount, COUNT(*) FROM ods.copied GROUP BY amount;
"""
QUICK = "'continuous.discovery-interval' = '100 ms'"
CONSUMER = f"{QUICK}, 'consumer-id' = 'mirror', 'consumer.expiration-time' = '1 d'"


class Downstream:
    """A second job of the laboratory, which reads what the first one writes."""

    def __init__(self, lab: Laboratory, insert: str) -> None:
        self.lab = lab
        self.name = f"{lab.job}-down"
        script = lab.folder / "down.sql"
        script.write_text(HEAD.format(name=self.name) + insert)
        self.runtime: Runtime = lab.runtime(lab.script, script)

    def start(self) -> str:
        """Start it; its Flink job id."""
        return self.lab.start(self.runtime, job=self.name).flink_job_id

    def stop(self) -> str:
        """Stop it; the savepoint's path."""
        path = self.lab.stop(self.runtime, job=self.name).savepoint_path
        assert path is not None
        return path

    @property
    def latest(self) -> Incarnation:
        found = self.runtime.memory.latest(self.name)
        assert found is not None
        return found

    def newest_checkpoint(self, flink_job_id: str) -> CheckpointMetadata | None:
        newest = self.lab.checkpoints(flink_job_id).latest_completed
        return known_checkpoint_metadata(newest.external_path) if newest else None


def rows(lab: Laboratory, table: str, snapshot: int | None = None) -> Counter[tuple[object, ...]]:
    data = lab.catalog.open().table(table).read(snapshot_id=snapshot).to_pylist()
    return Counter(tuple(row.values()) for row in data)


def committed_by(lab: Laboratory, table: str) -> dict[int, int]:
    """The newest snapshot that each Flink checkpoint committed."""
    reader = lab.catalog.open().table(table)
    span = reader.snapshots(0, reader.latest_snapshot_id() or 0)
    return {snapshot.commit_identifier: snapshot.id for snapshot in span.snapshots}


def checkpoints_seen(
    lab: Laboratory, flink_job_id: str, keep: Path, work: Callable[[], bool]
) -> list[CheckpointMetadata]:
    """Copies the metadata of every checkpoint that comes by while ``work`` has more to do."""
    seen: dict[str, CheckpointMetadata] = {}
    while work():
        for file in (lab.folder / "checkpoints" / flink_job_id).glob("chk-*/_metadata"):
            if file.parent.name in seen:
                continue
            copy = keep / file.parent.name
            copy.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy(file, copy / "_metadata")
            except FileNotFoundError:
                continue  # replaced meanwhile
            metadata = known_checkpoint_metadata(str(copy))
            if metadata is not None:
                seen[file.parent.name] = metadata
    return list(seen.values())


def writing(lab: Laboratory, batches: int) -> Callable[[], bool]:
    """Writes one file after the other, each when the one before has become a snapshot."""
    reader = lab.catalog.open().table(TABLE)
    left = iter(range(batches))
    at: list[int | None] = [None]

    def more() -> bool:
        latest = reader.latest_snapshot_id()
        if latest == at[0] and latest is not None:
            return True
        at[0] = latest
        if next(left, None) is None:
            return False
        lab.source.write(40)
        return True

    return more


@pytest.mark.every_engine
@pytest.mark.parametrize("options", [QUICK, CONSUMER], ids=["source", "consumer"])
def test_the_rows_of_an_exact_checkpoint_are_those_before_its_position(
    lab: Laboratory, options: str, tmp_path: Path
) -> None:
    lab.start()
    lab.source.write(40)
    lab.copied()
    down = Downstream(lab, INTO_MIRROR.format(options=options))
    job_id = down.start()
    seen = checkpoints_seen(lab, job_id, tmp_path / "seen", writing(lab, 12))
    lab.copied()
    until(lambda: rows(lab, MIRROR).total() == lab.source.last, "all rows mirrored")
    lab.wait_for_checkpoints(job_id)

    snapshots = committed_by(lab, MIRROR)
    compared = 0
    for metadata in seen:
        (position,) = metadata.positions
        assert position.kind is SourceKind.PAIMON
        if not position.exact or metadata.checkpoint_id not in snapshots:
            continue
        assert position.next_snapshot is not None
        mirrored = rows(lab, MIRROR, snapshots[metadata.checkpoint_id])
        assert mirrored == rows(lab, TABLE, position.next_snapshot - 1)
        compared += 1
    assert compared >= 3

    savepoint = read_checkpoint_metadata(down.stop())
    latest = lab.catalog.open().table(TABLE).latest_snapshot_id()
    assert latest is not None
    (position,) = savepoint.positions
    assert savepoint.savepoint
    assert (position.next_snapshot, position.exact) == (latest + 1, True)


@pytest.mark.every_engine
def test_the_state_of_an_aggregate_and_of_a_folder_is_seen(lab: Laboratory) -> None:
    copy = lab.start()
    lab.source.write(100)
    lab.copied()
    down = Downstream(lab, INTO_COUNTS)
    job_id = down.start()
    until(lambda: sum(n for _, n in rows(lab, COUNTS)) == 100, "all rows counted")  # type: ignore[misc]
    lab.wait_for_checkpoints(job_id)
    savepoint = read_checkpoint_metadata(down.stop())
    (aggregate,) = [operator for operator in savepoint.operators if operator.has_keyed_state]
    assert aggregate.size_bytes > 1000
    assert savepoint.size_bytes >= aggregate.size_bytes

    lab.wait_for_checkpoints(copy.flink_job_id, 1)
    read = read_checkpoint_metadata(str(lab.stop().savepoint_path))
    (folder,) = read.positions
    assert folder.kind is SourceKind.OTHER
    assert folder.next_snapshot is None
    assert not folder.exact


@pytest.mark.every_engine
def test_a_stopped_job_is_behind_by_what_was_committed_since(lab: Laboratory) -> None:
    lab.start()
    lab.source.write(40)
    lab.copied()
    down = Downstream(lab, INTO_MIRROR.format(options=QUICK))
    job_id = down.start()
    until(lambda: rows(lab, MIRROR).total() == 40, "all rows mirrored")
    lab.wait_for_checkpoints(job_id)
    job = down.runtime.job(down.name)
    position = read_positions(down.stop())
    assert position is not None
    caught_up = lag_now(down.runtime, job, down.latest)
    assert caught_up is not None
    assert (caught_up.snapshots_behind, caught_up.seconds_behind) == (0, 0.0)
    assert [upstream.source for upstream in caught_up.upstreams] == [TABLE]
    assert not caught_up.unread

    for _ in range(3):
        lab.source.write(10)
        lab.copied()
    reader = lab.catalog.open().table(TABLE)
    latest = reader.latest_snapshot_id()
    following = position.positions[0].next_snapshot
    assert latest is not None
    assert following is not None
    lag = lag_now(down.runtime, job, down.latest)
    assert lag is not None
    assert lag.snapshots_behind == latest - following + 1 > 0
    oldest = reader.snapshot(following)
    assert oldest is not None
    assert lag.unread[0].oldest_unread_at == oldest.committed_at


@pytest.fixture
def tomorrow() -> Clock:
    """A clock that is two days ahead."""
    real = Clock()
    return replace(real, now=lambda: real.now() + timedelta(days=2))


@pytest.mark.every_engine
def test_after_tidying_a_job_goes_on_from_where_it_was(lab: Laboratory, tomorrow: Clock) -> None:
    for _ in range(3):
        outcome = lab.start()
        lab.source.write(30)
        lab.copied()
        lab.wait_for_checkpoints(outcome.flink_job_id, 1)
        lab.stop()
    outcome = lab.start()
    lab.source.write(30)
    lab.copied_exactly(outcome.flink_job_id)
    savepoints = lab.folder / "savepoints"
    assert len(list(savepoints.iterdir())) == 3

    now = lab.runtime()
    assert [tidied.deleted for tidied in tidy(now, [lab.job])] == [()]
    later = lab.runtime(clock=tomorrow)
    (promised,) = tidy(later, [lab.job], dry_run=True)
    assert len(list(savepoints.iterdir())) == 3
    (tidied,) = tidy(later, [lab.job])
    # Not the reasons: the job that runs has newer checkpoints by now.
    assert [p.path for p in tidied.deleted] == [p.path for p in promised.deleted]
    assert tidied.skipped is None
    # The running job has had a checkpoint of its own for long: all that is before it goes.
    assert {point.number for point in tidied.deleted} == {1, 2, 3}
    assert list(savepoints.iterdir()) == []
    ids = {path.name for path in (lab.folder / "checkpoints").iterdir()}
    assert ids == {outcome.flink_job_id}
    assert [tidied.deleted for tidied in tidy(later, [lab.job])] == [()]

    deleted_at = {life.number: life.restore_points_deleted_at for life in lab.incarnations()}
    assert deleted_at[4] is None
    assert all(isinstance(deleted_at[number], datetime) for number in (1, 2, 3))
    # The supervisor has not seen a checkpoint of the fourth yet, so the third stays on record.
    assert later.memory.prune(1, tomorrow.now()) == 2
    assert [life.number for life in lab.incarnations()] == [4, 3]

    # It restarts from its own checkpoints, and stops and starts again, without what was deleted.
    lab.stop()
    lab.source.write(30)
    again = lab.start()
    lab.assert_restored(again)
    lab.copied_exactly(again.flink_job_id)


def test_a_stopped_job_keeps_its_last_savepoint(lab: Laboratory, tomorrow: Clock) -> None:
    for _ in range(2):
        lab.start()
        lab.source.write(30)
        lab.copied()
        last = lab.stop().savepoint_path
    later = lab.runtime(clock=tomorrow)
    (tidied,) = tidy(later, [lab.job])
    savepoints = [path.name for path in (lab.folder / "savepoints").iterdir()]
    assert savepoints == [str(last).rpartition("/")[2]]
    assert {point.number for point in tidied.deleted} == {1, 2}
    lab.source.write(30)
    again = lab.start()
    assert again.restored_from == last
    lab.copied_exactly(again.flink_job_id)


def test_a_job_that_somebody_acts_on_is_skipped(lab: Laboratory) -> None:
    with lab.runtime().hold(lab.job, "somebody"):
        (tidied,) = tidy(lab.runtime(), [lab.job])
    assert tidied.deleted == ()
    assert tidied.skipped is not None
    assert "somebody" in tidied.skipped

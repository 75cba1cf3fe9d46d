"""A compaction job beside a running writer, and tables that are moved to it and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_dagster.errors import MaintenanceRefusedError, StreamingJobError
from lakehouse_dagster.maintenance.dedicated import dedicate, undedicate
from lakehouse_dagster.maintenance.situation import is_compacted
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.stop import StoppedHow
from lakehouse_dagster.streaming.supervise import observe_all
from lakehouse_dagster.system_db import DesiredState
from tests.maintenance.written import Written
from tests.support.fixtures import lab
from tests.support.laboratory import TABLE, Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink]

COMPACTOR = f"compact-{TABLE}"


@pytest.fixture
def written(lab: Laboratory) -> Iterator[Written]:
    made = Written(lab)
    yield made
    apply(made.runtime, [(COMPACTOR, verb("cancel"))], holder="test")


@pytest.mark.every_engine
def test_a_running_table_gets_a_compaction_job_and_loses_and_doubles_no_row(
    written: Written,
) -> None:
    lab = written.lab
    written.declare(
        bucket="1",
        **{
            "num-sorted-run.compaction-trigger": "3",
            "continuous.discovery-interval": "300 ms",
        },
    )
    first = written.start()
    written.write(2)
    moved = dedicate(written.keeper, TABLE, holder="test")
    assert (moved.writers, moved.compaction_job) == ((lab.job,), COMPACTOR)
    assert "makes it otherwise" in " ".join(moved.notes)
    assert written.facts().write_only
    assert is_compacted(written.runtime, TABLE)
    assert is_compacted(lab.runtime(), TABLE)  # also where the job is not declared any more
    writer = lab.running()
    assert writer.job_id != first.flink_job_id
    lab.assert_restored(written.start())  # adopted: it was started from the savepoint
    restarts = written.restarts(writer.job_id)
    written.write(6)
    # Six commits lay a file each on level 0; the writer merges none of them.
    until(lambda: written.level0_files < 3, "level 0 merged")
    kinds = {s.commit_kind for s in lab.catalog.open().table(TABLE).newest_snapshots(50)}
    assert kinds == {"APPEND", "COMPACT"}
    lab.copied_exactly(writer.job_id)
    assert written.restarts(writer.job_id) == restarts
    compactor = lab.on_cluster(COMPACTOR)
    assert len(compactor) == 1
    assert written.restarts(compactor[0].job_id) == 0
    (seen,) = (seen for seen in observe_all(written.runtime) if seen.name == COMPACTOR)
    assert (seen.observed, seen.healthy, seen.outdated) == (ObservedState.RUNNING, True, False)

    (stopped,) = apply(written.runtime, [(COMPACTOR, verb("stop"))], holder="test")
    assert stopped.outcome is not None
    assert stopped.outcome.how is StoppedHow.CANCELLED  # type: ignore[union-attr]
    assert not is_compacted(written.runtime, TABLE)
    (again,) = apply(written.runtime, [(COMPACTOR, verb("start"))], holder="test")
    assert again.error is None
    assert again.outcome.restored_from is None  # type: ignore[union-attr]
    (anew,) = apply(written.runtime, [(COMPACTOR, verb("restart"))], holder="test")
    assert anew.error is None
    with lab.cluster.job_manager() as job_manager:
        job_manager.cancel(anew.outcome.flink_job_id)  # type: ignore[union-attr]
    until(lambda: not lab.on_cluster(COMPACTOR), "cancelled by hand")
    (recovered,) = apply(written.runtime, [(COMPACTOR, verb("recover"))], holder="test")
    assert recovered.error is None
    assert [i.number for i in lab.incarnations(COMPACTOR)] == [4, 3, 2, 1]
    assert len(lab.on_cluster(COMPACTOR)) == 1

    back = undedicate(written.keeper, TABLE, holder="test")
    assert back.writers == (lab.job,)
    assert lab.on_cluster(COMPACTOR) == []
    assert not written.facts().write_only
    written.write(2)
    lab.copied_exactly(lab.running().job_id)


def test_a_group_of_tables_is_compacted_by_one_job(lab: Laboratory) -> None:
    small = TablePolicy(compaction="dedicated", compaction_group="small")
    written = Written(lab, MaintenancePolicy(small))
    written.declare(bucket="1", **{"write-only": "true", "num-sorted-run.compaction-trigger": "3"})
    # The compaction job makes the table as its writer would, if it is there first.
    for name in ("compact-small", lab.job):
        (started,) = apply(written.runtime, [(name, verb("start"))], holder="test")
        assert started.error is None
    try:
        written.write(6)
        until(lambda: written.level0_files < 3, "level 0 merged")
        lab.copied()
        for job in (lab.job, "compact-small"):
            assert written.restarts(lab.on_cluster(job)[0].job_id) == 0
    finally:
        apply(written.runtime, [("compact-small", verb("cancel"))], holder="test")


def test_a_compaction_job_is_not_started_beside_a_writer_that_compacts(written: Written) -> None:
    written.declare(bucket="1")
    written.start()
    written.write(1)
    (started,) = apply(written.runtime, [(COMPACTOR, verb("start"))], holder="test")
    assert isinstance(started.error, StreamingJobError)
    assert "lakehouse tables dedicate ods.copied" in str(started.error)
    assert written.lab.on_cluster(COMPACTOR) == []


def test_a_compaction_job_that_does_not_start_leaves_table_and_writer_as_they_were(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakehouse_dagster.maintenance import dedicated

    lab = written.lab
    written.declare(keyed=False, bucket="-1")
    written.start()
    written.write(2)
    monkeypatch.setattr(dedicated, "start_or_adopt", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dedicate(written.keeper, TABLE, holder="test")
    monkeypatch.undo()
    assert "write-only" not in written.facts().options
    assert written.runtime.memory.ensure(lab.job).desired is DesiredState.RUNNING
    written.write(1)
    assert dedicate(written.keeper, TABLE, holder="test").writers == (lab.job,)
    written.write(2)
    lab.copied_exactly(lab.running().job_id)


def test_a_table_that_somebody_else_writes_is_left_as_it_is(written: Written) -> None:
    lab = written.lab
    written.declare(bucket="1")
    written.start()
    written.write(3)
    stranger = Written(Laboratory(lab.folder, lab.rest_url, lab.sql_gateway_url))
    stranger.declare(bucket="1")
    with pytest.raises(MaintenanceRefusedError, match="Others than our jobs write"):
        dedicate(stranger.keeper, TABLE, holder="test")
    assert "write-only" not in written.facts().options
    assert lab.running()

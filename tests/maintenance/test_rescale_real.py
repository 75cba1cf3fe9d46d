"""Tables that get another number of buckets while a job of ours writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    MaintenanceError,
    MaintenanceRefusedError,
)
from lakehouse_dagster.maintenance import rescale as rescaling
from lakehouse_dagster.maintenance.dedicated import dedicate, undedicate
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.rescale import rescale
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.foreign_commits import ForeignCommits, look_for_foreign_commits
from lakehouse_dagster.system_db import DesiredState
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
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
def test_a_running_table_is_rescaled_and_its_jobs_go_on_where_they_were(written: Written) -> None:
    lab = written.lab
    written.declare(bucket="1", **{"write-only": "true"})
    first = written.start()
    written.write(2)
    dedicate(written.keeper, TABLE, holder="test")
    done = rescale(written.keeper, TABLE, 3, holder="test")
    assert (done.from_buckets, done.to_buckets, done.partitions, done.rows) == (1, 3, 1, 40)
    assert set(done.writers) == {lab.job, COMPACTOR}
    facts = written.facts()
    assert facts.total_buckets == 3
    assert {bucket.bucket for bucket in facts.buckets} == {0, 1, 2}
    writer = lab.running()
    assert writer.job_id != first.flink_job_id
    assert lab.checkpoints(writer.job_id).restored_path is not None
    assert len(lab.on_cluster(COMPACTOR)) == 1
    written.write(4)
    lab.copied_exactly(writer.job_id)
    # Only what it was started from was restored: nothing failed.
    assert written.restarts(writer.job_id) == 1
    (record,) = written.keeper.actions.of_table(TABLE)
    assert (record.kind, record.state) == ("rescale", ActionState.DONE)
    assert json.loads(record.after or "{}")["files"] == 3
    assert look_for_foreign_commits(written.runtime, TABLE) == ForeignCommits(())


def test_a_rescaling_that_fails_is_taken_back_and_the_writer_goes_on(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = written.lab
    written.declare(bucket="2")
    written.start()
    written.write(2)

    def refuse(*_: object) -> None:
        raise MaintenanceError("The table cannot be altered.")

    monkeypatch.setattr(rescaling, "set_option", refuse)
    with pytest.raises(MaintenanceError) as caught:
        rescale(written.keeper, TABLE, 3, holder="test")
    stands = f"It was written back: {TABLE} has as many buckets as before: 2."
    assert str(caught.value) == (
        f"The table cannot be altered. {stands} Resumed where they were: {lab.job}."
    )
    facts = written.facts()
    assert facts.total_buckets == 2
    assert {bucket.bucket for bucket in facts.buckets} == {0, 1}
    assert written.runtime.memory.ensure(lab.job).desired is DesiredState.RUNNING
    written.write(2)
    lab.copied_exactly(lab.running().job_id)
    (record,) = written.keeper.actions.of_table(TABLE)
    assert (record.kind, record.state) == ("rescale", ActionState.FAILED)
    assert record.error == f"The table cannot be altered. {stands}"


@pytest.mark.every_engine
@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_streaming_readers_are_told_of_every_row_once(
    written: Written, producer: str, told: bool
) -> None:
    """Of rows that were compacted before, and of those that the compaction job had not met yet."""
    options = {"changelog-producer": producer, "continuous.discovery-interval": "300 ms"}
    written.declare(bucket="2", **{"write-only": "true"}, **options)
    written.start()
    written.write(2)
    if told:
        dedicate(written.keeper, TABLE, holder="test")
        until(lambda: written.level0_files == 0, "the changelog of what was written before")
    rescale(written.keeper, TABLE, 3, holder="test")
    assert written.rows_told == 40
    written.write(2)
    dedicate(written.keeper, TABLE, holder="test")
    until(lambda: written.level0_files == 0, "the changelog of what was written since")
    assert written.rows_told == 80
    written.lab.copied_exactly(written.lab.running().job_id)


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("kind", "kept"), [("deletion-vectors.enabled=true", "y2"), ("merge-engine=first-row", "y0")]
)
def test_rows_that_batch_readers_do_not_see_yet_are_not_lost(
    lab: Laboratory, kind: str, kept: str
) -> None:
    tables = Tables(lab)
    option, value = kind.split("=")
    options = {"bucket": "2", "write-only": "true", option: value}
    table = tables.make("marked", "id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED", **options)
    tables.fill(table, lambda n: f"({n}, 'x'), (1, 'y{n}')", 3)
    assert sum(bucket.level0_files for bucket in tables.facts(table).buckets) > 0
    done = rescale(tables.keeper, table, 1, holder="test")
    assert done.rows == 3
    assert tables.rows(table) == [(0, "x"), (1, kept), (2, "x")]


def test_chosen_partitions_alone_are_rewritten(lab: Laboratory) -> None:
    tables = Tables(lab)
    columns = "dt STRING, id INT, PRIMARY KEY (dt, id) NOT ENFORCED"
    table = tables.make("days", columns, partitioned=True, bucket="1")
    tables.fill(table, lambda _: "('a', 1), ('a', 2), ('a', 3), ('b', 1), ('b', 2)", 1)
    with pytest.raises(MaintenanceRefusedError, match="no partition"):
        rescale(tables.keeper, table, 4, partitions=[{"dt": "c"}], holder="test")
    done = rescale(tables.keeper, table, 4, partitions=[{"dt": "a"}], holder="test")
    assert (done.partitions, done.rows) == (1, 3)
    assert "1 partitions keep 1 buckets" in done.notes[0]
    at = {(b.partition[0][1], b.bucket) for b in tables.facts(table).buckets}
    assert len({bucket for day, bucket in at if day == "a"}) > 1
    assert {bucket for day, bucket in at if day == "b"} == {0}
    assert len(tables.rows(table)) == 5


@pytest.mark.parametrize("bucket", ["-1", "-2"])
def test_tables_without_fixed_buckets_are_refused(lab: Laboratory, bucket: str) -> None:
    tables = Tables(lab)
    table = tables.make("loose", "id INT, PRIMARY KEY (id) NOT ENFORCED", bucket=bucket)
    with pytest.raises(MaintenanceRefusedError, match=f"'bucket' = '{bucket}'"):
        rescale(tables.keeper, table, 4, holder="test")


def test_a_table_that_another_lakehouse_writes_is_not_rescaled(written: Written) -> None:
    lab = written.lab
    written.declare(bucket="1")
    written.start()
    written.write(3)
    stranger = replace(written, lab=Laboratory(lab.folder, lab.rest_url, lab.sql_gateway_url))
    stranger.declare(bucket="1")
    with pytest.raises(MaintenanceRefusedError, match="Others than our jobs write"):
        rescale(stranger.keeper, TABLE, 2, holder="test")
    assert written.facts().total_buckets == 1


def test_a_writer_that_compacts_by_itself_goes_on_with_fewer_buckets(written: Written) -> None:
    lab = written.lab
    written.declare(bucket="4", **{"changelog-producer": "lookup"})
    written.start()
    written.write(3)
    done = rescale(written.keeper, TABLE, 1, holder="test")
    assert (done.rows, done.writers) == (60, (lab.job,))
    written.write(3)
    writer = lab.running()
    lab.copied_exactly(writer.job_id)
    assert written.restarts(writer.job_id) == 1
    assert {bucket.bucket for bucket in written.facts().buckets} == {0}


@pytest.mark.parametrize("act", [partial(rescale, buckets=3), undedicate], ids=["rescale", "back"])
def test_without_a_gateway_nothing_is_stopped(written: Written, act: Callable[..., object]) -> None:
    """What was stopped could not be started again."""
    written.declare(bucket="1", **{"write-only": "true"})
    written.start()
    written.write(1)
    dedicate(written.keeper, TABLE, holder="test")
    before = written.lab.on_cluster(), written.lab.on_cluster(COMPACTOR)
    cluster = replace(written.runtime.cluster, sql_gateway_url="http://127.0.0.1:9")
    with pytest.raises(ClusterUnreachableError, match="SQL Gateway"):
        act(Keeper(replace(written.runtime, cluster=cluster)), TABLE, holder="test")
    after = written.lab.on_cluster(), written.lab.on_cluster(COMPACTOR)
    assert [[job.job_id for job in jobs] for jobs in after] == [
        [job.job_id for job in jobs] for jobs in before
    ]
    assert len(after[1]) == 1

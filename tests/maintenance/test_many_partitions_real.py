"""A real table of ten thousand partitions: each run does a bounded part of it, the next goes on.

Times are CPU seconds, which another load on the machine does not change much. The bounds are a
multiple of what was measured (2 cores): facts 0.6 s when first read, 0.1 s after a commit,
0.001 s where nothing moved; a decision 0.05 s.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TypeVar

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse_dagster import (
    CompactSpec,
    Lakehouse,
    LoadedLakehouse,
    MaintenancePolicy,
    PartitionExpirySpec,
    SystemDatabase,
    TablePolicy,
)
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.events import action_metadata
from lakehouse_dagster.maintenance.maintain import maintain, plan
from lakehouse_dagster.paimon.file_facts import InMemory, TableFacts
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.cli.projects import own_process
from tests.conftest import RunningFlink
from tests.paimon.writing import Writer
from tests.support.fixtures import laboratory_on
from tests.support.laboratory import Laboratory

T = TypeVar("T")

pytestmark = pytest.mark.flink

TABLE = "m.wide"
COMPACTED_A_RUN, EXPIRED_A_RUN = 50, 2_500
SMALL_FILES = 6
DUE = 120
"""Partitions with enough small files to be merged."""


def days(first: str, count: int) -> list[str]:
    return [f"{date.fromisoformat(first) + timedelta(n):%Y%m%d}" for n in range(count)]


PAST, KEPT = days("1980-01-01", 7_000), days("2090-01-01", 2_870)
UNREAD = [f"unknown-{number:03}" for number in range(130)]

POLICY = (
    "MaintenancePolicy(TablePolicy("
    f"compact=CompactSpec(small_files={SMALL_FILES}, partitions_a_run={COMPACTED_A_RUN}), "
    "expire=None, changelogs=None, manifests=None, partitions=PartitionExpirySpec("
    f"'365d', format='%Y%m%d', partitions_a_run={EXPIRED_A_RUN})))"
)
SCRIPT = """\
CREATE TABLE IF NOT EXISTS m.wide (id INT, dt STRING) PARTITIONED BY (dt) WITH ('bucket' = '-1');
CREATE TEMPORARY TABLE nothing (id INT, dt STRING) WITH ('connector' = 'datagen');
SET 'pipeline.name' = '{job}';
INSERT INTO m.wide SELECT id, dt FROM nothing;
"""
MODULE = """\
from lakehouse_dagster import *

lake = Lakehouse(
    catalog=PaimonCatalog({warehouse!r}),
    flink=FlinkCluster({rest_url!r}, {sql_gateway_url!r}),
    system_database=SystemDatabase({database!r}),
    maintenance={policy},
).definitions({script!r})
"""


@dataclass
class Wide:
    """The table, which no job ever writes, and the lakehouse that it belongs to."""

    lab: Laboratory
    lake: LoadedLakehouse = field(init=False)

    def __post_init__(self) -> None:
        self.lab.script.write_text(SCRIPT.format(job=self.lab.job))
        database = f"sqlite:///{self.lab.folder / 'lakehouse.db'}"
        self.policy = MaintenancePolicy(
            TablePolicy(
                compact=CompactSpec(small_files=SMALL_FILES, partitions_a_run=COMPACTED_A_RUN),
                expire=None,
                changelogs=None,
                manifests=None,
                partitions=PartitionExpirySpec(
                    "365d", format="%Y%m%d", partitions_a_run=EXPIRED_A_RUN
                ),
            )
        )
        self.lake = Lakehouse(
            catalog=self.lab.catalog,
            flink=self.lab.cluster,
            system_database=SystemDatabase(database),
            maintenance=self.policy,
        ).load([self.lab.script], base_folder=self.lab.folder)
        module = MODULE.format(
            warehouse=self.lab.catalog.warehouse,
            rest_url=self.lab.rest_url,
            sql_gateway_url=self.lab.sql_gateway_url,
            database=database,
            policy=POLICY,
            script=str(self.lab.script),
        )
        (self.lab.folder / "wide.py").write_text(module)
        self._written = Writer(
            self.lab.folder / "warehouse",
            TABLE,
            pa.schema([("id", pa.int32()), ("dt", pa.string())]),
            partition_keys=("dt",),
            # Written several times as fast as Parquet, and without statistics of columns.
            options={"bucket": "-1", "file.format": "avro", "metadata.stats-mode": "none"},
        )
        self.write(0, (*PAST, *KEPT, *UNREAD))
        for number in range(1, SMALL_FILES):
            self.write(number, KEPT[:DUE])

    def write(self, number: int, partitions: Sequence[str]) -> None:
        """Commit one row, and so one file, to each partition."""
        self._written.append([{"id": number, "dt": partition} for partition in partitions])

    def facts(self) -> TableFacts:
        return self.lake.keeper.facts(TABLE)

    def whole(self) -> TableFacts:
        """As read from all manifests, without anything that was known before."""
        return self.lab.catalog.open().table(TABLE).facts(InMemory())


@pytest.fixture(scope="module")
def wide(flink_stack: RunningFlink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wide]:
    with laboratory_on(flink_stack, tmp_path_factory.mktemp("wide")) as lab:
        yield Wide(lab)


def cpu_seconds(look: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    return look(), time.process_time() - began


def of_children(what: Callable[[], T]) -> tuple[T, float]:
    """The CPU seconds of processes that were started and have ended meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = what()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def partitions(facts: TableFacts) -> set[str | None]:
    return {bucket.partition[0][1] for bucket in facts.buckets}


STAY = (
    "130 partitions stay, as dt is not of the format %Y%m%d: "
    + ", ".join(f"dt=unknown-00{number}" for number in range(10))
    + " and 120 more."
)


def test_looking_at_it_is_quick_and_what_is_told_of_it_is_short(wide: Wide) -> None:
    first, seconds = cpu_seconds(wide.facts)
    assert seconds < 6
    assert first == wide.whole()
    assert (len(first.buckets), first.files) == (10_000, 10_000 + (SMALL_FILES - 1) * DUE)
    assert partitions(first) == {*PAST, *KEPT, *UNREAD}
    again, seconds = cpu_seconds(wide.facts)
    assert (again == first, seconds < 0.05) == (True, True)
    wide.write(99, KEPT[-1:])
    moved, seconds = cpu_seconds(wide.facts)
    assert seconds < 1
    assert (moved == wide.whole(), moved.files) == (True, first.files + 1)

    (planned, _), seconds = cpu_seconds(lambda: plan(wide.lake.keeper, wide.policy, [TABLE]))
    assert seconds < 1.5
    (decision,) = planned.decisions
    merge, expire = decision.actions
    assert merge.partitions == tuple((("dt", day),) for day in KEPT[:COMPACTED_A_RUN])
    assert merge.reason == (
        "dt=20900101, bucket 0 has 6 small files of 6; so do 119 buckets more; "
        "70 partitions wait for the next run."
    )
    assert expire.partitions == tuple((("dt", day),) for day in PAST[:EXPIRED_A_RUN])
    assert expire.reason.startswith(
        "7000 partitions are older than 365d; the oldest 2500 go now: dt="
    )
    assert expire.reason.endswith(" and 2490 more.")
    assert decision.held_back == (STAY,)


def test_the_sensor_asks_for_a_run_in_few_words(wide: Wide) -> None:
    repository = wide.lake.definitions().get_repository_def()
    sensor = repository.get_sensor_def("lake_maintenance")
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, repository_def=repository)
        tick, seconds = cpu_seconds(lambda: sensor.evaluate_tick(context))
    assert seconds < 5
    (request,) = tick.run_requests or ()
    assert request.tags["lakehouse/tables"] == TABLE
    assert len(str(request)) < 2_000
    assert all(len(str(event)) < 2_000 for event in tick.asset_events)
    assert len(tick.cursor or "") < 1_000


def test_commands_tell_of_it_quickly_and_on_one_page(wide: Wide) -> None:
    def run(*arguments: str) -> str:
        said = own_process(*arguments, folder=wide.lab.folder)
        assert (said.code, said.err.replace("\n", " ")) == (0, said.err.replace("\n", " "))
        return said.out

    dry, seconds = of_children(lambda: run("maintain", "-m", "wide", TABLE, "--dry-run"))
    assert seconds < 20
    merge, expire, stay = dry.splitlines()
    assert merge.startswith("m.wide: compact: dt=20900101, bucket 0 has 6 small files of 6; so do")
    assert expire.startswith("m.wide: partition expiry: 7000 partitions are older than 365d; ")
    assert stay == f"{TABLE}: {STAY}"
    assert max(map(len, dry.splitlines())) < 400
    status, seconds = of_children(lambda: run("status", "-m", "wide", "--tables"))
    assert seconds < 20
    assert "compact, partition expiry" in " ".join(status.split())
    assert len(status.splitlines()) < 40


def test_each_run_does_a_bounded_part_until_nothing_is_due(wide: Wide) -> None:
    expected = [
        (ActionKind.COMPACT, KEPT[:50]),
        (ActionKind.COMPACT, KEPT[50:100]),
        (ActionKind.COMPACT, KEPT[100:DUE]),
        (ActionKind.EXPIRE_PARTITIONS, PAST[:2_500]),
        (ActionKind.EXPIRE_PARTITIONS, PAST[2_500:5_000]),
        (ActionKind.EXPIRE_PARTITIONS, PAST[5_000:]),
    ]
    facts = wide.facts()
    files, there = facts.files, partitions(facts)
    rows = sum(bucket.records for bucket in facts.buckets)
    for kind, chosen in expected:
        outcome = maintain(wide.lake.keeper, wide.policy, [TABLE], holder="a test")
        (record,) = outcome.done
        assert (record.kind, record.state, record.error) == (kind.value, ActionState.DONE, None)
        before, facts = facts, wide.facts()
        assert facts == wide.whole()
        if kind is ActionKind.COMPACT:
            files -= (SMALL_FILES - 1) * len(chosen)
            merged = {b.partition[0][1]: b.files for b in facts.buckets}
            assert {merged[day] for day in chosen} == {1}
        else:
            files, rows = files - len(chosen), rows - len(chosen)
            there -= set(chosen)
        assert (facts.files, len(facts.buckets)) == (files, len(there))
        assert partitions(facts) == there
        assert sum(bucket.records for bucket in facts.buckets) == rows
        assert outcome.decisions[0].held_back == (STAY,)
        shown = action_metadata(record)
        assert (shown["files_before"], shown["files"]) == (before.files, facts.files)
        assert shown["partitions_done"].endswith(f" and {len(chosen) - 10} more")
        assert len(str(shown)) < 2_000
    last = maintain(wide.lake.keeper, wide.policy, [TABLE], holder="a test")
    assert (last.done, last.failures) == ((), ())
    assert last.decisions[0].held_back == (STAY,)
    assert there == {*KEPT, *UNREAD}
    read = wide.lab.catalog.open().table(TABLE).read().to_pylist()
    assert len(read) == rows
    found = Counter((row["id"], row["dt"]) for row in read if row["id"] != 99)
    wanted = [(0, partition) for partition in (*KEPT, *UNREAD)]
    wanted += [(number, day) for number in range(1, SMALL_FILES) for day in KEPT[:DUE]]
    assert found == Counter(wanted)

"""A compaction job that cannot get on from its checkpoint is begun anew, by nobody but us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import pytest

from lakehouse_dagster.errors import OperationTimeoutError
from lakehouse_dagster.flink.restore_points import complete_checkpoints
from lakehouse_dagster.maintenance.compaction_jobs import compaction_job_name
from lakehouse_dagster.maintenance.read_again import read_again
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.events import health
from lakehouse_dagster.streaming.observe import ObservedState, Verb
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.runtime import LOGGER, Runtime
from lakehouse_dagster.streaming.session import prepare
from lakehouse_dagster.streaming.submission import launch
from lakehouse_dagster.streaming.supervise import SupervisorCursor
from lakehouse_dagster.system_db import DesiredState
from tests.maintenance.tables import Tables
from tests.maintenance.written import quick_compaction_jobs
from tests.support.actor import supervise_once
from tests.support.fixtures import lab
from tests.support.laboratory import QUICK, Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink]

GROUP = "small"
SOON = replace(QUICK, restarts_are_many=1, start_timeout="20s")
SCRIPT = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '300ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
CREATE DATABASE IF NOT EXISTS m;
{table};
CREATE TEMPORARY TABLE incoming (id INT, v INT) WITH ('connector' = 'datagen');
INSERT INTO m.{table_name} SELECT id, v FROM incoming;
"""
TABLE = (
    "CREATE TABLE IF NOT EXISTS m.{name} (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) "
    "WITH ('bucket' = '1', 'write-only' = 'true', 'num-sorted-run.compaction-trigger' = '2', "
    "'continuous.discovery-interval' = '300 ms')"
)


@dataclass
class Compacting:
    """The compaction job of ``m.a``, or of that and ``m.b`` together; batch jobs fill them."""

    lab: Laboratory
    together: bool

    def __post_init__(self) -> None:
        self.tables = Tables(self.lab)
        self.names = ("m.a", "m.b") if self.together else ("m.a",)
        self.job = compaction_job_name(GROUP if self.together else "m.a")

    @cached_property
    def runtime(self) -> Runtime:
        scripts = []
        for table in ("a", "b"):
            script = self.lab.folder / f"{table}.sql"
            script.write_text(
                SCRIPT.format(
                    name=f"{self.lab.job}-{table}",
                    table=TABLE.format(name=table),
                    table_name=table,
                )
            )
            scripts.append(script)
        runtime = self.lab.runtime(*scripts, policy=SOON)
        alone = TablePolicy(compaction="dedicated")
        policy = (
            MaintenancePolicy(replace(alone, compaction_group=GROUP))
            if self.together
            else (MaintenancePolicy(tables={"m.a": alone}))
        )
        return replace(
            runtime, jobs={**runtime.jobs, **quick_compaction_jobs(policy, runtime.jobs)}
        )

    def fill(self, table: str, first: int, commits: int = 3) -> None:
        self.tables.fill(table, lambda number: f"({first + number}, 0)", commits)

    def act(self, what: str) -> str:
        """The Flink job that came of it, or was there."""
        (applied,) = apply(self.runtime, [(self.job, verb(what))], holder="test")
        assert applied.error is None
        return getattr(applied.outcome, "flink_job_id", "")

    def is_compacted_after(self, table: str, snapshot: int) -> bool:
        newest = self.lab.catalog.open().table(table).newest_snapshots(20)
        return any(s.commit_kind == "COMPACT" and s.id > snapshot for s in newest)

    def until_compacted_after(self, table: str, snapshot: int) -> None:
        until(lambda: self.is_compacted_after(table, snapshot), f"{table} compacted", seconds=120)

    def compacts_what_is_new(self) -> None:
        """Commit to each of its tables and wait until that is merged."""
        for table in self.names:
            before = self.tables.facts(table).snapshot_id or 0
            self.fill(table, 100 + before)
            self.until_compacted_after(table, before)

    def suspended(self) -> str:
        """Let it compact, stop it, and give its newest checkpoint, from after its last commit."""
        for table in self.names:
            self.tables.run(TABLE.format(name=table.removeprefix("m.")))
            self.fill(table, 0)
        job_id = self.act("start")
        for table in self.names:
            self.until_compacted_after(table, 0)
        self.lab.wait_for_checkpoints(job_id, 3)
        self.act("stop")
        return complete_checkpoints(f"file://{self.lab.folder}/checkpoints", job_id)[0].path

    def expire(self) -> None:
        """All but the newest snapshot of each table, whoever needs them."""
        for table in self.names:
            self.tables.run(
                f"CALL sys.expire_snapshots(`table` => '{table}', retain_max => 1, "
                "retain_min => 1, older_than => '2100-01-01 00:00:00')"
            )
            facts = self.tables.facts(table)
            assert facts.oldest_snapshot_id == facts.snapshot_id

    def resume(self, checkpoint: str) -> None:
        """Start it from there, as Flink does when it restarts a job, and as we never do."""
        self.runtime.memory.set_desired(self.job, DesiredState.RUNNING)
        # Nobody waits for it to run: it restarts and restarts.
        runtime = replace(self.runtime, policy=replace(SOON, start_timeout="1s"))
        with (
            runtime.hold(self.job, "test") as held,
            self.lab.cluster.job_manager() as job_manager,
            self.lab.cluster.sql_gateway() as gateway,
            suppress(OperationTimeoutError),
        ):
            prepared = prepare(held, gateway, LOGGER)
            choice = RestoreChoice(checkpoint, "as Flink would")
            launch(held, prepared, 2, choice, job_manager, gateway, LOGGER)

    def supervise(self) -> list[tuple[str, Verb]]:
        """What the supervisor does until it has begun the job anew; it never doubles it."""
        cursor, done = SupervisorCursor(), []

        def is_begun_anew() -> bool:
            nonlocal cursor
            seen = supervise_once(self.runtime, cursor, "supervisor")
            cursor = seen.cursor
            done.extend((action.job, action.verb) for action in seen.actions)
            assert len(self.lab.on_cluster(self.job)) <= 1
            return self.lab.incarnations(self.job)[0].number > 2

        until(is_begun_anew, "begun anew", seconds=90)
        return done


@pytest.fixture
def compacting(lab: Laboratory, request: pytest.FixtureRequest) -> Iterator[Compacting]:
    made = Compacting(lab, together=request.param == "together")
    yield made
    apply(made.runtime, [(made.job, verb("cancel"))], holder="test")


def _begun_anew(compacting: Compacting, checkpoint: str, cause: str) -> None:
    """The supervisor begins it anew, once, says why, and it compacts what is new."""
    runtime, job = compacting.runtime, compacting.job
    compacting.resume(checkpoint)
    assert compacting.supervise() == [(job, Verb.REVIVE)]

    newest, failed, _ = compacting.lab.incarnations(job)
    assert failed.restored_from == checkpoint
    assert str(failed.end_reason).startswith("cancelled to be started again: ")
    assert cause in str(failed.end_reason)
    assert newest.restored_from is None
    (running,) = compacting.lab.on_cluster(job)
    assert running.job_id == newest.flink_job_id
    compacting.compacts_what_is_new()

    seen = supervise_once(runtime, SupervisorCursor(), "supervisor")
    assert seen.actions == ()
    (observation,) = [seen for seen in seen.observations if seen.name == job]
    assert (observation.observed, observation.healthy) == (ObservedState.RUNNING, True)
    record = runtime.memory.ensure(job)
    assert (record.attempts, record.last_error) == (1, None)  # forgotten after restart_window
    past = runtime.memory.incarnations(job)
    *_, shown = health(observation, record, runtime.clock.now(), SOON, past)
    assert cause in shown["incarnations"].value


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("compacting", "cause"),
    [
        pytest.param("alone", "OutOfRangeException", id="alone"),
        # It has no position that could expire. But Paimon takes the empty commit of the last
        # checkpoint for one that is missing, and fails the job on purpose at every restore.
        pytest.param("together", "intentionally thrown", id="together"),
    ],
    indirect=["compacting"],
)
def test_a_job_whose_snapshots_have_expired_is_begun_anew(
    compacting: Compacting, cause: str
) -> None:
    checkpoint = compacting.suspended()
    for table in compacting.names:
        compacting.fill(table, 50)
    compacting.expire()
    _begun_anew(compacting, checkpoint, cause)
    held_for = [needs.name for needs in read_again(compacting.runtime)]
    assert (compacting.job in held_for) is not compacting.together


@pytest.mark.parametrize("compacting", ["together"], indirect=True)
def test_a_group_of_which_a_table_was_made_again_is_begun_anew(compacting: Compacting) -> None:
    checkpoint = compacting.suspended()
    compacting.tables.run("DROP TABLE m.a", TABLE.format(name="a"))
    _begun_anew(compacting, checkpoint, "intentionally thrown")

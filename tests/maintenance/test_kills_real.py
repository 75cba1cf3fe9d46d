"""A process of Flink's that dies while an action is under way: settled, nothing left, done again.

Each action stands still at a file that it needs, so that it is surely under way when the process
is killed; what it has changed until then is what such a death leaves behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ClusterUnreachableError, LakehouseError
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.perform import Performing, perform, settle_all
from lakehouse_dagster.maintenance.rescale import rescale
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.system_db import DesiredState
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.cases import BY_FLINK_JOBS, BY_THE_GATEWAY, Case
from tests.maintenance.tables import Tables
from tests.maintenance.written import Written
from tests.support.faults import CALL, STATEMENT, Does, Fault, FaultyProxy, HeldFile, kill
from tests.support.fixtures import laboratory_on
from tests.support.laboratory import QUICK, TABLE, Laboratory, until
from tests.support.stacks import up

pytestmark = pytest.mark.chaos

DONE, FAILED, INTERRUPTED = ActionState.DONE, ActionState.FAILED, ActionState.INTERRUPTED


@pytest.fixture(scope="module")
def chaos_stack(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalStack]:
    """A small Flink whose processes are killed; every test finds it whole."""
    stack = LocalStack(
        tmp_path_factory.mktemp("chaos"),
        flink_engine,
        slots=16,
        task_manager_memory_mib=1400,
        extra_config={"web.refresh-interval": "100ms"},
    )
    with up(stack):
        yield stack


@pytest.fixture
def lab(chaos_stack: LocalStack, tmp_path: Path) -> Iterator[Laboratory]:
    with laboratory_on(chaos_stack.up(), tmp_path) as laboratory:
        yield laboratory


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    return Tables(lab)


@contextmanager
def dying(stack: LocalStack, service: Service, file: HeldFile, call: str = CALL) -> Iterator[str]:
    """Kill the process once the CALL stands still at the file; the URL of a gateway to use.

    The gateway comes back after the block, the others before the file is let go: whoever still
    works then works on without the one that died.
    """

    def die() -> None:
        with file:
            file.wait_until_wanted()
            if service is Service.JOB_MANAGER:
                time.sleep(3)  # The gateway shall know that its job was submitted.
            kill(stack, service)
            if service is not Service.SQL_GATEWAY:
                stack.up()

    with FaultyProxy(stack.status().sql_gateway_url) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.add(Fault("POST", STATEMENT, Does.PASS_ON, call, before=file.take))
        death = pool.submit(die)
        yield proxy.url
        death.result()
    stack.up()


PATIENT = replace(QUICK, stop_timeout="180s")
"""Waits for a JobManager that must come back first."""


def _nothing_runs(lab: Laboratory) -> bool:
    """No Flink job, and no task of one that the JobManager does not know any more."""
    with lab.cluster.job_manager() as job_manager:
        overview = job_manager.overview()
        alive = [job.name for job in job_manager.jobs() if not job.status.is_terminal]
    return not alive and overview.slots_available == overview.slots_total > 0


DEATHS = [
    *((case, Service.SQL_GATEWAY, DONE) for case in BY_FLINK_JOBS),
    *((case, Service.JOB_MANAGER, FAILED) for case in BY_FLINK_JOBS),
    (BY_FLINK_JOBS[0], Service.TASK_MANAGER, FAILED),
    *((case, Service.SQL_GATEWAY, INTERRUPTED) for case in BY_THE_GATEWAY),
    (BY_THE_GATEWAY[0], Service.JOB_MANAGER, DONE),
]


@pytest.mark.parametrize(
    ("case", "dies", "ends"),
    [pytest.param(*death, id=f"{death[0].name}-{death[1].value}") for death in DEATHS],
)
def test_who_dies_while_an_action_is_under_way_leaves_nothing_half_done(
    chaos_stack: LocalStack, tables: Tables, case: Case, dies: Service, ends: ActionState
) -> None:
    group = ActionGroup(case.prepare(tables))
    before = {table: tables.rows(table) for table in group.tables}
    after = {table: [row for row in rows if case.stays(row)] for table, rows in before.items()}
    assert not case.is_done(tables)
    (path, *_) = sorted(tables.folder(group.tables[0]).glob(case.stands_at))
    with dying(chaos_stack, dies, HeldFile(path)) as gateway:
        keeper = Keeper(tables.lab.runtime(sql_gateway_url=gateway, policy=PATIENT))
        with keeper.hold(group.tables, "a test") as held, suppress(ClusterUnreachableError):
            perform(held, group, Performing(attempts=1))

    assert settle_all(tables.keeper, "the next run", LOGGER) == ()
    until(lambda: _nothing_runs(tables.lab), "an end of all that ran")
    records = [record for table in group.tables for record in tables.keeper.actions.of_table(table)]
    assert [record.state for record in records] == [ends] * len(group.actions)
    assert ends is not DONE or case.is_done(tables)
    for table in group.tables:
        assert tables.rows(table) in (before[table], after[table])

    with tables.keeper.hold(group.tables, "the next run") as held:
        again = perform(held, group, Performing())
    assert [(record.state, record.error) for record in again] == [(DONE, None)] * len(again)
    assert case.is_done(tables)
    assert {table: tables.rows(table) for table in group.tables} == after


@pytest.mark.parametrize("dies", [Service.SQL_GATEWAY, Service.JOB_MANAGER])
def test_who_dies_while_a_table_is_rescaled_loses_no_row_and_it_is_gone_on_with(
    chaos_stack: LocalStack, lab: Laboratory, dies: Service
) -> None:
    written = Written(lab)
    written.declare(bucket="1", **{"write-only": "true"})
    written.start()
    written.write(2)
    (path, *_) = sorted((lab.folder / "warehouse" / "ods.db" / "copied").glob("bucket-0/*.parquet"))
    with dying(chaos_stack, dies, HeldFile(path), r"CALL sys\.rescale") as gateway:
        dead = Keeper(lab.runtime(sql_gateway_url=gateway, policy=PATIENT))
        with pytest.raises(LakehouseError) as caught:
            rescale(dead, TABLE, 3, holder="a test")
    (record,) = written.keeper.actions.of_table(TABLE)
    assert record.state is FAILED
    writer = written.runtime.memory.ensure(lab.job)
    # The Flink job does without the gateway and rewrites all; nobody is there who could go back.
    rewritten = dies is Service.SQL_GATEWAY
    assert writer.desired is (DesiredState.SUSPENDED if rewritten else DesiredState.RUNNING)
    assert (lab.on_cluster() == []) is rewritten
    if rewritten:
        assert f"lakehouse tables rescale {TABLE} --buckets 3" in (writer.last_error or "")
        stands = f"{writer.last_error} Not resumed: {lab.job}."
    else:
        stands = f"{TABLE} has as many buckets as before: 1. Resumed where they were: {lab.job}."
    assert stands in str(caught.value)

    done = rescale(written.keeper, TABLE, 3, holder="the next run")
    assert (done.to_buckets, done.rows) == (3, 40)
    assert done.writers == (() if rewritten else (lab.job,))
    lab.start(written.runtime)
    written.write(2)
    lab.copied_exactly(lab.running().job_id)
    assert {bucket.bucket for bucket in written.facts().buckets} == {0, 1, 2}

"""A gateway or JobManager that dies during an action: settled, nothing left running, done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.maintenance.perform import Performing, perform, settle_all
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    MaintenancePolicy,
    TablePolicy,
)
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
from tests.support.faults import STATEMENT, Does, Fault, FaultyProxy, kill
from tests.support.fixtures import laboratory_on
from tests.support.laboratory import IMPATIENT, Laboratory

pytestmark = pytest.mark.chaos

CALL = r'"CALL sys\.'
COMPACT = MaintenancePolicy(TablePolicy(compact=CompactSpec(small_files=5), expire=None))
EXPIRE = MaintenancePolicy(
    TablePolicy(compact=None, expire=ExpireSpec(keep_at_least=1, keep_for="1ms"))
)


@pytest.fixture(scope="module")
def chaos_stack(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalStack]:
    """A small Flink whose processes are killed; every test finds it whole."""
    stack = LocalStack(
        tmp_path_factory.mktemp("chaos"),
        flink_engine,
        slots=3,
        task_manager_memory_mib=768,
        extra_config={"web.refresh-interval": "100ms"},
    )
    stack.up()
    try:
        yield stack
    finally:
        stack.down()


@pytest.fixture
def lab(chaos_stack: LocalStack, tmp_path: Path) -> Iterator[Laboratory]:
    with laboratory_on(chaos_stack.up(), tmp_path) as laboratory:
        yield laboratory


def _maintained(
    lab: Laboratory, table: str, policy: MaintenancePolicy, fault: Fault, *, at_gateway: bool
) -> Keeper:
    """Maintain through a proxy that does the fault; the keeper of that process."""
    target = lab.sql_gateway_url if at_gateway else lab.rest_url
    with FaultyProxy(target) as proxy:
        proxy.add(fault)
        keeper = Keeper(
            lab.runtime(
                rest_url=None if at_gateway else proxy.url,
                sql_gateway_url=proxy.url if at_gateway else None,
                policy=IMPATIENT,
            )
        )
        maintain(keeper, policy, [table], holder="a test")
        assert fault.times == 0
    return keeper


def _running(lab: Laboratory) -> list[str]:
    with lab.cluster.job_manager() as job_manager:
        return [job.name for job in job_manager.jobs() if not job.status.is_terminal]


def _after(tables: Tables, table: str, *, is_done: Callable[[], bool], action: Action) -> None:
    """What holds afterwards, whatever was killed when."""
    lab = tables.lab
    assert settle_all(tables.keeper, "the next run", LOGGER) == ()
    (record,) = tables.keeper.actions.of_table(table)
    assert record.state in (ActionState.FAILED, ActionState.DONE)
    if record.state is ActionState.DONE:
        assert is_done()
    assert _running(lab) == []
    with tables.keeper.hold([table], "the next run") as held:
        (again,) = perform(held, ActionGroup((action,)), Performing())
    assert (again.state, again.error) == (ActionState.DONE, None)
    assert is_done()
    assert tables.rows(table) == [(n,) for n in range(6)]


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    return Tables(lab)


@pytest.fixture
def table(tables: Tables) -> str:
    name = tables.make("t", "id INT", bucket="-1")
    tables.fill(name, lambda n: f"({n})", 6)
    return name


def test_a_gateway_that_dies_with_a_compaction(
    chaos_stack: LocalStack, tables: Tables, table: str
) -> None:
    killed = Fault(
        "POST",
        STATEMENT,
        Does.LOSE_ANSWER,
        CALL,
        after=lambda: kill(chaos_stack, Service.SQL_GATEWAY),
    )
    _maintained(tables.lab, table, COMPACT, killed, at_gateway=True)
    chaos_stack.up()
    _after(
        tables,
        table,
        is_done=lambda: tables.facts(table).files == 1,
        action=Action(table, ActionKind.COMPACT_FULL, "a test"),
    )


def test_a_gateway_that_dies_with_an_expiry(
    chaos_stack: LocalStack, tables: Tables, table: str
) -> None:
    killed = Fault(
        "POST",
        STATEMENT,
        Does.LOSE_ANSWER,
        CALL,
        after=lambda: kill(chaos_stack, Service.SQL_GATEWAY),
    )
    keeper = _maintained(tables.lab, table, EXPIRE, killed, at_gateway=True)
    chaos_stack.up()
    _after(
        tables,
        table,
        is_done=lambda: tables.facts(table).snapshot_count == 1,
        action=Action(
            table,
            ActionKind.EXPIRE_SNAPSHOTS,
            "a test",
            keep=1,
            older_than=keeper.runtime.clock.now(),
        ),
    )


def test_a_job_manager_that_dies_with_a_compaction(
    chaos_stack: LocalStack, tables: Tables, table: str
) -> None:
    def killed_and_back() -> None:
        kill(chaos_stack, Service.JOB_MANAGER)
        chaos_stack.up()

    killed = Fault("GET", r"^/jobs/[0-9a-f]{32}$", Does.LOSE_REQUEST, before=killed_and_back)
    _maintained(tables.lab, table, COMPACT, killed, at_gateway=False)
    _after(
        tables,
        table,
        is_done=lambda: tables.facts(table).files == 1,
        action=Action(table, ActionKind.COMPACT_FULL, "a test"),
    )

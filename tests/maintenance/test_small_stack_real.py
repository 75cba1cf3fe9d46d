"""Maintenance within the memory of the stack that ``lakehouse stack up`` starts without options."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.perform import Performing, perform
from lakehouse_dagster.maintenance.rescale import rescale
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.cases import small_files
from tests.maintenance.tables import Tables
from tests.maintenance.written import Written
from tests.support.fixtures import laboratory_on
from tests.support.laboratory import TABLE, Laboratory
from tests.support.stacks import up

pytestmark = [pytest.mark.chaos, pytest.mark.every_engine]

BUCKETS = 4


@pytest.fixture(scope="module")
def lab(flink_engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A laboratory on a stack of its own, as it is by default."""
    stack = LocalStack(tmp_path_factory.mktemp("stack"), flink_engine)
    with (
        up(stack),
        laboratory_on(stack.status(), tmp_path_factory.mktemp("lab")) as laboratory,
    ):
        yield laboratory


def test_tables_are_compacted_together_and_rescaled_beside_a_writer(lab: Laboratory) -> None:
    written, tables = Written(lab), Tables(lab)
    written.declare(bucket="1", **{"write-only": "true"})
    written.start()
    written.write(2)
    small_files(tables, "m.t", "m.u")
    together = tuple(Action(t, ActionKind.COMPACT_FULL, "a test") for t in ("m.t", "m.u"))
    with tables.keeper.hold(["m.t", "m.u"], "a test") as held:
        records = perform(held, ActionGroup(together), Performing())
    assert [(record.state, record.error) for record in records] == [(ActionState.DONE, None)] * 2
    assert [tables.facts(table).files for table in ("m.t", "m.u")] == [1, 1]
    done = rescale(written.keeper, TABLE, BUCKETS, holder="test")
    assert (done.to_buckets, done.rows, done.writers) == (BUCKETS, 40, (lab.job,))
    written.write(1)

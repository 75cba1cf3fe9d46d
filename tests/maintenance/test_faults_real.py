"""Lost answers, cancelled runs, rivals and broken tables: nothing half done is called done."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lakehouse_dagster.errors import LeaseLostError, TableNotFoundError
from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.maintenance import expire
from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import ActionGroup
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.maintenance.perform import Performing, perform, settle_all
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    MaintenancePolicy,
    OrphanSpec,
    TablePolicy,
)
from lakehouse_dagster.streaming.runtime import LOGGER, Clock, Runtime
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState
from tests.maintenance.tables import Tables
from tests.support.faults import (
    CALL,
    STATEMENT,
    Does,
    Fault,
    FaultyProxy,
    HeldFile,
    is_cancelled_for_good,
)
from tests.support.fixtures import gateway_proxy, lab
from tests.support.laboratory import IMPATIENT, Laboratory, until

__all__ = ["gateway_proxy", "lab"]

pytestmark = pytest.mark.flink

COMPACTING = MaintenancePolicy(TablePolicy(compact=CompactSpec(small_files=5), expire=None))
EXPIRING = MaintenancePolicy(
    TablePolicy(compact=None, expire=ExpireSpec(keep_at_least=1, keep_for="1ms"))
)


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    return Tables(lab)


@pytest.fixture
def table(tables: Tables) -> str:
    """An append table of six small files."""
    name = tables.make("t", "id INT", bucket="-1")
    tables.fill(name, lambda n: f"({n})", 6)
    return name


@pytest.fixture
def keeper(lab: Laboratory, gateway_proxy: FaultyProxy) -> Keeper:
    """Of another process, whose gateway is behind the proxy."""
    return Keeper(lab.runtime(sql_gateway_url=gateway_proxy.url, policy=IMPATIENT))


def calls(proxy: FaultyProxy) -> int:
    return len(proxy.requests("POST", STATEMENT, CALL))


def status(lab: Laboratory, record: ActionRecord) -> FlinkJobStatus | None:
    assert record.flink_job_id is not None
    with lab.cluster.job_manager() as job_manager:
        job = job_manager.job(record.flink_job_id)
    return None if job is None else job.status


def files(tables: Tables, table: str) -> int:
    return tables.facts(table).files


def a_data_file(tables: Tables, table: str) -> HeldFile:
    """That no compaction can do without."""
    return HeldFile(next(tables.folder(table).glob("bucket-0/*.parquet")))


def test_a_call_whose_answer_is_lost_is_found_by_its_job_and_not_sent_again(
    tables: Tables, table: str, keeper: Keeper, gateway_proxy: FaultyProxy
) -> None:
    def submitted() -> None:
        (record,) = tables.keeper.actions.running()
        until(lambda: status(tables.lab, record), "its Flink job")

    gateway_proxy.add(Fault("POST", STATEMENT, Does.LOSE_ANSWER, CALL, after=submitted))
    (record,) = maintain(keeper, COMPACTING, [table], holder="a test").done
    assert (record.state, record.error) == (ActionState.DONE, None)
    assert calls(gateway_proxy) == 1
    assert files(tables, table) == 1


def test_a_call_that_never_arrived_failed_and_leaves_nothing_behind(
    tables: Tables, table: str, keeper: Keeper, gateway_proxy: FaultyProxy
) -> None:
    gateway_proxy.add(Fault("POST", STATEMENT, Does.LOSE_REQUEST, CALL))
    (record,) = maintain(keeper, COMPACTING, [table], holder="a test").done
    assert record.state is ActionState.FAILED
    assert "was not begun" in (record.error or "")
    assert (calls(gateway_proxy), status(tables.lab, record)) == (1, None)
    assert files(tables, table) == 6
    (decision,) = maintain(keeper, COMPACTING, [table], holder="a test").decisions
    assert "compact failed once" in decision.held_back[0]


def test_an_expiry_whose_answer_is_lost_is_not_sent_again(
    tables: Tables, table: str, keeper: Keeper, gateway_proxy: FaultyProxy
) -> None:
    gateway_proxy.add(Fault("POST", STATEMENT, Does.LOSE_ANSWER, CALL))
    (record,) = maintain(keeper, EXPIRING, [table], holder="a test").done
    assert (record.state, calls(gateway_proxy)) == (ActionState.FAILED, 1)
    assert tables.rows(table) == [(n,) for n in range(6)]


def test_a_cancelled_run_cancels_its_flink_job_and_the_next_one_goes_on(
    tables: Tables, table: str
) -> None:
    def interrupted(_: float) -> None:
        if file.is_wanted():  # its job is at work, and comes no further
            raise KeyboardInterrupt

    def while_it_is_cancelled(seconds: float) -> None:
        (record,) = tables.keeper.actions.running()
        if is_cancelled_for_good(tables.lab.rest_url, str(record.flink_job_id)):
            file.let_go()
        time.sleep(seconds)

    action = Action(table, ActionKind.COMPACT_FULL, "a test")
    clock = Clock(sleep=interrupted, pause=while_it_is_cancelled)
    hasty = Keeper(tables.lab.runtime(clock=clock))
    file = a_data_file(tables, table)
    file.take()
    with pytest.raises(KeyboardInterrupt), file, hasty.hold([table], "a test") as held:
        perform(held, ActionGroup((action,)), Performing())
    (record,) = tables.keeper.actions.of_table(table)
    assert record.state is ActionState.CANCELLED
    assert status(tables.lab, record) is FlinkJobStatus.CANCELED
    assert files(tables, table) == 6
    (again,) = maintain(tables.keeper, COMPACTING, [table], holder="a test").done
    assert again.state is ActionState.DONE


def test_a_run_that_is_cancelled_when_the_work_is_done_says_that_it_is_done(
    tables: Tables, table: str
) -> None:
    def interrupted(_: float) -> None:
        if file.is_wanted():  # the run believes that its job is at work
            file.let_go()
            (record,) = tables.keeper.actions.running()
            until(lambda: status(tables.lab, record) is FlinkJobStatus.FINISHED, "the job's end")
            raise KeyboardInterrupt

    action = Action(table, ActionKind.COMPACT_FULL, "a test")
    late = Keeper(tables.lab.runtime(clock=Clock(sleep=interrupted)))
    file = a_data_file(tables, table)
    file.take()
    with pytest.raises(KeyboardInterrupt), file, late.hold([table], "a test") as held:
        perform(held, ActionGroup((action,)), Performing())
    (record,) = tables.keeper.actions.of_table(table)
    assert (record.state, record.error) == (ActionState.DONE, None)
    assert json.loads(record.after or "{}")["files"] == files(tables, table) == 1


def test_while_one_acts_on_a_table_another_does_nothing(
    tables: Tables, table: str, keeper: Keeper, gateway_proxy: FaultyProxy
) -> None:
    with tables.keeper.hold([table], "somebody else"):
        outcome = maintain(keeper, COMPACTING, [table], holder="a test")
    assert (outcome.done, calls(gateway_proxy)) == ((), 0)
    assert outcome.decisions[0].held_back == ("Another action on it is under way: somebody else.",)


def test_a_run_that_was_replaced_is_stopped_before_its_next_call(
    tables: Tables,
    table: str,
    keeper: Keeper,
    gateway_proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expire, "MOST_A_CALL", 2)
    action = Action(table, ActionKind.EXPIRE_SNAPSHOTS, "a test", keep=1, older_than=_now())
    with keeper.hold([table], "the first") as held:

        def replaced(_: str) -> None:
            for lease in held.leases:
                held.runtime.leases.release(lease)

        with pytest.raises(LeaseLostError):
            perform(held, ActionGroup((action,)), Performing(on_progress=replaced))
    assert calls(gateway_proxy) == 1
    (left,) = tables.keeper.actions.running()
    assert tables.facts(table).snapshot_count == 4
    assert settle_all(tables.keeper, "the second", LOGGER) == ()
    assert tables.keeper.actions.running() == ()
    (record,) = tables.keeper.actions.of_table(table)
    assert (record.id, record.state) == (left.id, ActionState.INTERRUPTED)
    assert record.error == "Its run (the first) ended before it did."
    assert json.loads(record.after or "{}")["snapshots"] == 4


def _now() -> datetime:
    return datetime.now(timezone.utc)


def test_an_expiry_beside_another_one_ends_well(
    tables: Tables,
    table: str,
    keeper: Keeper,
    gateway_proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expire, "MOST_A_CALL", 2)
    by_hand = f"CALL sys.expire_snapshots(`table` => '{table}', retain_max => 2, retain_min => 1)"
    gateway_proxy.add(
        Fault("POST", STATEMENT, Does.PASS_ON, CALL, before=lambda: tables.run(by_hand))
    )
    (record,) = maintain(keeper, EXPIRING, [table], holder="a test").done
    assert (record.state, record.error) == (ActionState.DONE, None)
    assert tables.facts(table).snapshot_count == 1
    assert tables.rows(table) == [(n,) for n in range(6)]


def test_a_table_that_is_not_there_or_goes_meanwhile_is_told(
    tables: Tables, table: str, keeper: Keeper, gateway_proxy: FaultyProxy
) -> None:
    outcome = maintain(keeper, COMPACTING, ["m.absent"], holder="a test")
    assert (outcome.decisions, outcome.done) == ((), ())
    absent = Action("m.absent", ActionKind.COMPACT_FULL, "a test")
    with keeper.hold(["m.absent"], "a test") as held, pytest.raises(TableNotFoundError):
        perform(held, ActionGroup((absent,)), Performing())
    gateway_proxy.add(
        Fault(
            "POST", STATEMENT, Does.PASS_ON, CALL, before=lambda: tables.run(f"DROP TABLE {table}")
        )
    )
    patient = Keeper(tables.lab.runtime(sql_gateway_url=gateway_proxy.url))
    (record,) = maintain(patient, COMPACTING, [table], holder="a test").done
    assert record.state is ActionState.FAILED
    assert "not exist" in (record.error or "")
    assert keeper.actions.running() == ()


EVERYTHING = MaintenancePolicy(
    TablePolicy(
        compact=CompactSpec(small_files=5),
        expire=ExpireSpec(keep_at_least=1, keep_for="1ms"),
        orphans=OrphanSpec(older_than="1d"),
    )
)


@pytest.mark.parametrize("gone", ["manifest/manifest-*", "snapshot/snapshot-*"])
def test_a_table_whose_files_were_deleted_by_hand_is_left_alone(
    gone: str,
    tables: Tables,
    table: str,
    keeper: Keeper,
    gateway_proxy: FaultyProxy,
) -> None:
    folder = tables.lab.folder / "warehouse" / "m.db" / "t"
    for file in folder.glob(gone):
        file.unlink()
    left = sorted(folder.rglob("*"))
    outcome = maintain(keeper, EVERYTHING, [table], holder="a test")
    assert (outcome.done, calls(gateway_proxy)) == ((), 0)
    assert outcome.decisions[0].held_back[0].startswith("Nothing is done to it: ")
    assert sorted(folder.rglob("*")) == left


def test_a_compaction_of_files_that_are_gone_fails_and_changes_nothing(
    tables: Tables, table: str
) -> None:
    folder = tables.lab.folder / "warehouse" / "m.db" / "t"
    next(folder.glob("bucket-0/*.parquet")).unlink()
    (record,) = maintain(tables.keeper, COMPACTING, [table], holder="a test").done
    assert record.state is ActionState.FAILED
    assert "FileNotFoundException" in (record.error or "")
    facts = tables.facts(table)
    assert (facts.snapshot_id, facts.files) == (6, 6)


def test_a_branch_whose_tag_was_deleted_by_hand_keeps_its_snapshot(
    tables: Tables, table: str
) -> None:
    tables.run(
        f"CALL sys.create_tag('{table}', 'base', 4)",
        f"CALL sys.create_branch('{table}', 'fix', 'base')",
        f"CALL sys.delete_tag('{table}', 'base')",
    )
    assert tables.facts(table).unprotected_branches == {"fix": 4}
    outcome = maintain(tables.keeper, EXPIRING, [table], holder="a test")
    assert outcome.decisions[0].held_back == (
        "Old snapshots are kept for branch fix (needs snapshot 4).",
    )
    assert tables.facts(table).oldest_snapshot_id == 4
    assert tables.ask("SELECT COUNT(*) FROM m.`t$branch_fix`") == [(4,)]


def test_orphans_are_removed_two_runs_and_a_day_apart(tables: Tables, table: str) -> None:
    import os

    bucket = next((tables.lab.folder / "warehouse").rglob("bucket-0"))
    orphan, young = bucket / "data-lost-0.parquet", bucket / "data-young-0.parquet"
    for file, days in ((orphan, 9), (young, 0.5)):
        file.write_bytes(b"x" * 100)
        os.utime(file, (time.time() - days * 86400,) * 2)
    policy = MaintenancePolicy(
        TablePolicy(compact=None, expire=None, orphans=OrphanSpec(every="30d", older_than="1d"))
    )
    kinds = []
    for hours in (0, 23, 25, 49):
        keeper = Keeper(_later(tables, timedelta(hours=hours)))
        found = maintain(keeper, policy, [table], holder="a test").done
        kinds.append([(r.kind, r.state.value) for r in found])
        assert orphan.exists() is (hours < 25)
    assert kinds == [[("orphan search", "done")], [], [("orphan removal", "done")], []]
    assert young.exists()
    assert tables.rows(table) == [(n,) for n in range(6)]


def _later(tables: Tables, span: timedelta) -> Runtime:
    runtime = tables.lab.runtime()
    return replace(runtime, clock=replace(runtime.clock, now=lambda: _now() + span))

"""Starting a job for real: started once, adopted when it runs, restored when it ran before."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    ConfigurationError,
    LeaseHeldError,
    LeaseLostError,
    MissingVariableError,
    NoRestorePointError,
    StreamingJobError,
)
from lakehouse_dagster.flink import FlinkJobStatus, is_complete
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.materialise import materialise
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.settings import operator_suffix
from lakehouse_dagster.streaming.start import StartedHow, start_or_adopt
from lakehouse_dagster.system_db import (
    DesiredState,
    IncarnationState,
    Jobs,
    SystemDatabase,
    flink_job_id,
)
from tests.support.faults import INSERT, STATEMENT, Does, Fault, FaultyProxy
from tests.support.fixtures import gateway_proxy, lab, rest_proxy
from tests.support.history import JobWatcher
from tests.support.laboratory import IMPATIENT, QUICK, TABLE, Laboratory, until

__all__ = ["gateway_proxy", "lab", "rest_proxy"]

pytestmark = pytest.mark.flink


@pytest.mark.every_engine
def test_a_job_is_started_once_and_adopted_by_whoever_starts_it_again(lab: Laboratory) -> None:
    lab.source.write()
    first = lab.start()
    assert (first.how, first.incarnation, first.restored_from) == (StartedHow.STARTED, 1, None)
    assert first.flink_job_id == flink_job_id(lab.identity, lab.job, 1)
    second = lab.start()
    assert (second.how, second.incarnation) == (StartedHow.ADOPTED, 1)
    assert [job.job_id for job in lab.on_cluster()] == [first.flink_job_id]

    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.RUNNING
    assert incarnation.session_handle is None  # closed: the INSERT's operation had ended
    assert incarnation.running_at is not None
    record = lab.runtime().memory.ensure(lab.job)
    assert (record.desired, record.last_error) == (DesiredState.RUNNING, None)
    assert lab.lease_is_free()
    lab.copied_exactly(first.flink_job_id)


@pytest.mark.every_engine
def test_a_job_cancelled_by_hand_goes_on_from_its_retained_checkpoint(lab: Laboratory) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    with lab.cluster.job_manager() as job_manager:
        job_manager.cancel(first.flink_job_id)
    lab.source.write()
    second = lab.start()  # while it is still CANCELLING, mostly
    assert (second.how, second.incarnation) == (StartedHow.STARTED, 2)
    assert second.restored_from is not None
    assert f"{first.flink_job_id}/chk-" in second.restored_from
    lab.assert_restored(second)
    lab.copied_exactly(second.flink_job_id)
    assert lab.incarnations()[1].end_reason == "CANCELED"


@pytest.mark.every_engine
def test_a_failed_job_is_started_again_from_its_last_checkpoint(lab: Laboratory) -> None:
    lab.write_script(
        where=" WHERE 1 / (id - ${POISON}) < 2", settings="SET 'restart-strategy.type' = 'none';"
    )
    lab.source.write(50)
    first = lab.start(lab.runtime(environ={"POISON": "70"}))
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    lab.source.write(50)
    until(lambda: not lab.on_cluster(), "the failure of the job")
    second = lab.start(lab.runtime(environ={"POISON": "-1"}))
    assert second.incarnation == 2
    lab.assert_restored(second)
    assert lab.incarnations()[1].end_reason == FlinkJobStatus.FAILED.value
    lab.copied_exactly(second.flink_job_id)


@pytest.mark.every_engine
def test_a_job_that_fails_while_it_starts_is_an_error_with_its_cause(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    lab.write_script(
        where=" WHERE 1 / (id - 1) < 2", settings="SET 'restart-strategy.type' = 'none';"
    )
    lab.source.write(5)
    job_id = flink_job_id(lab.identity, lab.job, 1)

    def has_failed() -> bool:
        with lab.cluster.job_manager() as job_manager:
            return all(job.status.is_terminal for job in job_manager.jobs() if job.job_id == job_id)

    # The start must not see the job in the moment in which all its tasks run.
    late = Fault(
        "GET",
        "/jobs/overview",
        Does.PASS_ON,
        times=1000,
        before=lambda: until(has_failed, "the failure of the job"),
    )
    rest_proxy.add(late)
    with pytest.raises(StreamingJobError, match="/ by zero") as caught:
        lab.start(lab.runtime(rest_url=rest_proxy.url))
    assert f"{lab.script.name}:13" in str(caught.value)
    assert len(str(caught.value)) < 500
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.ENDED
    assert lab.runtime().memory.ensure(lab.job).last_error == str(caught.value)


@pytest.mark.every_engine
def test_an_insert_that_flink_refuses_names_the_place_and_the_cause_and_is_never_posted(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.write_script(where=" WHERE nonesuch > 1")
    with pytest.raises(StreamingJobError, match="'nonesuch'") as caught:
        lab.start(lab.runtime(sql_gateway_url=gateway_proxy.url))
    assert f"{lab.script.name}:13" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "\tat " not in str(caught.value)
    assert gateway_proxy.inserts == []
    assert lab.incarnations() == ()
    assert lab.on_cluster() == []
    assert lab.lease_is_free()


@pytest.mark.every_engine
def test_a_statement_before_the_insert_that_is_refused_leaves_nothing_on_record(
    lab: Laboratory,
) -> None:
    lab.write_script(settings="CREATE DATABASE ods2 COMMENT 'c' WITH ('a' = 'b');\nUSE nonesuch;")
    with pytest.raises(StreamingJobError, match="nonesuch") as caught:
        lab.start()
    assert f"{lab.script.name}:6:1" in str(caught.value)
    assert lab.incarnations() == ()
    assert lab.on_cluster() == []


def test_a_missing_variable_is_named_with_its_script(lab: Laboratory) -> None:
    lab.write_script(where=" WHERE id > ${LEAST}")
    with pytest.raises(MissingVariableError, match="LEAST") as caught:
        lab.start()
    assert lab.script.name in str(caught.value)
    assert lab.incarnations() == ()


def _configuration(**options: str) -> bytes:
    entries = [{"key": key.replace("__", "."), "value": value} for key, value in options.items()]
    return json.dumps(entries).encode()


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (_configuration(rest__port="1"), "execution.checkpointing.dir"),
        (
            _configuration(execution__checkpointing__dir="file:///c"),
            "execution.checkpointing.interval",
        ),
    ],
    ids=["no folder", "no interval"],
)
def test_a_job_that_could_never_be_restored_is_not_started(
    lab: Laboratory, rest_proxy: FaultyProxy, answer: bytes, missing: str
) -> None:
    text = lab.script.read_text()
    lab.script.write_text("\n".join(line for line in text.splitlines() if "checkpoint" not in line))
    rest_proxy.add(Fault("GET", "/jobmanager/config", Does.ANSWER_ITSELF, answer=answer))
    with pytest.raises(ConfigurationError, match=missing):
        lab.start(lab.runtime(rest_url=rest_proxy.url))
    assert lab.incarnations() == ()


def test_tables_that_other_scripts_declare_are_created_first(lab: Laboratory) -> None:
    below = lab.folder / "dwd.sql"
    below.write_text(
        f"""SET 'pipeline.name' = '{lab.job}-dwd';
        SET 'execution.checkpointing.interval' = '500ms';
        SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
        CREATE DATABASE IF NOT EXISTS dwd;
        CREATE TABLE IF NOT EXISTS dwd.kept (id BIGINT, text STRING, amount INT)
        WITH ('bucket' = '-1', 'write-only' = 'true');
        INSERT INTO dwd.kept SELECT id, text, amount FROM ods.copied;
        """
    )
    runtime = lab.runtime(below, lab.script)
    outcome = lab.start(runtime, job=f"{lab.job}-dwd")
    assert outcome.how is StartedHow.STARTED
    assert lab.catalog.open().tables() == ("dwd.kept", "ods.copied")
    assert lab.incarnations() == ()  # the other script's job was not started with it


@pytest.mark.every_engine
def test_operator_ids_and_commit_users_are_ours_so_that_a_changed_script_restores(
    lab: Laboratory,
) -> None:
    def kept(where: str) -> Path:
        script = lab.folder / "kept.sql"
        script.write_text(
            f"""SET 'pipeline.name' = '{lab.job}-dwd';
            SET 'execution.checkpointing.interval' = '500ms';
            SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
            SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
            CREATE DATABASE IF NOT EXISTS dwd;
            CREATE TABLE IF NOT EXISTS dwd.kept (id BIGINT, text STRING, amount INT)
            WITH ('bucket' = '-1', 'write-only' = 'true');
            INSERT INTO dwd.kept SELECT id, text, amount FROM ods.copied{where};
            """
        )
        return script

    job = f"{lab.job}-dwd"
    lab.source.write()
    lab.start()
    first = lab.start(lab.runtime(kept(""), lab.script), job=job)
    lab.copied()
    table = lab.catalog.open().table("dwd.kept")
    until(lambda: table.latest_snapshot_id(), "the first snapshot of dwd.kept")
    lab.wait_for_checkpoints(first.flink_job_id, 2)
    stopped = lab.stop(lab.runtime(kept(""), lab.script), job=job)
    lab.source.write()

    second = lab.start(lab.runtime(kept(" WHERE amount >= 50"), lab.script), job=job)
    assert second.restored_from == stopped.savepoint_path
    lab.assert_restored(second)
    wanted = sorted(row.id for row in lab.source.rows if row.id <= 50 or row.amount >= 50)

    def ids() -> list[int]:
        return sorted(table.read(columns=["id"]).column("id").to_pylist())

    until(lambda: ids() == wanted, "the rows after the change")
    lab.wait_for_checkpoints(second.flink_job_id)
    assert ids() == wanted

    newest = table.latest_snapshot_id()
    assert newest is not None
    users = {snapshot.commit_user for snapshot in table.snapshots(0, newest).snapshots}
    assert len(users) == 1  # kept in the state: the same user before and after
    assert users.pop().startswith(operator_suffix(job))


def test_materialise_waits_for_the_next_snapshot_and_ends_when_there_is_no_new_data(
    lab: Laboratory,
) -> None:
    runtime = lab.runtime()
    lab.source.write()
    outcome, (made,) = materialise(runtime, lab.job, [TABLE], timeout_seconds=40, holder="test")
    assert outcome.how is StartedHow.STARTED
    assert made.event is not None
    assert made.newest_snapshot >= 1
    lab.copied_exactly(outcome.flink_job_id)

    outcome, (quiet,) = materialise(runtime, lab.job, [TABLE], timeout_seconds=40, holder="test")
    assert outcome.how is StartedHow.ADOPTED
    assert quiet.event is None
    assert quiet.newest_snapshot == lab.catalog.open().table(TABLE).latest_snapshot_id()


class Interrupted(BaseException):
    """What a cancelled Dagster run raises somewhere in our code."""


def _interrupted_when(condition: object) -> Clock:
    """A clock whose sleep raises once the condition holds, as a cancelled run's does."""
    assert callable(condition)

    def sleep(seconds: float) -> None:
        if condition():
            raise Interrupted
        threading.Event().wait(seconds)

    return Clock(sleep=sleep)


@pytest.mark.every_engine
def test_cancelling_a_start_leaves_no_job_and_no_lease(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    clock = _interrupted_when(lambda: gateway_proxy.inserts)
    runtime = lab.runtime(sql_gateway_url=gateway_proxy.url, clock=clock)
    with pytest.raises(Interrupted):
        lab.start(runtime)
    assert len(gateway_proxy.inserts) == 1
    assert lab.on_cluster() == []
    assert lab.lease_is_free()
    (incarnation,) = lab.incarnations()
    assert (incarnation.state, incarnation.end_reason) == (
        IncarnationState.ENDED,
        "cancelled while starting",
    )
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.UNMANAGED
    assert lab.start().incarnation == 2


def test_cancelling_a_start_before_anything_is_submitted_changes_nothing(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    still = b'{"status": "RUNNING"}'
    gateway_proxy.add(Fault("GET", "/status$", Does.ANSWER_ITSELF, answer=still, times=1000))
    clock = _interrupted_when(lambda: gateway_proxy.requests("POST", STATEMENT))
    with pytest.raises(Interrupted):
        lab.start(lab.runtime(sql_gateway_url=gateway_proxy.url, clock=clock))
    assert lab.incarnations() == ()
    assert gateway_proxy.inserts == []
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.UNMANAGED
    opened = gateway_proxy.requests("POST", "/v3/sessions$")
    closed = gateway_proxy.requests("DELETE", "/v3/sessions/[^/]+$")
    assert len(opened) == len(closed) == 1
    assert lab.lease_is_free()


def test_two_that_start_a_job_at_once_get_exactly_one(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.source.write()
    lab.runtime().memory.ensure(lab.job)
    both = threading.Barrier(2)
    outcomes: list[str] = []

    def start(holder: str) -> None:
        runtime = lab.runtime(sql_gateway_url=gateway_proxy.url)
        both.wait()
        (applied,) = apply(runtime, [(lab.job, verb("start"))], holder=holder)
        error = applied.error
        outcomes.append(type(error).__name__ if error else str(applied.outcome))

    with JobWatcher(lab.cluster, lab.job) as watcher:
        threads = [threading.Thread(target=start, args=(f"process {i}",)) for i in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lab.copied()
    assert sorted(outcome == LeaseHeldError.__name__ for outcome in outcomes) == [False, True]
    assert len(gateway_proxy.inserts) == 1
    assert watcher.most_at_once == 1
    (job,) = lab.on_cluster()
    lab.copied_exactly(job.job_id)


def test_a_lease_lost_before_the_insert_posts_nothing(
    lab: Laboratory, gateway_proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = lab.runtime(sql_gateway_url=gateway_proxy.url)
    record = Jobs.record

    def recorded_then_fenced_off(self: Jobs, name: str, **values: object) -> object:
        incarnation = record(self, name, **values)  # type: ignore[arg-type]
        key = self.lease_key(name)
        lease = runtime.leases.current(key)
        assert lease is not None
        runtime.leases.release(lease)
        runtime.leases.acquire(key, "another process", 1)
        return incarnation

    monkeypatch.setattr(Jobs, "record", recorded_then_fenced_off)
    with pytest.raises(LeaseLostError):
        lab.start(runtime)
    monkeypatch.undo()
    assert gateway_proxy.inserts == []
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.RECORDED
    assert lab.runtime().memory.ensure(lab.job).last_error is None

    until(lab.lease_is_free, "the end of the other lease")
    second = lab.start(runtime)
    assert (second.incarnation, len(gateway_proxy.inserts)) == (2, 1)
    assert lab.incarnations()[1].end_reason == "never appeared on the cluster"


def test_whoever_was_overtaken_cannot_record_an_incarnation(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    """A run goes on after its lease ended and another has acted: fenced off by its number."""
    lab.start()
    lab.stop()
    runtime = lab.runtime(sql_gateway_url=gateway_proxy.url)
    with runtime.hold(lab.job, "overtaken") as held:
        runtime.leases.release(held.lease)
        other = lab.start()
        assert other.incarnation == 2
        lab.cancel()
        with pytest.raises(LeaseLostError):
            held.still_ours()
        with pytest.raises(LeaseLostError):
            runtime.memory.record(
                lab.job,
                number=3,
                flink_job_id=flink_job_id(lab.identity, lab.job, 3),
                fingerprint="",
                restored_from=None,
                fencing=held.lease.fencing,
                session_handle=None,
            )
        with pytest.raises(LeaseLostError):
            start_or_adopt(held)
    assert gateway_proxy.inserts == []
    assert [incarnation.number for incarnation in lab.incarnations()] == [2, 1]


def test_an_unreachable_cluster_starts_nothing(lab: Laboratory) -> None:
    nobody = "http://127.0.0.1:9"
    with pytest.raises(ClusterUnreachableError):
        lab.start(lab.runtime(rest_url=nobody))
    with pytest.raises(ClusterUnreachableError):
        lab.start(lab.runtime(sql_gateway_url=nobody))
    assert lab.incarnations() == ()
    assert lab.on_cluster() == []
    assert lab.lease_is_free()


@pytest.mark.every_engine
def test_an_insert_whose_answer_is_lost_is_adopted_by_its_id_and_never_sent_again(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.source.write()
    gateway_proxy.add(Fault("POST", STATEMENT, Does.LOSE_ANSWER, body=INSERT))
    with JobWatcher(lab.cluster, lab.job) as watcher:
        patient = replace(QUICK, submission_timeout="60s")
        runtime = lab.runtime(sql_gateway_url=gateway_proxy.url, policy=patient)
        outcome = lab.start(runtime)
        lab.copied_exactly(outcome.flink_job_id)
    assert outcome.incarnation == 1
    assert len(gateway_proxy.inserts) == 1
    assert watcher.ids == [flink_job_id(lab.identity, lab.job, 1)]
    assert watcher.most_at_once == 1


@pytest.mark.every_engine
@pytest.mark.parametrize("does", [Does.LOSE_REQUEST, Does.ANSWER_503], ids=["hang up", "503"])
def test_an_insert_that_never_arrived_is_given_up_after_its_session_was_deleted(
    lab: Laboratory, gateway_proxy: FaultyProxy, does: Does
) -> None:
    gateway_proxy.add(Fault("POST", STATEMENT, does, body=INSERT))
    runtime = lab.runtime(sql_gateway_url=gateway_proxy.url, policy=IMPATIENT)
    with pytest.raises(StreamingJobError, match="did not appear"):
        lab.start(runtime)
    (incarnation,) = lab.incarnations()
    assert incarnation.state is IncarnationState.ENDED
    assert incarnation.end_reason == "never appeared on the cluster"
    assert gateway_proxy.requests("DELETE", f"/v3/sessions/{incarnation.session_handle}$")
    assert len(gateway_proxy.inserts) == 1
    if does is Does.ANSWER_503:
        return
    outcome = lab.start(runtime)
    assert outcome.incarnation == 2
    assert len(gateway_proxy.inserts) == 2
    assert [job.job_id for job in lab.on_cluster()] == [outcome.flink_job_id]


@pytest.mark.every_engine
def test_an_insert_that_arrives_late_dies_with_its_session(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    gateway_proxy.add(Fault("POST", STATEMENT, Does.PASS_ON, body=INSERT, delay_seconds=12))
    runtime = lab.runtime(
        sql_gateway_url=gateway_proxy.url, policy=IMPATIENT, read_timeout_seconds=3
    )
    with pytest.raises(StreamingJobError, match="did not appear"):
        lab.start(runtime)
    outcome = lab.start()
    assert outcome.incarnation == 2
    until(lambda: gateway_proxy.inserts, "the late INSERT")
    lab.wait_for_checkpoints(outcome.flink_job_id, 3)
    assert [job.job_id for job in lab.on_cluster()] == [outcome.flink_job_id]


@pytest.mark.every_engine
def test_a_job_whose_newest_state_is_gone_is_started_neither_from_nothing_nor_from_an_older_state(
    lab: Laboratory,
) -> None:
    lab.source.write()
    lab.start()
    lab.copied()
    older = lab.stop().savepoint_path
    lab.source.write()
    second = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(second.flink_job_id, 1)
    lab.cancel()
    (lab.folder / "checkpoints").rename(lab.folder / "taken away")
    assert is_complete(str(older))  # from it, the second fifty rows would be written once more
    with pytest.raises(NoRestorePointError, match="allow-empty-start"):
        lab.start()
    assert len(lab.incarnations()) == 2
    (lab.folder / "taken away").rename(lab.folder / "checkpoints")
    third = lab.start()
    assert f"{second.flink_job_id}/chk-" in str(third.restored_from)
    lab.copied_exactly(third.flink_job_id)


@pytest.mark.every_engine
def test_a_job_that_runs_is_adopted_when_the_database_is_lost(lab: Laboratory) -> None:
    first = lab.start()
    outcome = lab.start(_with_an_empty_database(lab))
    assert (outcome.how, outcome.incarnation) == (StartedHow.ADOPTED, 1)
    assert [job.job_id for job in lab.on_cluster()] == [first.flink_job_id]


@pytest.mark.every_engine
def test_a_job_that_ran_is_known_by_its_checkpoints_when_the_database_is_lost(
    lab: Laboratory,
) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    lab.cancel()
    lab.source.write()
    second = lab.start(_with_an_empty_database(lab))
    assert second.incarnation == 2
    lab.assert_restored(second)
    lab.copied_exactly(second.flink_job_id)


def _with_an_empty_database(lab: Laboratory) -> Runtime:
    database = SystemDatabase(f"sqlite:///{lab.folder / f'{uuid4().hex}.db'}")
    return replace(lab.runtime(), system_database=database)

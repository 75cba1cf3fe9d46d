"""The supervisor on a real cluster: what it starts, what it leaves alone, what it cleans up."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.streaming.marker import Marker
from lakehouse_dagster.streaming.observe import ObservedState, Verb
from lakehouse_dagster.streaming.runtime import LOGGER, Clock, utc_now
from lakehouse_dagster.streaming.session import prepare
from lakehouse_dagster.streaming.settings import incarnation_settings
from lakehouse_dagster.streaming.start import StartedHow
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState, flink_job_id
from tests.support.actor import supervise_once
from tests.support.faults import INSERT, STATEMENT, Does, Fault, FaultyProxy
from tests.support.fixtures import gateway_proxy, lab
from tests.support.history import JobWatcher
from tests.support.laboratory import IMPATIENT, Laboratory, until
from tests.support.processes import Actor

__all__ = ["gateway_proxy", "lab"]

pytestmark = pytest.mark.flink
DIES_SOON = {"lease": "4s"}
"""Of a process that is killed: nobody may act on its job before its lease ends."""


def _observed(seen: Look) -> ObservedState:
    (observation,) = seen.observations
    return observation.observed


def test_a_job_that_nobody_started_is_left_alone_unless_it_starts_on_load(
    lab: Laboratory,
) -> None:
    cursor = SupervisorCursor()
    for _ in range(3):
        seen = look(lab.runtime(), cursor)
        cursor = seen.cursor
        assert (_observed(seen), seen.actions) == (ObservedState.ABSENT, ())
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.UNMANAGED

    lab.source.write()
    on_load = lab.runtime(start="on_load")
    (action,) = look(on_load, cursor).actions
    assert (action.verb, action.attempt) == (Verb.START, 1)
    supervise_once(on_load, cursor, "supervisor")
    (job,) = lab.on_cluster()
    lab.copied_exactly(job.job_id)
    seen = look(on_load, cursor)
    assert (_observed(seen), seen.actions) == (ObservedState.RUNNING, ())
    (incarnation,) = lab.incarnations()
    assert incarnation.checkpoint_id is not None
    # Forgotten once it has been well for a while.
    assert on_load.memory.ensure(lab.job).attempts == 1


def test_while_the_cluster_gives_no_answer_nothing_is_started_and_nothing_counts_as_lost(
    lab: Laboratory,
) -> None:
    outcome = lab.start()
    nobody = lab.runtime(rest_url="http://127.0.0.1:9")
    cursor = SupervisorCursor(missing_since={lab.job: nobody.clock.now()})
    for _ in range(3):
        seen = look(nobody, cursor)
        cursor = seen.cursor
        assert (_observed(seen), seen.actions) == (ObservedState.UNREACHABLE, ())
        assert "UNREACHABLE" in seen.summary()
        assert cursor.missing_since == {}
    seen = look(lab.runtime(), cursor)
    assert (_observed(seen), seen.actions) == (ObservedState.RUNNING, ())
    assert [job.job_id for job in lab.on_cluster()] == [outcome.flink_job_id]


@pytest.mark.every_engine
def test_a_job_cancelled_on_the_cluster_is_started_again_and_one_cancelled_by_us_is_not(
    lab: Laboratory,
) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    with lab.cluster.job_manager() as job_manager:
        job_manager.cancel(first.flink_job_id)
        until(lambda: not lab.on_cluster(), "the end of the job")
    cursor = supervise_once(lab.runtime(), SupervisorCursor(), "supervisor").cursor
    (job,) = lab.on_cluster()
    assert job.job_id == flink_job_id(lab.identity, lab.job, 2)
    lab.copied_exactly(job.job_id)

    lab.cancel()
    for _ in range(2):
        seen = look(lab.runtime(), cursor)
        cursor = seen.cursor
        assert (_observed(seen), seen.actions) == (ObservedState.ABSENT, ())


@pytest.mark.every_engine
def test_a_bounded_job_that_finished_is_not_run_again(lab: Laboratory) -> None:
    text = lab.script.read_text()
    lab.script.write_text(text.replace(",\n  'source.monitor-interval' = '200ms'", ""))
    lab.source.write()
    lab.start()
    runtime = lab.runtime()
    until(lambda: _observed(look(runtime, SupervisorCursor())) is ObservedState.FINISHED, "its end")
    (incarnation,) = lab.incarnations()
    assert (incarnation.state, incarnation.end_reason) == (IncarnationState.ENDED, "FINISHED")
    assert look(runtime, SupervisorCursor()).actions == ()
    lab.copied()
    with pytest.raises(NoRestorePointError):  # it would write all its rows once more
        lab.start()
    assert lab.on_cluster() == []


def test_a_lost_insert_is_tried_again_as_a_new_incarnation_after_its_back_off(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.source.write()
    lab.runtime().memory.set_desired(lab.job, DesiredState.RUNNING)
    gateway_proxy.add(Fault("POST", STATEMENT, Does.LOSE_REQUEST, body=INSERT))
    runtime = lab.runtime(
        sql_gateway_url=gateway_proxy.url, policy=replace(IMPATIENT, backoff_initial="3s")
    )
    cursor = supervise_once(runtime, SupervisorCursor(), "supervisor").cursor
    record = runtime.memory.ensure(lab.job)
    assert record.attempts == 1
    assert "did not appear" in str(record.last_error)
    assert record.next_attempt_at is not None

    def passed() -> bool:
        return runtime.clock.now() >= record.next_attempt_at  # type: ignore[operator]

    seen = look(runtime, cursor)
    assert seen.actions == () or passed()
    until(passed, "the end of the back-off")
    supervise_once(runtime, cursor, "supervisor")
    (job,) = lab.on_cluster()
    assert job.job_id == flink_job_id(lab.identity, lab.job, 2)
    assert len(gateway_proxy.inserts) == 2
    lab.copied_exactly(job.job_id)


def test_a_job_that_can_never_start_waits_for_a_person_after_its_last_attempt(
    lab: Laboratory,
) -> None:
    lab.write_script(settings="USE nonesuch;")
    lab.runtime().memory.set_desired(lab.job, DesiredState.RUNNING)
    runtime = lab.runtime(policy=replace(lab.runtime().policy, max_attempts=2))

    def attempts() -> int:
        supervise_once(runtime, SupervisorCursor(), "supervisor")
        return runtime.memory.ensure(lab.job).attempts

    until(lambda: attempts() == 2, "the last attempt")
    record = runtime.memory.ensure(lab.job)
    assert "nonesuch" in str(record.last_error)
    long_after = replace(runtime, clock=Clock(now=lambda: utc_now() + timedelta(days=1)))
    assert look(long_after, SupervisorCursor()).actions == ()


@pytest.mark.every_engine
def test_a_superseded_incarnation_that_shows_up_late_is_cancelled(lab: Laboratory) -> None:
    """As when a JobManager comes back with a job that everyone had given up."""
    runtime = lab.runtime()
    definition = lab.runtime().job(lab.job).definition
    with runtime.hold(lab.job, "test") as held:
        runtime.memory.record(
            lab.job,
            number=1,
            flink_job_id=flink_job_id(lab.identity, lab.job, 1),
            fingerprint=definition.fingerprint,
            restored_from=None,
            fencing=held.lease.fencing,
            session_handle=None,
        )
    second = lab.start()
    assert second.incarnation == 2
    _submit_by_hand(lab, 1)
    until(lambda: len(lab.on_cluster()) == 2, "the late incarnation")

    (action,) = look(lab.runtime(), SupervisorCursor()).actions
    assert action.verb is Verb.RECOVER
    assert "incarnation 1" in action.reason
    supervise_once(lab.runtime(), SupervisorCursor(), "supervisor")
    assert [job.job_id for job in lab.on_cluster()] == [second.flink_job_id]
    assert look(lab.runtime(), SupervisorCursor()).actions == ()


def test_a_job_of_another_name_and_id_is_never_touched(lab: Laboratory) -> None:
    other = Laboratory(
        lab.folder / "other", lab.rest_url, lab.sql_gateway_url, lakehouse="x" + lab.lakehouse
    )
    other.job = lab.job
    other.write_script()
    theirs = other.start()
    try:
        lab.source.write()
        ours = lab.start()
        lab.cancel()
        assert ours.how is StartedHow.STARTED
        assert [job.job_id for job in other.on_cluster()] == [theirs.flink_job_id]
    finally:
        other.clean_up()


@pytest.mark.every_engine
def test_a_starter_killed_as_its_insert_arrives_leaves_a_job_that_is_adopted(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.source.write()
    lab.runtime().memory.ensure(lab.job)
    actor: list[Actor] = []
    gateway_proxy.add(
        Fault("POST", STATEMENT, Does.PASS_ON, body=INSERT, before=lambda: actor[0].kill())
    )
    with JobWatcher(lab.cluster, lab.job) as watcher:
        actor.append(
            Actor.start(lab, "start", "killed", sql_gateway_url=gateway_proxy.url, policy=DIES_SOON)
        )
        until(lambda: lab.on_cluster(), "the job of the killed process")
        assert actor[0].process.wait(5) == -9
        (incarnation,) = lab.incarnations()
        assert incarnation.state is IncarnationState.RECORDED
        until(lab.lease_is_free, "the end of the dead process's lease")
        outcome = lab.start()
        lab.copied_exactly(outcome.flink_job_id)
    assert (outcome.how, outcome.incarnation) == (StartedHow.ADOPTED, 1)
    assert len(gateway_proxy.inserts) == 1
    assert watcher.ids == [outcome.flink_job_id]


@pytest.mark.every_engine
def test_a_starter_killed_before_its_insert_arrives_leaves_nothing_that_could_start_late(
    lab: Laboratory, gateway_proxy: FaultyProxy
) -> None:
    lab.runtime().memory.ensure(lab.job)
    actor: list[Actor] = []
    gateway_proxy.add(
        Fault("POST", STATEMENT, Does.LOSE_REQUEST, body=INSERT, before=lambda: actor[0].kill())
    )
    actor.append(
        Actor.start(lab, "start", "killed", sql_gateway_url=gateway_proxy.url, policy=DIES_SOON)
    )
    until(lambda: gateway_proxy.inserts, "the INSERT of the killed process")
    (incarnation,) = lab.incarnations()
    until(lab.lease_is_free, "the end of the dead process's lease")
    began = time.monotonic()
    outcome = lab.start(lab.runtime(sql_gateway_url=gateway_proxy.url))
    assert time.monotonic() - began >= 2  # the grace in which a late submission would show up
    assert outcome.incarnation == 2
    assert gateway_proxy.requests("DELETE", f"/v3/sessions/{incarnation.session_handle}$")
    assert [job.job_id for job in lab.on_cluster()] == [outcome.flink_job_id]


def _submit_by_hand(lab: Laboratory, number: int) -> None:
    """Run the job under the id of an incarnation, past all our rules."""
    runtime = lab.runtime(clock=Clock())
    with runtime.cluster.sql_gateway() as gateway, runtime.hold(lab.job, "by hand") as held:
        prepared = prepare(held, gateway, LOGGER)
        session = prepared.session
        config = incarnation_settings(
            prepared.settings,
            Marker(lab.identity, lab.job, number, lab.job),
            flink_job_id=flink_job_id(lab.identity, lab.job, number),
            restore_from=None,
        )
        operation = session.submit(prepared.statement, config=config)
        operation.wait(60)
        session.delete()
    with lab.cluster.job_manager() as job_manager:
        job = job_manager.job(flink_job_id(lab.identity, lab.job, number))
        assert job is not None
        assert job.status is not FlinkJobStatus.FAILED

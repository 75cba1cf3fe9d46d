"""Jobs that are not on record: adopted, left alone or refused, on a real cluster."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from lakehouse_dagster.errors import (
    ForeignJobError,
    JobNotFoundError,
    LakehouseError,
    StreamingJobError,
)
from lakehouse_dagster.streaming.adopt import AdoptedHow, AdoptOutcome
from lakehouse_dagster.streaming.apply import Allowed, apply, verb
from lakehouse_dagster.streaming.forget import rename
from lakehouse_dagster.streaming.observe import Observation, ObservedState
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.start import StartedHow
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, Origin
from tests.support.by_hand import submit_by_hand
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory, until

__all__ = ["lab"]

pytestmark = pytest.mark.flink

NOTHING = " WHERE id < 0"
LOG = logging.getLogger("test")


def done(runtime: Runtime, what: str, name: str, allowed: Allowed | None = None) -> object:
    """Apply a verb; its outcome, or its error raised."""
    (applied,) = apply(runtime, [(name, verb(what, allowed or Allowed()))], holder="test", log=LOG)
    if applied.error is not None:
        raise applied.error
    return applied.outcome


def observed(runtime: Runtime) -> Observation:
    (observation,) = look(runtime, SupervisorCursor()).observations
    return observation


def cancel_on_cluster(lab: Laboratory, job_id: str) -> None:
    with lab.cluster.job_manager() as job_manager:
        job_manager.cancel(job_id)
        until(lambda: getattr(job_manager.job(job_id), "ended_at", None), "its end")


def lose_database(lab: Laboratory) -> None:
    lab.books.database.close()
    del lab.__dict__["books"]
    for file in lab.folder.glob("lakehouse.db*"):
        file.unlink()


@pytest.fixture
def by_hand(lab: Laboratory) -> str:
    """A job that a person has submitted: it runs, and has completed checkpoints."""
    lab.source.write()
    job_id = submit_by_hand(lab)
    lab.wait_for_checkpoints(job_id, 2)
    return job_id


def test_a_job_started_by_hand_is_reported_and_never_doubled(lab: Laboratory, by_hand: str) -> None:
    on_load = lab.runtime(start="on_load")
    seen = look(on_load, SupervisorCursor())
    assert seen.actions == ()
    (observation,) = seen.observations
    assert observation.foreign == (by_hand,)
    assert (observation.desired, observation.observed) == (
        DesiredState.UNMANAGED,
        ObservedState.ABSENT,
    )
    with pytest.raises(ForeignJobError, match=f"{by_hand}.*jobs adopt {lab.job}"):
        lab.start()
    assert lab.incarnations() == ()
    cancel_on_cluster(lab, by_hand)


@pytest.mark.every_engine
def test_an_adopted_job_is_stopped_and_goes_on_with_its_state(
    lab: Laboratory, by_hand: str
) -> None:
    outcome = done(lab.runtime(), "adopt", lab.job)
    assert isinstance(outcome, AdoptOutcome)
    assert (outcome.how, outcome.incarnation, outcome.flink_job_id) == (
        AdoptedHow.BY_HAND,
        1,
        by_hand,
    )
    (incarnation,) = lab.incarnations()
    assert incarnation.origin is Origin.ADOPTED
    record = lab.books.memory.ensure(lab.job)
    assert (record.desired, record.operator_name) == (DesiredState.RUNNING, "")
    assert observed(lab.runtime()).observed is ObservedState.RUNNING

    stopped = lab.stop()
    lab.source.write()
    started = lab.start()
    assert started.how is StartedHow.STARTED
    assert started.restored_from == stopped.savepoint_path
    lab.copied_exactly(started.flink_job_id)


@pytest.mark.every_engine
def test_an_adopted_job_that_dies_is_brought_back_with_its_state(
    lab: Laboratory, by_hand: str
) -> None:
    done(lab.runtime(), "adopt", lab.job)
    lab.copied()
    lab.wait_for_checkpoints(by_hand, 2)
    cancel_on_cluster(lab, by_hand)
    lab.source.write()
    done(lab.runtime(), "recover", lab.job)
    lab.copied_exactly(lab.running().job_id)


def test_which_of_several_jobs_is_meant_must_be_said(lab: Laboratory, by_hand: str) -> None:
    second = submit_by_hand(lab, condition=NOTHING)
    with pytest.raises(ForeignJobError, match="Several jobs named"):
        done(lab.runtime(), "adopt", lab.job)
    with pytest.raises(StreamingJobError, match="does not run"):
        done(lab.runtime(), "adopt", lab.job, Allowed(flink_job_id="0" * 32))
    outcome = done(lab.runtime(), "adopt", lab.job, Allowed(flink_job_id=by_hand))
    assert isinstance(outcome, AdoptOutcome)
    assert outcome.flink_job_id == by_hand
    beside = observed(lab.runtime())
    assert (beside.foreign, beside.healthy) == ((second,), False)
    cancel_on_cluster(lab, second)
    until(lambda: observed(lab.runtime()).healthy, "the other job's end")


def test_nothing_to_adopt_is_said(lab: Laboratory) -> None:
    with pytest.raises(StreamingJobError, match="there is nothing to adopt"):
        done(lab.runtime(), "adopt", lab.job)
    outcome = done(lab.runtime(), "adopt", lab.job, Allowed(foreign=False))
    assert isinstance(outcome, AdoptOutcome)
    assert outcome.how is AdoptedHow.NOTHING


@pytest.mark.every_engine
def test_a_lost_database_is_rebuilt_from_what_runs(lab: Laboratory) -> None:
    """Also where the job had more incarnations than are looked for by number."""
    first = lab.start()
    memory = lab.books.memory
    memory.update(lab.job, 1, end_reason="made to look old")
    lab.stop()
    _as_if_it_were(lab, number=5000)
    lab.source.write()
    alive = lab.start()
    assert alive.incarnation == 5001
    lab.copied()
    lose_database(lab)

    assert look(lab.runtime(), SupervisorCursor()).actions == ()
    outcome = done(lab.runtime(), "adopt", lab.job, Allowed(foreign=False))
    assert isinstance(outcome, AdoptOutcome)
    assert (outcome.how, outcome.incarnation, outcome.flink_job_id) == (
        AdoptedHow.OURS,
        5001,
        alive.flink_job_id,
    )
    assert first.flink_job_id != alive.flink_job_id
    assert lab.runtime().memory.ensure(lab.job).desired is DesiredState.RUNNING
    adopted = lab.start()
    assert (adopted.how, adopted.flink_job_id) == (StartedHow.ADOPTED, alive.flink_job_id)
    lab.copied_exactly(alive.flink_job_id)


def _as_if_it_were(lab: Laboratory, *, number: int) -> None:
    """Let the next incarnation get the number after this one."""
    memory = lab.books.memory
    latest = memory.latest(lab.job)
    assert latest is not None
    with lab.books.hold(lab.job, "test") as held:
        memory.record(
            lab.job,
            number=number,
            flink_job_id="f" * 32,
            fingerprint=latest.fingerprint,
            restored_from=None,
            fencing=held.lease.fencing,
            session_handle=None,
        )
        held.over(
            memory.latest(lab.job) or latest, "never was", savepoint_path=latest.savepoint_path
        )


def test_a_job_whose_script_is_gone_is_left_running_and_can_be_stopped(lab: Laboratory) -> None:
    outcome = lab.start()
    without = replace(lab.runtime(), jobs={})
    seen = look(without, SupervisorCursor())
    (observation,) = seen.observations
    assert (observation.orphaned, observation.observed) == (True, ObservedState.RUNNING)
    assert seen.actions == ()
    assert seen.summary() == "1 ORPHANED"
    with pytest.raises(JobNotFoundError):
        done(without, "start", lab.job)
    with pytest.raises(LakehouseError, match="Stop or cancel it first"):
        done(without, "forget", lab.job)
    done(without, "stop", lab.job)
    assert lab.on_cluster() == []
    done(without, "forget", lab.job)
    assert look(without, SupervisorCursor()).observations == ()
    assert outcome.incarnation == 1


@pytest.mark.every_engine
def test_a_forgotten_job_goes_on_from_its_newest_checkpoint(lab: Laboratory) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 2)
    lab.cancel()
    done(lab.runtime(), "forget", lab.job)
    assert lab.books.memory.get(lab.job) is None
    lab.source.write()
    second = lab.start()
    assert second.incarnation == 2
    assert first.flink_job_id in str(second.restored_from)
    lab.copied_exactly(second.flink_job_id)


@pytest.mark.every_engine
def test_a_renamed_job_keeps_running_and_its_state(lab: Laboratory) -> None:
    lab.source.write()
    first = lab.start()
    lab.copied()
    old, lab.job = lab.job, f"{lab.job}-renamed"
    lab.write_script()
    renamed = lab.runtime()
    rename(renamed, old, lab.job, holder="test")
    observation = observed(lab.runtime())
    assert (observation.name, observation.observed) == (lab.job, ObservedState.RUNNING)
    assert observation.outdated
    assert observation.incarnation is not None
    assert observation.incarnation.flink_job_id == first.flink_job_id
    with pytest.raises(JobNotFoundError, match="Nothing is on record"):
        rename(renamed, old, lab.job, holder="test")

    lab.source.write()
    done(lab.runtime(), "upgrade", lab.job)
    running = lab.running()
    assert running.name == lab.job
    lab.copied_exactly(running.job_id)
    assert [i.number for i in lab.incarnations()] == [2, 1]

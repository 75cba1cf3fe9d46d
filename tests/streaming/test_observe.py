"""What a job is called at one moment, and what is done about it: decisions from data to data."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from lakehouse_dagster.flink import FlinkJobStatus, JobSummary
from lakehouse_dagster.streaming.observe import (
    Observation,
    ObservedState,
    Verb,
    is_due,
    observe,
    waits_for_a_person,
    what_to_do,
)
from lakehouse_dagster.streaming.spec import StartPolicy, SupervisionPolicy
from lakehouse_dagster.system_db import DesiredState, Incarnation, IncarnationState
from tests.streaming.making import NOW, ago, incarnation, record, summary

POLICY = SupervisionPolicy()


def seen(
    latest: Incarnation | None,
    on_cluster: JobSummary | None = None,
    *,
    missing_since: datetime | None = None,
) -> Observation:
    return observe(
        record(), latest, on_cluster, missing_since=missing_since, now=NOW, policy=POLICY
    )


def state(*arguments: Any, **named: Any) -> ObservedState:
    return seen(*arguments, **named).observed


def test_a_job_that_was_never_started_is_absent() -> None:
    assert state(None) is ObservedState.ABSENT


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (FlinkJobStatus.INITIALIZING, ObservedState.STARTING),
        (FlinkJobStatus.CREATED, ObservedState.STARTING),
        (FlinkJobStatus.RUNNING, ObservedState.RUNNING),
        (FlinkJobStatus.FAILING, ObservedState.RESTARTING),
        (FlinkJobStatus.RESTARTING, ObservedState.RESTARTING),
        (FlinkJobStatus.FAILED, ObservedState.FAILED),
        (FlinkJobStatus.CANCELLING, ObservedState.STOPPING),
        (FlinkJobStatus.CANCELED, ObservedState.ABSENT),
        (FlinkJobStatus.FINISHED, ObservedState.FINISHED),
        (FlinkJobStatus.SUSPENDED, ObservedState.STARTING),
        (FlinkJobStatus.RECONCILING, ObservedState.STARTING),
    ],
)
def test_every_status_of_flink_has_a_name(status: FlinkJobStatus, expected: ObservedState) -> None:
    assert state(incarnation(), summary(status)) is expected


def test_a_job_runs_only_when_all_its_tasks_do() -> None:
    some = seen(incarnation(), summary(tasks_running=1))
    assert (some.observed, some.reason) == (ObservedState.STARTING, "1 of 3 tasks run")
    assert state(incarnation(), summary(tasks_total=0, tasks_running=0)) is ObservedState.STARTING


def test_tasks_that_read_a_bounded_source_to_its_end_count_as_running() -> None:
    on_cluster = summary(tasks_running=2, tasks_finished=1)
    assert state(incarnation(), on_cluster) is ObservedState.RUNNING


def test_a_job_that_waits_for_slots_for_too_long_is_degraded() -> None:
    never_ran = incarnation(checkpoint_at=None, running_at=None)
    waiting = summary(FlinkJobStatus.CREATED, started_at=ago(minutes=20))
    found = seen(never_ran, waiting)
    assert found.observed is ObservedState.DEGRADED
    assert found.reason == "0 of 3 tasks run, and no checkpoint for 20m"
    assert not found.healthy


@pytest.mark.parametrize(
    "values",
    [{"savepoint_path": "/sp"}, {"stop_trigger_id": "t"}],
)
def test_a_finished_job_that_was_being_stopped_is_suspended(values: dict[str, str]) -> None:
    on_cluster = summary(FlinkJobStatus.FINISHED)
    assert state(incarnation(**values), on_cluster) is ObservedState.SUSPENDED


def test_a_running_job_that_is_being_stopped_is_stopping() -> None:
    stopping = incarnation(state=IncarnationState.STOPPING)
    assert state(stopping, summary()) is ObservedState.STOPPING


def test_many_restarts_in_a_short_window_degrade_a_job() -> None:
    often = incarnation(restarts=9, restarts_before_window=3, restart_window_at=ago(minutes=2))
    found = seen(often, summary())
    assert found.observed is ObservedState.DEGRADED
    assert found.reason == "restarted 6 times within 10m"


@pytest.mark.parametrize(
    "values",
    [
        {"restarts": 8, "restarts_before_window": 3, "restart_window_at": ago(minutes=2)},
        {"restarts": 90, "restarts_before_window": 3, "restart_window_at": ago(minutes=11)},
        {"restarts": 90, "restart_window_at": None},
    ],
)
def test_few_or_old_restarts_do_not(values: dict[str, Any]) -> None:
    assert state(incarnation(**values), summary()) is ObservedState.RUNNING


def test_a_job_without_a_checkpoint_for_long_is_degraded() -> None:
    silent = incarnation(checkpoint_at=ago(minutes=16))
    found = seen(silent, summary())
    assert (found.observed, found.reason) == (
        ObservedState.DEGRADED,
        "no checkpoint completed for 16m",
    )
    young = summary(started_at=ago(minutes=14))
    assert state(incarnation(checkpoint_at=None), young) is ObservedState.RUNNING


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"state": IncarnationState.STOPPED}, ObservedState.SUSPENDED),
        (
            {"state": IncarnationState.ENDED, "end_reason": "FAILED: no more slots"},
            ObservedState.FAILED,
        ),
        ({"state": IncarnationState.ENDED, "end_reason": "CANCELED"}, ObservedState.ABSENT),
        ({"state": IncarnationState.ENDED, "end_reason": "FINISHED"}, ObservedState.FINISHED),
        ({"state": IncarnationState.ENDED}, ObservedState.ABSENT),
        ({"state": IncarnationState.SUPERSEDED}, ObservedState.ABSENT),
    ],
)
def test_what_is_over_stays_over_when_the_cluster_has_forgotten_it(
    values: dict[str, Any], expected: ObservedState
) -> None:
    assert state(incarnation(**values)) is expected


def test_what_the_cluster_shows_outweighs_what_was_written_down() -> None:
    revived = incarnation(state=IncarnationState.ENDED, end_reason="lost by the cluster")
    assert state(revived, summary()) is ObservedState.RUNNING


@pytest.mark.parametrize("how_far", [IncarnationState.RECORDED, IncarnationState.SUBMITTED])
def test_a_young_submission_is_waited_for(how_far: IncarnationState) -> None:
    young = incarnation(state=how_far, recorded_at=ago(seconds=30))
    assert state(young, missing_since=ago(seconds=29)) is ObservedState.SUBMITTING


@pytest.mark.parametrize("how_far", [IncarnationState.RECORDED, IncarnationState.SUBMITTED])
def test_a_submission_that_never_showed_up_is_lost_in_the_end(how_far: IncarnationState) -> None:
    old = incarnation(state=how_far, recorded_at=ago(minutes=3))
    assert state(old, missing_since=ago(minutes=3)) is ObservedState.LOST


def test_lost_needs_two_looks_far_enough_apart() -> None:
    assert state(incarnation()) is ObservedState.RUNNING
    assert state(incarnation(), missing_since=ago(seconds=4)) is ObservedState.RUNNING
    found = seen(incarnation(), missing_since=ago(seconds=5))
    assert (found.observed, found.reason) == (ObservedState.LOST, "not on the cluster for 5.0s")


RECOVER, STOP, CANCEL = Verb.RECOVER, Verb.STOP, Verb.CANCEL
TO_DO: dict[DesiredState, dict[ObservedState, Verb | None]] = {
    DesiredState.UNMANAGED: dict.fromkeys(ObservedState),
    DesiredState.RUNNING: {
        ObservedState.ABSENT: RECOVER,
        ObservedState.SUBMITTING: None,
        ObservedState.STARTING: None,
        ObservedState.RUNNING: None,
        ObservedState.RESTARTING: None,
        ObservedState.DEGRADED: None,
        ObservedState.STOPPING: None,
        ObservedState.SUSPENDED: RECOVER,
        ObservedState.FAILED: RECOVER,
        ObservedState.FINISHED: None,
        ObservedState.UNREACHABLE: None,
        ObservedState.LOST: RECOVER,
    },
    DesiredState.SUSPENDED: {
        ObservedState.ABSENT: None,
        ObservedState.SUBMITTING: None,
        ObservedState.STARTING: STOP,
        ObservedState.RUNNING: STOP,
        ObservedState.RESTARTING: STOP,
        ObservedState.DEGRADED: STOP,
        ObservedState.STOPPING: STOP,
        ObservedState.SUSPENDED: None,
        ObservedState.FAILED: None,
        ObservedState.FINISHED: None,
        ObservedState.UNREACHABLE: None,
        ObservedState.LOST: None,
    },
    DesiredState.CANCELED: {
        ObservedState.ABSENT: None,
        ObservedState.SUBMITTING: None,
        ObservedState.STARTING: CANCEL,
        ObservedState.RUNNING: CANCEL,
        ObservedState.RESTARTING: CANCEL,
        ObservedState.DEGRADED: CANCEL,
        ObservedState.STOPPING: CANCEL,
        ObservedState.SUSPENDED: None,
        ObservedState.FAILED: None,
        ObservedState.FINISHED: None,
        ObservedState.UNREACHABLE: None,
        ObservedState.LOST: None,
    },
}


@pytest.mark.parametrize("start", list(StartPolicy))
@pytest.mark.parametrize("observed", list(ObservedState))
@pytest.mark.parametrize("desired", list(DesiredState))
def test_what_is_done_in_every_state(
    desired: DesiredState, observed: ObservedState, start: StartPolicy
) -> None:
    observation = Observation("job", desired, observed, "", incarnation())
    if desired is DesiredState.UNMANAGED and start is StartPolicy.ON_LOAD:
        # Also a job that was started and given up again; one that runs is adopted.
        undecided = (ObservedState.SUBMITTING, ObservedState.FINISHED, ObservedState.UNREACHABLE)
        assert what_to_do(observation, start) is (None if observed in undecided else Verb.START)
    else:
        assert what_to_do(observation, start) is TO_DO[desired][observed]


@pytest.mark.parametrize("observed", list(ObservedState))
def test_a_job_that_nobody_wants_running_is_never_unhealthy(observed: ObservedState) -> None:
    for desired in (DesiredState.UNMANAGED, DesiredState.SUSPENDED, DesiredState.CANCELED):
        assert Observation("job", desired, observed, "").healthy
    wanted = Observation("job", DesiredState.RUNNING, observed, "")
    assert wanted.healthy == (
        observed
        in (
            ObservedState.RUNNING,
            ObservedState.STARTING,
            ObservedState.SUBMITTING,
            ObservedState.FINISHED,
        )
    )


@pytest.mark.parametrize(
    ("attempts", "next_attempt_at", "due"),
    [
        (0, None, True),
        (1, ago(seconds=-1), False),
        (1, NOW, True),
        (5, ago(seconds=1), True),
        (6, ago(days=1), False),
        (7, None, False),
    ],
)
def test_attempts_are_backed_off_and_capped(
    attempts: int, next_attempt_at: datetime | None, due: bool
) -> None:
    job = record(attempts=attempts, next_attempt_at=next_attempt_at)
    assert is_due(job, NOW, POLICY) is due
    assert waits_for_a_person(job, NOW, POLICY) is (attempts >= 6)


def test_the_last_attempt_is_given_its_time_before_a_person_is_called() -> None:
    job = record(attempts=6, next_attempt_at=NOW + timedelta(seconds=1))
    assert not is_due(job, NOW, POLICY)
    assert not waits_for_a_person(job, NOW, POLICY)
    assert waits_for_a_person(job, NOW + timedelta(seconds=1), POLICY)

"""What the cluster shows of a job, in one word, and what is to be done about it: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.flink import FlinkJobStatus, JobSummary
from lakehouse_dagster.streaming.spec import StartPolicy, SupervisionPolicy
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
)


class ObservedState(str, Enum):
    """What is known of the newest incarnation of a job."""

    ABSENT = "ABSENT"
    SUBMITTING = "SUBMITTING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    DEGRADED = "DEGRADED"
    STOPPING = "STOPPING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    FINISHED = "FINISHED"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"


@dataclass(frozen=True)
class Observation:
    """One job at one moment: what is wanted, what is seen, and why."""

    name: str
    desired: DesiredState
    observed: ObservedState
    reason: str
    incarnation: Incarnation | None = None

    @property
    def healthy(self) -> bool:
        """Whether the job is as it should be, or on its way there by itself."""
        if self.desired is not DesiredState.RUNNING:
            return True
        return self.observed in (
            ObservedState.RUNNING,
            ObservedState.SUBMITTING,
            ObservedState.STARTING,
            ObservedState.FINISHED,
        )


class Verb(str, Enum):
    """What a run does to a job."""

    START = "start"
    STOP = "stop"
    CANCEL = "cancel"


def observe(
    record: JobRecord,
    latest: Incarnation | None,
    summary: JobSummary | None,
    *,
    missing_since: datetime | None,
    now: datetime,
    policy: SupervisionPolicy,
) -> Observation:
    """Name the state of a job on a cluster that answered.

    ``summary`` is the latest incarnation as the overview shows it (None: not in it);
    ``missing_since`` is when an earlier overview first lacked it.
    """

    def seen(state: ObservedState, reason: str) -> Observation:
        return Observation(record.name, record.desired, state, reason, latest)

    if latest is None:
        return seen(ObservedState.ABSENT, "never started")
    if summary is not None:
        return seen(*_on_cluster(latest, summary, now, policy))
    if latest.state is IncarnationState.STOPPED:
        return seen(ObservedState.SUSPENDED, "stopped with a savepoint")
    if latest.state in (IncarnationState.ENDED, IncarnationState.SUPERSEDED):
        reason = latest.end_reason or "ended"
        if reason == FlinkJobStatus.FINISHED.value:
            return seen(ObservedState.FINISHED, "read its sources to their end")
        failed = reason.startswith(FlinkJobStatus.FAILED.value)
        return seen(ObservedState.FAILED if failed else ObservedState.ABSENT, reason)
    young = (now - latest.recorded_at).total_seconds() < policy.seconds("submission_timeout")
    if latest.state in (IncarnationState.RECORDED, IncarnationState.SUBMITTED) and young:
        return seen(ObservedState.SUBMITTING, "its submission is under way")
    if missing_since is None:
        return seen(ObservedState.RUNNING, "not in the last overview; looking once more")
    missing = (now - missing_since).total_seconds()
    if missing < policy.seconds("lost_after"):
        return seen(ObservedState.RUNNING, "not in the last overviews; looking once more")
    return seen(ObservedState.LOST, f"not on the cluster for {in_words(missing)}")


def _on_cluster(
    latest: Incarnation, summary: JobSummary, now: datetime, policy: SupervisionPolicy
) -> tuple[ObservedState, str]:
    status = summary.status
    if status is FlinkJobStatus.FAILED:
        return ObservedState.FAILED, "Flink gave up on it"
    if status is FlinkJobStatus.CANCELED:
        return ObservedState.ABSENT, "cancelled on the cluster"
    if status is FlinkJobStatus.FINISHED:
        if latest.savepoint_path is not None or latest.stop_trigger_id is not None:
            return ObservedState.SUSPENDED, "stopped with a savepoint"
        return ObservedState.FINISHED, "read its sources to their end"
    if status in (FlinkJobStatus.RESTARTING, FlinkJobStatus.FAILING):
        return ObservedState.RESTARTING, "Flink is restarting its tasks"
    if latest.state is IncarnationState.STOPPING or status is FlinkJobStatus.CANCELLING:
        return ObservedState.STOPPING, "being stopped"
    if status is not FlinkJobStatus.RUNNING or not summary.all_tasks_run:
        return _starting(latest, summary, now, policy)
    return _running(latest, summary, now, policy)


def _starting(
    latest: Incarnation, summary: JobSummary, now: datetime, policy: SupervisionPolicy
) -> tuple[ObservedState, str]:
    """On its way, unless that takes too long: a job that gets no slots waits for ever."""
    tasks = f"{summary.tasks_running} of {summary.tasks_total} tasks run"
    silent = _seconds_without_checkpoint(latest, summary, now)
    if silent > policy.seconds("no_checkpoint_after"):
        return ObservedState.DEGRADED, f"{tasks}, and no checkpoint for {in_words(silent)}"
    return ObservedState.STARTING, tasks


def _running(
    latest: Incarnation, summary: JobSummary, now: datetime, policy: SupervisionPolicy
) -> tuple[ObservedState, str]:
    window = policy.seconds("restart_window")
    began = latest.restart_window_at
    if began is not None and (now - began).total_seconds() < window:
        recent = latest.restarts - latest.restarts_before_window
        if recent > policy.restarts_are_many:
            return (
                ObservedState.DEGRADED,
                f"restarted {recent} times within {in_words(window)}",
            )
    silent = _seconds_without_checkpoint(latest, summary, now)
    if silent > policy.seconds("no_checkpoint_after"):
        return ObservedState.DEGRADED, f"no checkpoint completed for {in_words(silent)}"
    return ObservedState.RUNNING, "all tasks run"


def _seconds_without_checkpoint(latest: Incarnation, summary: JobSummary, now: datetime) -> float:
    last_good = max(t for t in (summary.started_at, latest.checkpoint_at) if t is not None)
    return (now - last_good).total_seconds()


_NOT_RUNNING = (
    ObservedState.ABSENT,
    ObservedState.FAILED,
    ObservedState.LOST,
    ObservedState.SUSPENDED,
)
_ALIVE = (
    ObservedState.RUNNING,
    ObservedState.DEGRADED,
    ObservedState.RESTARTING,
    ObservedState.STARTING,
    ObservedState.STOPPING,
)


def what_to_do(observation: Observation, start: StartPolicy) -> Verb | None:
    """The verb that brings a job to its desired state, or None if nothing is to be done."""
    desired, observed = observation.desired, observation.observed
    if desired is DesiredState.UNMANAGED:
        wanted = start is StartPolicy.ON_LOAD and observed in (*_NOT_RUNNING, *_ALIVE)
        return Verb.START if wanted else None
    if desired is DesiredState.RUNNING and observed in _NOT_RUNNING:
        return Verb.START
    if desired is DesiredState.SUSPENDED and observed in _ALIVE:
        return Verb.STOP
    if desired is DesiredState.CANCELED and observed in _ALIVE:
        return Verb.CANCEL
    return None


def is_due(record: JobRecord, now: datetime, policy: SupervisionPolicy) -> bool:
    """Whether another attempt may be made now: back-off over, cap not reached."""
    if record.attempts >= policy.max_attempts:
        return False
    return record.next_attempt_at is None or now >= record.next_attempt_at


def waits_for_a_person(record: JobRecord, now: datetime, policy: SupervisionPolicy) -> bool:
    """Whether so many attempts failed in a row that only a person can help.

    The last attempt has failed once its back-off is over and the job still is not well.
    """
    over = record.next_attempt_at is None or now >= record.next_attempt_at
    return over and record.attempts >= policy.max_attempts

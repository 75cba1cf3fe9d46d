"""What the cluster shows of a job, in one word, and what is to be done about it: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.flink import FlinkJobStatus, JobSummary
from lakehouse_dagster.streaming.spec import StartPolicy, SupervisionPolicy
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
)

CANCELLED_ON_THE_CLUSTER = "cancelled on the cluster"
ALL_TASKS_RUN = "all tasks run"


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
    outdated: bool = False
    """Its script is another than the one that its newest incarnation was submitted with."""
    orphaned: bool = False
    """No script declares it any more."""
    foreign: tuple[str, ...] = ()
    """Flink ids of running jobs of its name that somebody else started."""

    @cached_property
    def word(self) -> str:
        """The job in one word, as the sensor's tick counts it."""
        if self.orphaned:
            return "ORPHANED"
        managed = self.desired is not DesiredState.UNMANAGED
        return self.observed.value if managed else "unmanaged"

    @property
    def healthy(self) -> bool:
        """Whether the job is as it should be, or on its way there by itself."""
        if self.foreign and self.desired is not DesiredState.UNMANAGED:
            return False
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
    RECOVER = "recover"
    """Start again, from the newest restore point, the version of the script that ran last."""
    REVIVE = "revive"
    """Cancel a job that is up but not well, and start it again from its newest checkpoint."""
    STOP = "stop"
    CANCEL = "cancel"
    RESTART = "restart"
    UPGRADE = "upgrade"
    ADOPT = "adopt"
    FORGET = "forget"


def observe(
    record: JobRecord,
    latest: Incarnation | None,
    summary: JobSummary | None,
    *,
    missing_since: datetime | None,
    now: datetime,
    policy: SupervisionPolicy,
    lost_after_seconds: float | None = None,
) -> Observation:
    """Name the state of a job on a cluster that answered.

    ``summary`` is the latest incarnation as the overview shows it (None: not in it);
    ``missing_since`` is when an earlier overview first lacked it; ``lost_after_seconds`` is how
    long it must be missing before it is LOST, where that is longer than the policy's bound.
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
    if missing < (lost_after_seconds or policy.seconds("lost_after")):
        return seen(ObservedState.RUNNING, "not in the last overviews; looking once more")
    return seen(ObservedState.LOST, f"not on the cluster for {in_words(missing)}")


def _on_cluster(
    latest: Incarnation, summary: JobSummary, now: datetime, policy: SupervisionPolicy
) -> tuple[ObservedState, str]:
    status = summary.status
    if status is FlinkJobStatus.FAILED:
        return ObservedState.FAILED, "Flink gave up on it"
    if status is FlinkJobStatus.CANCELED:
        return ObservedState.ABSENT, CANCELLED_ON_THE_CLUSTER
    if status is FlinkJobStatus.FINISHED:
        if latest.savepoint_path is not None or latest.stop_trigger_id is not None:
            return ObservedState.SUSPENDED, "stopped with a savepoint"
        return ObservedState.FINISHED, "read its sources to their end"
    if status.is_restarting:
        return _restarting(latest, summary, now, policy)
    if latest.state is IncarnationState.STOPPING or status is FlinkJobStatus.CANCELLING:
        return ObservedState.STOPPING, "being stopped"
    if status is not FlinkJobStatus.RUNNING or not summary.all_tasks_run:
        return _starting(latest, summary, now, policy)
    return _running(latest, summary, now, policy)


def _restarting(
    latest: Incarnation, summary: JobSummary, now: datetime, policy: SupervisionPolicy
) -> tuple[ObservedState, str]:
    """Flink's own work, unless it goes on and on."""
    often = _restarted_often(latest, now, policy)
    if often is not None:
        return ObservedState.DEGRADED, often
    silent = _seconds_without_checkpoint(latest, summary, now)
    if silent > policy.seconds("no_checkpoint_after"):
        why = f"restarting, and no checkpoint for {in_words(silent)}"
        return ObservedState.DEGRADED, why + _cause(latest)
    return ObservedState.RESTARTING, "Flink is restarting its tasks" + _cause(latest)


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
    often = _restarted_often(latest, now, policy)
    if often is not None:
        return ObservedState.DEGRADED, often
    silent = _seconds_without_checkpoint(latest, summary, now)
    if silent > policy.seconds("no_checkpoint_after"):
        failed = f" ({latest.failed_checkpoints} failed)" if latest.failed_checkpoints else ""
        return (
            ObservedState.DEGRADED,
            f"no checkpoint completed for {in_words(silent)}{failed}" + _cause(latest),
        )
    stalled = stalled_for(latest, now, policy)
    if stalled is not None:
        return ObservedState.DEGRADED, stalled
    return ObservedState.RUNNING, ALL_TASKS_RUN


def _restarted_often(latest: Incarnation, now: datetime, policy: SupervisionPolicy) -> str | None:
    window = policy.seconds("restart_window")
    began = latest.restart_window_at
    if began is None or (now - began).total_seconds() >= window:
        return None
    recent = latest.restarts - latest.restarts_before_window
    if recent <= policy.restarts_are_many:
        return None
    return f"restarted {recent} times within {in_words(window)}" + _cause(latest)


def _cause(latest: Incarnation) -> str:
    """The last root cause, which holds no row data: it was redacted when it was read."""
    return f": {latest.root_cause}" if latest.root_cause else ""


def stalled_for(latest: Incarnation, now: datetime, policy: SupervisionPolicy) -> str | None:
    """That it reads nothing although there is more to read, and for how long."""
    if latest.read_moved_at is None:
        return None
    stands = (now - latest.read_moved_at).total_seconds()
    if stands <= policy.seconds("no_progress_after"):
        return None
    return f"it has read nothing for {in_words(stands)}, and its sources have more"


def _seconds_without_checkpoint(latest: Incarnation, summary: JobSummary, now: datetime) -> float:
    last_good = summary.started_at
    if latest.checkpoint_at is not None and latest.checkpoint_at > last_good:
        last_good = latest.checkpoint_at
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


def keeps_restarting(observation: Observation, now: datetime, policy: SupervisionPolicy) -> bool:
    """Whether Flink restarts it so often that it counts as DEGRADED."""
    latest = observation.incarnation
    degraded = observation.observed is ObservedState.DEGRADED
    return degraded and latest is not None and _restarted_often(latest, now, policy) is not None


def what_to_do(
    observation: Observation, start: StartPolicy, *, restart_degraded: bool = False
) -> Verb | None:
    """The verb that brings a job to its desired state, or None if nothing is to be done."""
    desired, observed = observation.desired, observation.observed
    if observation.orphaned:
        return None  # left as it is, and reported
    if desired is DesiredState.UNMANAGED:
        wanted = start is StartPolicy.ON_LOAD and observed in (*_NOT_RUNNING, *_ALIVE)
        return Verb.START if wanted and not observation.foreign else None
    if desired is DesiredState.RUNNING and observed in _NOT_RUNNING:
        return Verb.RECOVER
    wanted_well = restart_degraded and desired is DesiredState.RUNNING
    if wanted_well and observed is ObservedState.DEGRADED:
        return Verb.REVIVE
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

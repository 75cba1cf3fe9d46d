"""One look at the cluster: what every job does, and which of them a run must see to.

A look asks ``/jobs/overview`` once and, for a few jobs in rotation, checkpoints. It changes nothing
on the cluster; the run that it asks for does (``apply.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field

from lakehouse_dagster.errors import ClusterUnreachableError, FlinkError, NotFoundError
from lakehouse_dagster.flink import FlinkJobStatus, JobManager, JobSummary
from lakehouse_dagster.streaming.cursor import Cursor
from lakehouse_dagster.streaming.observe import (
    Observation,
    ObservedState,
    Verb,
    is_due,
    observe,
    what_to_do,
)
from lakehouse_dagster.streaming.previous import own_numbers, savepoint_left_by
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
)


class SupervisorCursor(Cursor):
    """What one look leaves to the next: small, and worthless when lost."""

    missing_since: dict[str, datetime] = Field(default_factory=dict)
    rotation: int = 0
    health: dict[str, str] = Field(default_factory=dict)
    """The state last reported of each job, so that only changes are reported."""


@dataclass(frozen=True)
class Action:
    """A verb for a job, and why; ``attempt`` counts those made in a row."""

    job: str
    verb: Verb
    reason: str
    attempt: int


@dataclass(frozen=True)
class Look:
    """All jobs at one moment, and the actions that are due."""

    observations: tuple[Observation, ...]
    actions: tuple[Action, ...]
    cursor: SupervisorCursor
    unreachable: str | None = None

    def summary(self) -> str:
        """One line for the sensor's tick."""
        if self.unreachable is not None:
            return f"UNREACHABLE: {self.unreachable} Nothing is started meanwhile."
        counts: dict[str, int] = {}
        for observation in self.observations:
            managed = observation.desired is not DesiredState.UNMANAGED
            word = observation.observed.value if managed else "unmanaged"
            counts[word] = counts.get(word, 0) + 1
        return ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) or "no jobs declared"


def look(runtime: Runtime, cursor: SupervisorCursor) -> Look:
    """Look at the cluster once and decide what is due; count the attempts that are asked for."""
    records = {name: runtime.memory.ensure(name) for name in runtime.jobs}
    latest = runtime.memory.all_latest()
    try:
        with runtime.cluster.job_manager() as job_manager:
            on_cluster = {job.job_id: job for job in job_manager.jobs()}
            latest = _with_details(runtime, job_manager, latest, on_cluster, cursor)
    except FlinkError as error:  # also an answer such as 500 or 401 says nothing about any job
        observations = tuple(
            Observation(
                name, record.desired, ObservedState.UNREACHABLE, error.message, latest.get(name)
            )
            for name, record in records.items()
        )
        # Forget what was missing: absence must be seen twice by a cluster that answers.
        return Look(
            observations,
            (),
            cursor.model_copy(update={"missing_since": {}}),
            unreachable=error.message,
        )
    return _decide(runtime, records, latest, on_cluster, cursor)


def observe_all(runtime: Runtime) -> tuple[Observation, ...]:
    """The same look without asking for anything: for people and for checks.

    When a job is missing, a second look after ``lost_after`` says whether it is LOST.
    """
    first = look(runtime, SupervisorCursor())
    undecided = [
        o
        for o in first.observations
        if o.observed is ObservedState.RUNNING and o.name in first.cursor.missing_since
    ]
    if not undecided:
        return first.observations
    runtime.clock.sleep(runtime.policy.seconds("lost_after"))
    return look(runtime, first.cursor).observations


def _decide(
    runtime: Runtime,
    records: Mapping[str, JobRecord],
    latest: Mapping[str, Incarnation],
    on_cluster: Mapping[str, JobSummary],
    cursor: SupervisorCursor,
) -> Look:
    now = runtime.clock.now()
    observations: list[Observation] = []
    actions: list[Action] = []
    missing: dict[str, datetime] = {}
    for name, record in records.items():
        incarnation = latest.get(name)
        summary = on_cluster.get(incarnation.flink_job_id) if incarnation else None
        if incarnation is not None and summary is None:
            missing[name] = cursor.missing_since.get(name, now)
        observation = observe(
            record,
            incarnation,
            summary,
            missing_since=cursor.missing_since.get(name),
            now=now,
            policy=runtime.policy,
        )
        observations.append(observation)
        stray = _stray(runtime, name, incarnation, on_cluster)
        action = _due_action(runtime, record, observation, stray, now)
        if action is not None:
            actions.append(action)
    return Look(
        tuple(observations),
        tuple(actions),
        cursor.model_copy(update={"missing_since": missing, "rotation": cursor.rotation + 1}),
    )


_BRINGS_TO = {
    DesiredState.RUNNING: Verb.START,
    DesiredState.SUSPENDED: Verb.STOP,
    DesiredState.CANCELED: Verb.CANCEL,
}


def _stray(
    runtime: Runtime,
    name: str,
    latest: Incarnation | None,
    on_cluster: Mapping[str, JobSummary],
) -> int | None:
    """An incarnation that lives beside or instead of the newest one on record.

    A superseded one, which every verb cancels first; or one above, when the database is an old one.
    """
    newest = latest.number if latest else 0
    for job_id, number in own_numbers(runtime.identity, name, newest).items():
        job = on_cluster.get(job_id)
        if number != newest and job is not None and not job.status.is_terminal:
            return number
    return None


def _due_action(
    runtime: Runtime,
    record: JobRecord,
    observation: Observation,
    stray: int | None,
    now: datetime,
) -> Action | None:
    verb = what_to_do(observation, runtime.jobs[record.name].start)
    reason = observation.reason
    if stray is not None and verb is None:
        verb = _BRINGS_TO.get(record.desired)
        reason = f"incarnation {stray} runs, which is not the newest on record"
    if verb is None or not is_due(record, now, runtime.policy):
        return None
    if runtime.leases.current(runtime.memory.lease_key(record.name)) is not None:
        return None  # a run or a command acts on it right now
    return Action(record.name, verb, reason, record.attempts + 1)


def claim(runtime: Runtime, actions: tuple[Action, ...]) -> str:
    """Count an attempt for each action before a run is asked for, and return the run's key.

    A run that dies at once is so backed off too. The key holds the time, because Dagster never
    launches a key again, also after the attempts were reset.
    """
    now = runtime.clock.now()
    for action in actions:
        pause = runtime.policy.backoff_seconds(action.attempt)
        runtime.memory.count_attempt(action.job, next_attempt_at=now + timedelta(seconds=pause))
    asked = ",".join(f"{a.job}:{a.verb.value}#{a.attempt}" for a in actions)
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    return f"{runtime.lakehouse}-{digest}-{now:%Y%m%dT%H%M%S.%f}"


def _with_details(
    runtime: Runtime,
    job_manager: JobManager,
    latest: Mapping[str, Incarnation],
    on_cluster: Mapping[str, JobSummary],
    cursor: SupervisorCursor,
) -> dict[str, Incarnation]:
    """Ask checkpoints for the next few live jobs in rotation, and write down what is new."""
    result = _write_down_finished(runtime, job_manager, latest, on_cluster)
    alive = sorted(
        name
        for name, incarnation in latest.items()
        if name in runtime.jobs
        and incarnation.flink_job_id in on_cluster
        and not on_cluster[incarnation.flink_job_id].status.is_terminal
    )
    if not alive:
        return result
    size = runtime.policy.details_per_tick
    first = cursor.rotation * size % len(alive)
    for name in (alive + alive)[first : first + min(size, len(alive))]:
        try:
            result[name] = _checkpoints(runtime, job_manager, result[name])
        except ClusterUnreachableError:
            raise
        except FlinkError:
            continue  # it ended between the two questions; the next look shows it
    return result


def _write_down_finished(
    runtime: Runtime,
    job_manager: JobManager,
    latest: Mapping[str, Incarnation],
    on_cluster: Mapping[str, JobSummary],
) -> dict[str, Incarnation]:
    """Remember which jobs have finished, once each, before the cluster forgets it.

    Later it could not be told from a job that was lost, and all would be read again.
    """
    result = dict(latest)
    for name, incarnation in latest.items():
        job = on_cluster.get(incarnation.flink_job_id)
        finished = job is not None and job.status is FlinkJobStatus.FINISHED
        stopping = incarnation.state is IncarnationState.STOPPING  # whoever stops it says so
        if job is None or not finished or incarnation.state.is_over or stopping:
            continue
        try:
            savepoint = savepoint_left_by(incarnation, job, job_manager)
        except NotFoundError:
            continue  # forgotten between the two questions
        result[name] = runtime.memory.update(
            name,
            incarnation.number,
            state=IncarnationState.ENDED,
            ended_at=job.ended_at,
            end_reason=job.status.value,
            savepoint_path=savepoint,
        )
    return result


def _checkpoints(
    runtime: Runtime, job_manager: JobManager, incarnation: Incarnation
) -> Incarnation:
    statistics = job_manager.checkpoints(incarnation.flink_job_id)
    newest = statistics.latest_completed
    if newest is not None and newest.id != incarnation.checkpoint_id:
        incarnation = runtime.memory.update(
            incarnation.job_name,
            incarnation.number,
            checkpoint_id=newest.id,
            checkpoint_path=newest.external_path,
            checkpoint_at=newest.completed_at,
        )
        record = runtime.memory.ensure(incarnation.job_name)
        if record.attempts:
            runtime.memory.reset_attempts(incarnation.job_name)
    # A start from a restore point counts as one restored checkpoint; it is no restart.
    restarts = max(0, statistics.restored_count - (1 if incarnation.restored_from else 0))
    if restarts != incarnation.restarts:
        incarnation = _count_restarts(runtime, incarnation, restarts)
    if incarnation.state in (IncarnationState.RECORDED, IncarnationState.SUBMITTED):
        incarnation = runtime.memory.update(
            incarnation.job_name,
            incarnation.number,
            state=IncarnationState.RUNNING,
            running_at=runtime.clock.now(),
        )
    return incarnation


def _count_restarts(runtime: Runtime, incarnation: Incarnation, restarts: int) -> Incarnation:
    """Write down the restarts so far; those since the window began are the recent ones."""
    now, window = runtime.clock.now(), runtime.policy.seconds("restart_window")
    began = incarnation.restart_window_at
    if began is not None and (now - began).total_seconds() < window:
        return runtime.memory.update(incarnation.job_name, incarnation.number, restarts=restarts)
    return runtime.memory.update(
        incarnation.job_name,
        incarnation.number,
        restarts=restarts,
        restarts_before_window=incarnation.restarts,
        restart_window_at=now,
    )

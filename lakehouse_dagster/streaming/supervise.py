"""One look at the cluster: what every job does, and which of them a run must see to.

A look asks ``/jobs/overview`` once and, for a few jobs in rotation, details (``details.py``). It
changes nothing on the cluster; the run that it asks for does (``apply.py``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from pydantic import Field

from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import (
    FlinkJobStatus,
    JobManager,
    JobSummary,
    seconds_until_lost,
)
from lakehouse_dagster.streaming.cursor import Cursor
from lakehouse_dagster.streaming.details import Bounds, ask, whom_to_ask, write_down_finished
from lakehouse_dagster.streaming.foreign import strangers
from lakehouse_dagster.streaming.observe import (
    CANCELLED_ON_THE_CLUSTER,
    Observation,
    ObservedState,
    Verb,
    is_due,
    keeps_restarting,
    observe,
    waits_for_a_person,
    what_to_do,
)
from lakehouse_dagster.streaming.orphans import orphans
from lakehouse_dagster.streaming.previous import known_numbers
from lakehouse_dagster.streaming.reported import told_degraded
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StartPolicy, StreamingJob
from lakehouse_dagster.streaming.well import remembered
from lakehouse_dagster.system_db import DesiredState, Incarnation, JobRecord


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
    """All jobs at one moment, and the actions that are due.

    ``alerts`` are jobs that have begun to wait for a person, and nobody was told yet.
    """

    observations: tuple[Observation, ...]
    actions: tuple[Action, ...]
    cursor: SupervisorCursor
    unreachable: str | None = None
    alerts: tuple[Observation, ...] = ()

    def summary(self) -> str:
        """One line for the sensor's tick."""
        if self.unreachable is not None:
            return f"UNREACHABLE: {self.unreachable} Nothing is started meanwhile."
        counts = Counter(observation.word for observation in self.observations)
        return ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) or "no jobs declared"


def look(runtime: Runtime, cursor: SupervisorCursor) -> Look:
    """Look at the cluster once and decide what is due.

    Raises ``SystemDatabaseError`` when nothing can be remembered: then nothing is done either.
    """
    state = runtime.memory.ensure_all(runtime.jobs)
    gone = orphans(runtime, state.records.values())
    records = {name: state.records[name] for name in runtime.jobs}
    records |= {record.name: record for record in gone}
    latest = {name: i for name, i in state.latest.items() if name in records}
    try:
        return _Looker(runtime, runtime.watcher, cursor, records, latest).look()
    except FlinkError as error:  # also an answer such as 500 or 401 says nothing about any job
        observations = tuple(
            Observation(
                name,
                record.desired,
                ObservedState.UNREACHABLE,
                error.message,
                latest.get(name),
                orphaned=name not in runtime.jobs,
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


_BRINGS_TO = {
    DesiredState.RUNNING: Verb.RECOVER,
    DesiredState.SUSPENDED: Verb.STOP,
    DesiredState.CANCELED: Verb.CANCEL,
}


class _Looker:
    """One look, with what it has read so far."""

    def __init__(
        self,
        runtime: Runtime,
        job_manager: JobManager,
        cursor: SupervisorCursor,
        records: Mapping[str, JobRecord],
        latest: dict[str, Incarnation],
    ) -> None:
        self._runtime = runtime
        self._job_manager = job_manager
        self._cursor = cursor
        self._records = records
        self._latest = latest
        self._now = runtime.clock.now()

    def look(self) -> Look:
        runtime, jobs = self._runtime, self._job_manager.jobs()
        on_cluster = {job.job_id: job for job in jobs}
        self._latest |= write_down_finished(runtime, self._job_manager, self._latest, on_cluster)
        whom = whom_to_ask(
            self._latest.values(),
            on_cluster,
            rotation=self._cursor.rotation,
            now=self._now,
            policy=runtime.policy,
        )
        asked = ask(runtime, self._job_manager, whom, on_cluster)
        self._latest |= asked
        self._forget_attempts(asked)
        found = self._strangers(on_cluster)
        observations: list[Observation] = []
        actions: list[Action] = []
        missing: dict[str, datetime] = {}
        alerts: list[Observation] = []
        well = runtime.well
        for name, record in self._records.items():
            incarnation = self._latest.get(name)
            summary = on_cluster.get(incarnation.flink_job_id) if incarnation else None
            known = well.get(name) if name not in found else None
            if known and known.still_holds(record, incarnation, summary, self._now):
                observations.append(known.observation)
                continue
            if incarnation is not None and summary is None and not incarnation.state.is_over:
                missing[name] = self._cursor.missing_since.get(name, self._now)
            strays, foreign = found.get(name, ((), ()))
            observation = self._observe(record, incarnation, summary, name in asked)
            if foreign:
                observation = replace(observation, foreign=foreign)
            observations.append(observation)
            action = self._due_action(record, observation, strays)
            if action is not None:
                actions.append(action)
            elif name not in found:
                well[name] = remembered(record, observation, summary, runtime.policy)
            if self._is_to_be_told(observation):
                alerts.append(observation)
        return Look(
            tuple(self._with_what_they_wait_for(observations)),
            tuple(actions),
            self._cursor.model_copy(
                update={"missing_since": missing, "rotation": self._cursor.rotation + 1}
            ),
            alerts=tuple(alerts),
        )

    def _observe(
        self,
        record: JobRecord,
        incarnation: Incarnation | None,
        summary: JobSummary | None,
        asked: bool,
    ) -> Observation:
        policy = self._runtime.policy
        observation = observe(
            record,
            incarnation,
            summary,
            missing_since=self._cursor.missing_since.get(record.name),
            now=self._now,
            policy=policy,
            lost_after_seconds=self._lost_after_seconds if self._cursor.missing_since else None,
        )
        if (
            observation.observed is ObservedState.DEGRADED
            and not asked
            and incarnation is not None
            and summary is not None
            and Bounds.at(self._now, policy).seems_silent(incarnation, summary)
            and not told_degraded(self._cursor.health, record.name)
        ):
            # What is on record may only be old: what was last reported of it stands.
            observation = replace(
                observation, observed=ObservedState.RUNNING, reason="not asked for a while"
            )
        job = self._runtime.jobs.get(record.name)
        if job is None:
            return replace(observation, orphaned=True)
        if incarnation is not None and incarnation.fingerprint not in ("", job.fingerprint):
            return replace(observation, outdated=True)
        return observation

    @cached_property
    def _lost_after_seconds(self) -> float:
        """Asked only while a job is missing: jobs may come back by themselves."""
        return seconds_until_lost(self._job_manager, self._runtime.policy.seconds("lost_after"))

    def _forget_attempts(self, asked: Mapping[str, Incarnation]) -> None:
        """A job that has been well for a while has reached its desired state.

        Not at its first checkpoint: a job that dies soon after each start must come to its cap.
        """
        window = self._runtime.policy.seconds("restart_window")
        for name, incarnation in asked.items():
            well = incarnation.checkpoint_at
            if not self._records[name].attempts or well is None:
                continue
            if (well - incarnation.recorded_at).total_seconds() > window:
                self._runtime.memory.reset_attempts(name)

    def _strangers(
        self, on_cluster: Mapping[str, JobSummary]
    ) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
        """By job: numbers of its incarnations that run besides the newest; foreign jobs' ids."""
        newest = {incarnation.flink_job_id for incarnation in self._latest.values()}
        unknown: dict[str, list[JobSummary]] = {}
        for job in [job for job_id, job in on_cluster.items() if job_id not in newest]:
            # Every job of ours bears its job's name, so other names need not be looked at.
            if job.name in self._records and not job.status.is_terminal:
                unknown.setdefault(job.name, []).append(job)
        return {name: self._strangers_of(name, jobs) for name, jobs in unknown.items()}

    def _strangers_of(
        self, name: str, unknown: list[JobSummary]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        runtime = self._runtime
        numbers = known_numbers(runtime.identity, name, runtime.memory.incarnations(name))
        strays = [numbers[job.job_id] for job in unknown if job.job_id in numbers]
        others = [job for job in unknown if job.job_id not in numbers]
        strange = strangers(runtime, self._job_manager, name, others)
        strays += [number for number, _ in strange.forgotten]
        return tuple(strays), tuple(job.job_id for job in strange.foreign)

    def _due_action(
        self, record: JobRecord, observation: Observation, strays: tuple[int, ...]
    ) -> Action | None:
        runtime = self._runtime
        if self._is_respected(record, observation):
            return None
        job = runtime.jobs.get(record.name)
        verb = what_to_do(
            observation,
            job.start if job else StartPolicy.ON_DEMAND,
            restart_degraded=runtime.policy.restart_degraded
            or (job is not None and self._is_better_begun_anew(job, observation)),
        )
        reason = observation.reason
        if strays and verb is None and job is not None:
            verb = _BRINGS_TO.get(record.desired)
            reason = f"incarnation {strays[0]} runs, which is not the newest on record"
        if verb is None or not is_due(record, self._now, runtime.policy):
            return None
        if self._is_acted_on(record):
            return None
        return Action(record.name, verb, reason, record.attempts + 1)

    def _is_better_begun_anew(self, job: StreamingJob, observation: Observation) -> bool:
        """Whether Flink restarts it in vain where a start from nothing loses nothing.

        Flink always restarts a job from its checkpoint. A compaction job may never get on from
        there: the snapshot that it would read next has expired, or Paimon fails it on purpose
        because of a commit that it takes for a missing one.
        """
        runtime = self._runtime
        return not job.keeps_state and keeps_restarting(observation, self._now, runtime.policy)

    def _is_respected(self, record: JobRecord, observation: Observation) -> bool:
        """Whether somebody else stopped the job on the cluster, and the policy says to let them."""
        incarnation = observation.incarnation
        if (
            not self._runtime.policy.respect_cancellation
            or record.desired is not DesiredState.RUNNING
            or incarnation is None
            or incarnation.stop_trigger_id is not None
        ):
            return False
        if observation.reason == CANCELLED_ON_THE_CLUSTER:
            if self._is_ended_by_us(record, incarnation):
                return False
            self._runtime.memory.set_desired(record.name, DesiredState.CANCELED)
            return True
        if observation.observed is ObservedState.SUSPENDED:
            self._runtime.memory.set_desired(record.name, DesiredState.SUSPENDED)
            return True
        return False

    def _is_ended_by_us(self, record: JobRecord, incarnation: Incarnation) -> bool:
        """Whether a run cancelled it to start it again, and does so right now or died over it."""
        over = incarnation.state.is_over
        if over and incarnation.end_reason != FlinkJobStatus.CANCELED.value:
            return True
        return self._is_acted_on(record)

    def _is_acted_on(self, record: JobRecord) -> bool:
        """Whether a run or a command acts on the job right now."""
        runtime = self._runtime
        return runtime.leases.current(runtime.memory.lease_key(record.name)) is not None

    def _is_to_be_told(self, observation: Observation) -> bool:
        record = self._records[observation.name]
        return (
            record.alerted_at is None
            and not observation.healthy
            and waits_for_a_person(record, self._now, self._runtime.policy)
        )

    def _with_what_they_wait_for(self, observations: list[Observation]) -> list[Observation]:
        """Where jobs wait for tasks to run, say what the cluster lacks; one more question then."""
        waiting = (ObservedState.STARTING, ObservedState.RESTARTING, ObservedState.DEGRADED)
        if not any(o.observed in waiting for o in observations):
            return observations
        overview = self._job_manager.overview()
        if overview.slots_available > 0:
            return observations
        lack = (
            "no TaskManager is registered"
            if overview.task_managers == 0
            else f"all {overview.slots_total} task slots are taken"
        )
        return [
            replace(o, reason=f"{o.reason}; {lack}")
            if o.observed in waiting and o.reason != "all tasks run"
            else o
            for o in observations
        ]


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

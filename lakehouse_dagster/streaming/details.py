"""What the overview does not say: checkpoints, restarts, root causes; a few jobs are asked a tick.

Jobs are asked in rotation, those first that restart or seem to stand still. What is new is written
to the system database in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import ClusterUnreachableError, FlinkError, NotFoundError
from lakehouse_dagster.flink import (
    CheckpointStatistics,
    FlinkJobStatus,
    JobException,
    JobManager,
    JobSummary,
)
from lakehouse_dagster.streaming.cursor import in_turn
from lakehouse_dagster.streaming.lag import lag_of
from lakehouse_dagster.streaming.positions import (
    moved,
    positions_from_text,
    positions_to_text,
    read_positions,
)
from lakehouse_dagster.streaming.previous import savepoint_left_by
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.system_db import Incarnation, IncarnationState

if TYPE_CHECKING:
    from lakehouse_dagster.system_db import IncarnationChanges


def whom_to_ask(
    latest: Iterable[Incarnation],
    on_cluster: Mapping[str, JobSummary],
    *,
    rotation: int,
    now: datetime,
    policy: SupervisionPolicy,
) -> tuple[Incarnation, ...]:
    """The live jobs whose details are asked in this tick: troubled ones, then the next in turn."""
    alive: list[Incarnation] = []
    first: list[Incarnation] = []
    most, bounds = policy.details_per_tick, Bounds.at(now, policy)
    for incarnation in latest:
        job = on_cluster.get(incarnation.flink_job_id)
        if job is None or (job.status is not FlinkJobStatus.RUNNING and job.status.is_terminal):
            continue
        alive.append(incarnation)
        if bounds.seems_silent(incarnation, job):
            first.append(incarnation)
    urgent = in_turn(first, rotation, most) if len(first) > most else first
    chosen = {i.job_name: i for i in (*urgent, *in_turn(alive, rotation, most - len(urgent)))}
    return tuple(chosen.values())


@dataclass(frozen=True)
class Bounds:
    """How old the last good news of a job may be; worked out once for all jobs of a look."""

    oldest_checkpoint: datetime
    oldest_progress: datetime

    @classmethod
    def at(cls, now: datetime, policy: SupervisionPolicy) -> Bounds:
        """The bounds at this time."""
        return cls(
            now - policy.spans["no_checkpoint_after"], now - policy.spans["no_progress_after"]
        )

    def seems_silent(self, latest: Incarnation, job: JobSummary) -> bool:
        """Whether what is on record is bad news, perhaps only old: better ask before saying so."""
        if job.status.is_restarting:
            return True
        oldest, checkpoint_at = self.oldest_checkpoint, latest.checkpoint_at
        if (checkpoint_at is None or checkpoint_at < oldest) and job.started_at < oldest:
            return True
        moved = latest.read_moved_at
        return moved is not None and moved < self.oldest_progress


def ask(
    runtime: Runtime,
    job_manager: JobManager,
    whom: Iterable[Incarnation],
    on_cluster: Mapping[str, JobSummary],
) -> dict[str, Incarnation]:
    """Ask about these and write down what is new; the incarnations as they are now, by job.

    At most ``details_per_tick`` questions are asked. One that ended between the overview and its
    question is left out, as are all once no answer comes: the next look shows them.
    """
    now = runtime.clock.now()
    asked: dict[str, Incarnation] = {}
    changed: list[tuple[str, int, IncarnationChanges]] = []
    questions = _Questions(job_manager, runtime.policy.details_per_tick)
    for incarnation in whom:
        if questions.left <= 0:
            break
        try:
            changes = _news(questions, incarnation, on_cluster, now, runtime.policy)
            changes |= _reading_news(runtime, job_manager, incarnation, changes, now)
        except ClusterUnreachableError:
            break
        except FlinkError:
            continue
        asked[incarnation.job_name] = incarnation
        if changes:
            changed.append((incarnation.job_name, incarnation.number, changes))
    written = runtime.memory.update_many(changed)
    return asked | {incarnation.job_name: incarnation for incarnation in written}


def write_down_finished(
    runtime: Runtime,
    job_manager: JobManager,
    latest: Mapping[str, Incarnation],
    on_cluster: Mapping[str, JobSummary],
) -> dict[str, Incarnation]:
    """Remember which jobs have finished, once each, before the cluster forgets it.

    Later it could not be told from a job that was lost, and all would be read again.
    """
    finished: dict[str, Incarnation] = {}
    ended = {i: job for i, job in on_cluster.items() if job.status is FlinkJobStatus.FINISHED}
    for name, incarnation in latest.items() if ended else ():
        job = ended.get(incarnation.flink_job_id)
        if job is None:
            continue
        stopping = incarnation.state is IncarnationState.STOPPING  # whoever stops it says so
        if incarnation.state.is_over or stopping:
            continue
        try:
            savepoint = savepoint_left_by(incarnation, job, job_manager)
        except NotFoundError:
            continue  # forgotten between the two questions
        finished[name] = runtime.memory.update(
            name,
            incarnation.number,
            state=IncarnationState.ENDED,
            ended_at=job.ended_at,
            end_reason=job.status.value,
            savepoint_path=savepoint,
        )
    return finished


class _Questions:
    """The JobManager, asked a bounded number of times."""

    def __init__(self, job_manager: JobManager, most: int) -> None:
        self._job_manager = job_manager
        self.left = most

    def checkpoints(self, job_id: str) -> CheckpointStatistics:
        self.left -= 1
        return self._job_manager.checkpoints(job_id)

    def exceptions(self, job_id: str) -> tuple[JobException, ...]:
        self.left -= 1
        return self._job_manager.exceptions(job_id)


def _news(
    questions: _Questions,
    incarnation: Incarnation,
    on_cluster: Mapping[str, JobSummary],
    now: datetime,
    policy: SupervisionPolicy,
) -> IncarnationChanges:
    job_id = incarnation.flink_job_id
    statistics = questions.checkpoints(job_id)
    changes = _checkpoint_news(incarnation, statistics)
    restarts = _restored_since_start(incarnation, statistics)
    troubled = on_cluster[job_id].status.is_restarting or restarts > incarnation.restarts
    # Before its first checkpoint a restart restores nothing: only the exceptions tell of it.
    if troubled or statistics.completed_count == 0:
        exceptions = questions.exceptions(job_id)
        changes |= _exception_news(incarnation, exceptions)
        restarts = max(restarts, incarnation.restarts + _new_ones(incarnation, exceptions))
    if restarts != incarnation.restarts:
        changes |= _restart_news(incarnation, restarts, now, policy)
    if incarnation.state in (IncarnationState.RECORDED, IncarnationState.SUBMITTED):
        changes |= {"state": IncarnationState.RUNNING, "running_at": now}
    return changes


def _checkpoint_news(
    incarnation: Incarnation, statistics: CheckpointStatistics
) -> IncarnationChanges:
    changes: IncarnationChanges = {}
    newest = statistics.latest_completed
    if newest is not None and newest.id != incarnation.checkpoint_id:
        changes |= {
            "checkpoint_id": newest.id,
            "checkpoint_path": newest.external_path,
            "checkpoint_at": newest.completed_at,
        }
    if statistics.failed_count != incarnation.failed_checkpoints:
        changes["failed_checkpoints"] = statistics.failed_count
    return changes


def _reading_news(
    runtime: Runtime,
    job_manager: JobManager,
    incarnation: Incarnation,
    news: IncarnationChanges,
    now: datetime,
) -> IncarnationChanges:
    """How far it has read by its newest checkpoint, and when it last got on or had read all.

    What cannot be known counts as having got on: a job is never called stalled on a guess.
    """
    job = runtime.jobs.get(incarnation.job_name)
    path = news.get("checkpoint_path", incarnation.checkpoint_path)
    if job is None or path is None or not (job.definition.reads or job.definition.sources):
        return {}
    present = read_positions(path)
    if present is None or not present.positions:
        return {}
    before = positions_from_text(incarnation.read_positions)
    if before is not None and not moved(before, present):
        record = runtime.memory.state().records[job.name]
        lag = lag_of(
            runtime,
            job,
            present,
            now,
            operator_name=record.effective_operator_name,
            job_manager=job_manager,
            flink_job_id=incarnation.flink_job_id,
        )
        if lag.unread:
            return {}
    return {"read_positions": positions_to_text(present), "read_moved_at": now}


def _restored_since_start(incarnation: Incarnation, statistics: CheckpointStatistics) -> int:
    """Restored checkpoints; the restore point that it was started from is no restart."""
    return max(0, statistics.restored_count - (1 if incarnation.restored_from else 0))


def _new_ones(incarnation: Incarnation, exceptions: Sequence[JobException]) -> int:
    known = incarnation.root_cause_at
    return sum(known is None or exception.occurred_at > known for exception in exceptions)


def _exception_news(
    incarnation: Incarnation, exceptions: Sequence[JobException]
) -> IncarnationChanges:
    if not exceptions or not _new_ones(incarnation, exceptions):
        return {}
    newest = exceptions[0]
    return {"root_cause": newest.root_cause, "root_cause_at": newest.occurred_at}


def _restart_news(
    incarnation: Incarnation, restarts: int, now: datetime, policy: SupervisionPolicy
) -> IncarnationChanges:
    """The restarts so far; those since the window began are the recent ones."""
    began = incarnation.restart_window_at
    window = policy.seconds("restart_window")
    if began is not None and (now - began).total_seconds() < window:
        return {"restarts": restarts}
    return {
        "restarts": restarts,
        "restarts_before_window": incarnation.restarts,
        "restart_window_at": now,
    }

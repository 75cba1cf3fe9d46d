"""Which snapshots of which tables our streaming jobs would read again if they had to restart now,
and which of their own commits they would have to find again.

A restart, Flink's or ours, begins from a restore point that is there now or from a later one, and
positions only advance from one to the next: so what the oldest one needs that could be chosen is
enough. Those are the ones ``streaming/restore.py`` would take first: the savepoint of a stop, else
every checkpoint that is retained (one of them may turn out damaged) of the newest incarnation that
has any. Tables that are looked up, not streamed, have no position: a join loads what is newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from lakehouse_dagster.errors import ConfigurationError, FlinkError
from lakehouse_dagster.flink import (
    CheckpointMetadata,
    FlinkJobStatus,
    SourceKind,
    known_checkpoint_metadata,
)
from lakehouse_dagster.flink.restore_points import completed_at
from lakehouse_dagster.sql.model import TableName
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming.positions import tables_of
from lakehouse_dagster.streaming.restore import candidates_of
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.versions import job_of
from lakehouse_dagster.system_db import DesiredState, Incarnation, JobRecord

_ATTEMPTS = 3
"""Flink may replace a checkpoint while it is looked at."""
_BRANCH = "$branch_"


@dataclass(frozen=True)
class RestorePoint:
    """A restore point on disk: of which checkpoint, when it was complete, and what it holds."""

    checkpoint_id: int
    completed_at: datetime
    metadata: CheckpointMetadata


@dataclass(frozen=True)
class ReadAgain:
    """What one job needs.

    Args:
        name: of the job.
        tables: the first snapshot that it would read again, by ``database.table``; None where
            that is not known.
        may_read_others: it may read any other table too, from an unknown snapshot on.
        writes: the tables that it commits to.
        commit_user: what the users of its commits begin with; empty where they are not marked.
        oldest: the oldest restore point that a restart might begin from; None if not known.
    """

    name: str
    tables: Mapping[str, int | None] = field(hash=False)
    may_read_others: bool = False
    writes: frozenset[str] = frozenset()
    commit_user: str = ""
    oldest: RestorePoint | None = None


def read_again(runtime: Runtime) -> tuple[ReadAgain, ...]:
    """What the jobs of a lakehouse need that would go on from where they were.

    Jobs whose script is gone are among them: they are left running. Not those that never ran, were
    cancelled for good, have read all there was, or keep no state.
    """
    state = runtime.memory.state()
    places = _Places(runtime)
    found = []
    for name, newest in sorted(state.latest.items()):
        record, job = state.records.get(name), runtime.jobs.get(name)
        if record is None:
            continue
        if job is not None and not job.keeps_state and (newest.state.is_over or _is_group(job)):
            continue  # begins anew; as long as it runs, Flink restarts it where it was
        if newest.state.is_over and (
            record.desired is DesiredState.CANCELED
            or newest.end_reason == FlinkJobStatus.FINISHED.value
        ):
            continue
        needed = _of_job(places, record, newest)
        if needed is not None:
            found.append(needed)
    return tuple(found)


def _of_job(places: _Places, record: JobRecord, newest: Incarnation) -> ReadAgain | None:
    """What one job needs; None when it would begin anew as a job that never ran does."""
    job = job_of(places.runtime, newest)
    reads = _reads(job)
    believed = job is not None and job.definition.dependencies_known
    try:
        points = _restore_points(places, job, newest)
    except (FlinkError, ConfigurationError):
        points = None
    if points is not None and not points:
        return None
    # Of what was adopted nobody knows the script: what is declared for it counts.
    known_as = job or places.runtime.jobs.get(record.name)
    written = (
        frozenset() if known_as is None else frozenset((*known_as.sink_keys, *known_as.compacts))
    )
    user = job_settings.commit_user_start(record.effective_operator_name)
    if points is None or None in points:
        unknown = dict.fromkeys(map(_base, reads))
        return ReadAgain(record.name, unknown, not believed, written, user)
    known = [point for point in points if point is not None]
    tables: dict[str, int | None] = {}
    others = False
    for point in known:
        found = _Tables.of(point.metadata, reads, record.effective_operator_name)
        for table, needed in found.known.items():
            tables[table] = _earlier(tables.get(table, needed), needed)
        if found.unassigned:
            tables |= dict.fromkeys(found.left)
            others = others or not believed or not found.left
    oldest = min(known, key=lambda point: point.checkpoint_id)
    return ReadAgain(record.name, tables, others, written, user, oldest)


def _reads(job: StreamingJob | None) -> tuple[TableName, ...]:
    """The tables whose own snapshots it reads; a branch has snapshots of its own."""
    if job is None:
        return ()
    read = job.definition.reads + (job.definition.sinks if job.definition.reads_itself else ())
    read += tuple(TableName("", *key.split(".", 1)) for key in job.compacts)
    return tuple(table for table in read if _BRANCH not in table.table)


def _is_group(job: StreamingJob) -> bool:
    """Whether it compacts several tables: how far it has read each is in no checkpoint.

    Paimon's CombinedAwareStreamingSource keeps no state, in 1.3.1 and 2.0.0: restored, it
    begins with all that is in the tables.
    """
    return len(job.compacts) > 1


def _base(table: TableName) -> str:
    """The table that a system table such as ``orders$audit_log`` shows."""
    return table.key.split("$")[0]


@dataclass(frozen=True)
class _Tables:
    """What one restore point needs of which tables.

    Args:
        known: the first snapshot by table, None where it is not known.
        left: tables that no source was found for: looked up, or read by an unassigned one.
        unassigned: whether there is a source of which it is not clear which table it reads.
    """

    known: Mapping[str, int | None]
    left: frozenset[str]
    unassigned: bool

    @classmethod
    def of(
        cls, point: CheckpointMetadata, reads: Sequence[TableName], operator_name: str
    ) -> _Tables:
        names = tables_of(point.positions, reads, operator_name)
        bases = {table.key: _base(table) for table in reads}
        known: dict[str, int | None] = {}
        unassigned = False
        for position in point.positions:
            if position.operator_id in names:
                table, needed = bases[names[position.operator_id]], position.first_needed_snapshot
                known[table] = _earlier(known.get(table, needed), needed)
            elif position.kind is SourceKind.PAIMON:
                unassigned = True
        return cls(known, frozenset(bases.values()) - set(known), unassigned)


def _earlier(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


# restore points


@dataclass(frozen=True)
class _Places:
    """Where jobs keep their checkpoints; the cluster is asked at most once."""

    runtime: Runtime

    @cached_property
    def _configuration(self) -> Mapping[str, str] | FlinkError:
        try:
            return self.runtime.watcher.configuration()
        except FlinkError as error:
            return error  # and no other job waits for the cluster

    def directory(self, job: StreamingJob | None, life: Incarnation) -> str | None:
        """Where a life's checkpoints are retained, as seen or as declared.

        None where nobody knows, or where a stop's savepoint is all that counts.
        """
        directory, found, _ = (life.checkpoint_path or "").rpartition(f"/{life.flink_job_id}/")
        if found:
            return directory
        if job is None or (life.state.is_over and life.savepoint_path):
            return None
        if isinstance(self._configuration, FlinkError):
            raise self._configuration
        return job_settings.checkpoint_directory(
            self._configuration, job.definition, self.runtime.environ
        )


def _restore_points(
    places: _Places, job: StreamingJob | None, newest: Incarnation
) -> tuple[RestorePoint | None, ...] | None:
    """What a start would choose from, None in place of what cannot be read.

    Empty when there certainly is nothing to go on from; None when that is not known.
    """
    found = _of_life(newest, places.directory(job, newest))
    if found:
        return found
    lives = places.runtime.memory.incarnations(newest.job_name)
    for life in lives:
        found = _of_life(life, places.directory(job, life))
        if found:
            return found
    had_any = any(life.checkpoint_path or life.savepoint_path for life in lives)
    return () if newest.state.is_over and not had_any else None


def _of_life(life: Incarnation, directory: str | None) -> tuple[RestorePoint | None, ...]:
    """Its checkpoints that are newer than its savepoint, or else that."""
    found: list[RestorePoint | None] = []
    for _ in range(_ATTEMPTS):
        found = []
        for candidate in candidates_of(life, directory):
            if not candidate.is_savepoint or not found:
                found.append(_read(candidate.path))
            if candidate.is_savepoint:
                break
        if None not in found:
            break
    return tuple(found)


def _read(path: str) -> RestorePoint | None:
    metadata, at = known_checkpoint_metadata(path), completed_at(path)
    if metadata is None or at is None:
        return None
    return RestorePoint(metadata.checkpoint_id, at, metadata)

"""How far a job is behind what it reads.

The positions of its sources stand in the metadata of its newest checkpoint, so they are as old as
that checkpoint is. Of Paimon's tables the catalog tells what was committed since; of Kafka, Flink's
own metric how many records wait. Of other sources only whether they moved is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.errors import CatalogError, FlinkError
from lakehouse_dagster.flink import JobManager, ReadPosition, SourceKind
from lakehouse_dagster.paimon import CatalogReader
from lakehouse_dagster.streaming.positions import (
    ReadPositions,
    positions_from_text,
    read_positions,
    tables_of,
)
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.system_db import Incarnation


@dataclass(frozen=True)
class UpstreamLag:
    """How far a job is behind one thing that it reads.

    ``source`` is the table (``database.table``), or Flink's name of the source.
    ``snapshots_behind`` are those committed and not handed out at the checkpoint (Paimon);
    ``records_behind`` wait in the topic (Kafka). ``oldest_unread_at`` is when the first unread
    snapshot was committed. What is None is not known, and ``unknown`` says why nothing is.
    """

    source: str
    kind: SourceKind
    next_snapshot: int | None = None
    latest_snapshot: int | None = None
    snapshots_behind: int | None = None
    splits_being_read: int | None = None
    records_behind: int | None = None
    oldest_unread_at: datetime | None = None
    seconds_behind: float | None = None
    unknown: str | None = None

    @property
    def has_more(self) -> bool:
        """Whether something is certainly there to be read."""
        return bool(self.snapshots_behind or self.splits_being_read or self.records_behind)

    @property
    def is_known(self) -> bool:
        return self.unknown is None

    def __str__(self) -> str:
        if self.unknown is not None:
            return f"{self.source}: {self.unknown}"
        if self.records_behind is not None:
            return f"{self.source}: {self.records_behind:,} records behind"
        if not self.has_more:
            return f"{self.source}: all read up to snapshot {self.latest_snapshot}"
        if not self.snapshots_behind:
            return f"{self.source}: still reading before snapshot {self.next_snapshot}"
        since = "" if self.seconds_behind is None else f", {in_words(self.seconds_behind)}"
        return (
            f"{self.source}: {self.snapshots_behind} snapshots behind{since} "
            f"({self.next_snapshot} to {self.latest_snapshot})"
        )


@dataclass(frozen=True)
class JobLag:
    """How far a job was behind everything that it reads, at its newest readable checkpoint."""

    job: str
    upstreams: tuple[UpstreamLag, ...]

    @property
    def unread(self) -> tuple[UpstreamLag, ...]:
        return tuple(upstream for upstream in self.upstreams if upstream.has_more)

    @property
    def unknown(self) -> tuple[UpstreamLag, ...]:
        return tuple(upstream for upstream in self.upstreams if not upstream.is_known)

    @property
    def snapshots_behind(self) -> int | None:
        """Behind the upstream that it is furthest behind; None when that is not known."""
        known = (upstream.snapshots_behind for upstream in self.upstreams)
        return max((count for count in known if count is not None), default=None)

    @property
    def seconds_behind(self) -> float | None:
        """The age of the oldest commit that it has not read (0.0: it has read all)."""
        known = (upstream.seconds_behind for upstream in self.upstreams)
        return max((seconds for seconds in known if seconds is not None), default=None)


def lag_of(
    runtime: Runtime,
    job: StreamingJob,
    positions: ReadPositions,
    now: datetime,
    *,
    operator_name: str | None = None,
    job_manager: JobManager | None = None,
    flink_job_id: str | None = None,
) -> JobLag:
    """How far the job was behind what it reads.

    Args:
        runtime: whose catalog tells what the tables' newest snapshots are.
        job: what it reads.
        positions: of its newest checkpoint.
        now: the present.
        operator_name: what its operator ids are made from; its own name by default, empty when
            they are not ours.
        job_manager: asked how many records wait in Kafka, together with ``flink_job_id``, when
            the job reads Kafka; without it that is not known.
    """
    catalog = runtime.catalog.open()
    name = job.name if operator_name is None else operator_name
    tables = tables_of(positions.positions, job.definition.reads, name)
    waiting = _waiting_in_topics(positions, job_manager, flink_job_id)
    upstreams = []
    for position in positions.positions:
        if position.kind is SourceKind.KAFKA:
            upstreams.append(_behind_topic(position, waiting.get(position.operator_id)))
        else:
            table = tables.get(position.operator_id)
            upstreams.append(_behind(position, table, catalog, now))
    return JobLag(job.name, tuple(upstreams))


def lag_now(
    runtime: Runtime,
    job: StreamingJob,
    incarnation: Incarnation,
    *,
    job_manager: JobManager | None = None,
) -> JobLag | None:
    """How far a life of the job is, or was when it ended, behind; None when it cannot be known.

    By its newest restore point on record, else by the positions that were written down of it.
    """
    ended = incarnation.state.is_over and incarnation.savepoint_path
    path = ended or incarnation.checkpoint_path
    positions = read_positions(path) if path else None
    positions = positions or positions_from_text(incarnation.read_positions)
    if positions is None:
        return None
    record = runtime.memory.state().records.get(job.name)
    return lag_of(
        runtime,
        job,
        positions,
        runtime.clock.now(),
        operator_name=record.effective_operator_name if record else None,
        job_manager=None if incarnation.state.is_over else job_manager,
        flink_job_id=incarnation.flink_job_id,
    )


def _behind(
    position: ReadPosition, table: str | None, catalog: CatalogReader, now: datetime
) -> UpstreamLag:
    name = table or _name_of(position)
    if position.kind is not SourceKind.PAIMON:
        return UpstreamLag(name, position.kind, unknown="how much there is to read is not known")
    if table is None:
        return UpstreamLag(name, position.kind, unknown="it is not known which table this is")
    try:
        return _behind_table(table, position, catalog, now)
    except CatalogError as error:
        return UpstreamLag(name, position.kind, unknown=error.message)


def _name_of(position: ReadPosition) -> str:
    name = (position.source_name or "").removeprefix("Source: ")
    return name or f"operator {position.operator_id}"


def _behind_table(
    table: str, position: ReadPosition, catalog: CatalogReader, now: datetime
) -> UpstreamLag:
    reader = catalog.table(table)
    latest = reader.latest_snapshot_id()
    following = position.next_snapshot
    if following is None and latest is not None:
        return UpstreamLag(
            table,
            position.kind,
            latest_snapshot=latest,
            splits_being_read=position.pending_splits,
            unknown="it has not planned what to read first",
        )
    behind = 0 if latest is None or following is None else max(0, latest - following + 1)
    oldest = reader.snapshot(following) if behind and following is not None else None
    oldest_at = oldest.committed_at if oldest else None
    seconds = max(0.0, (now - oldest_at).total_seconds()) if oldest_at else None
    return UpstreamLag(
        table,
        position.kind,
        next_snapshot=following,
        latest_snapshot=latest,
        snapshots_behind=behind,
        splits_being_read=position.pending_splits,
        oldest_unread_at=oldest_at,
        seconds_behind=0.0 if not behind else seconds,
    )


def _behind_topic(position: ReadPosition, records: int | None) -> UpstreamLag:
    if records is None:
        why = "Flink does not tell how many records wait"
        return UpstreamLag(_name_of(position), position.kind, unknown=why)
    seconds = None if records else 0.0
    return UpstreamLag(
        _name_of(position), position.kind, records_behind=records, seconds_behind=seconds
    )


def _waiting_in_topics(
    positions: ReadPositions, job_manager: JobManager | None, flink_job_id: str | None
) -> dict[str, int]:
    """How many records wait for each Kafka source, by operator id."""
    kafka = [p for p in positions.positions if p.kind is SourceKind.KAFKA]
    if not kafka or job_manager is None or flink_job_id is None:
        return {}
    try:
        waiting = job_manager.pending_records(flink_job_id)
    except FlinkError:
        return {}  # not known is all that follows from no answer
    if len(kafka) == len(waiting) == 1:
        return {kafka[0].operator_id: next(iter(waiting.values()))}
    by_name = {_metric_name(p.source_name): p.operator_id for p in kafka if p.source_name}
    return {by_name[name]: count for name, count in waiting.items() if name in by_name}


def _metric_name(name: str) -> str:
    """An operator's name as it stands in metrics, where dots and spaces have no place."""
    return re.sub(r"[^A-Za-z0-9_\[\]-]", "_", name)

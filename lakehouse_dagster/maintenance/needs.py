"""Who still needs old snapshots of a table: consumers, and how far our own jobs have read it."""

from __future__ import annotations

from collections.abc import Iterator

from lakehouse_dagster.maintenance.actions import Holder
from lakehouse_dagster.paimon import TableReader
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.sql.model import TableName
from lakehouse_dagster.streaming.positions import (
    positions_from_text,
    read_positions,
    tables_of,
)
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import DesiredState, Incarnation


def holders(runtime: Runtime, facts: TableFacts) -> tuple[Holder, ...]:
    """Everybody who may still read an old snapshot of the table.

    Paimon itself keeps what consumers need; they are here so that it can be told who holds back.
    Tags keep their files whatever becomes of their snapshots.
    """
    table = runtime.catalog.open().table(facts.table)
    return (*_consumers(facts, table), *_jobs(runtime, facts, table))


def protected_tags(facts: TableFacts) -> frozenset[str]:
    """The tags that branches stand on: without them a branch cannot be read after an expiry."""
    return frozenset(tag for branch in facts.branches.values() for tag in branch.tags)


def _consumers(facts: TableFacts, table: TableReader) -> Iterator[Holder]:
    for name, consumer in sorted(facts.consumers.items()):
        yield _holder("consumer", name, consumer.next_snapshot, facts, table)


def _jobs(runtime: Runtime, facts: TableFacts, table: TableReader) -> Iterator[Holder]:
    state = runtime.memory.state()
    for name, job in sorted(runtime.jobs.items()):
        record, newest = state.records.get(name), state.latest.get(name)
        reads = any(read.key == facts.table for read in job.definition.reads)
        if not reads or record is None or newest is None:
            continue  # it has never run: it has no place to go on from
        if record.desired is DesiredState.CANCELED and newest.state.is_over:
            continue
        operator_name = record.effective_operator_name
        position = _position(newest, job.definition.reads, operator_name, facts.table)
        yield _holder("streaming job", name, position, facts, table)


def _position(
    incarnation: Incarnation, reads: tuple[TableName, ...], operator_name: str, table: str
) -> int | None:
    """The first snapshot that the job would read again from its restore point; None if unknown."""
    path = incarnation.savepoint_path if incarnation.state.is_over else None
    path = path or incarnation.checkpoint_path
    positions = read_positions(path) if path else None
    positions = positions or positions_from_text(incarnation.read_positions)
    if positions is None:
        return None
    tables = tables_of(positions.positions, reads, operator_name)
    of_table = [p for p in positions.positions if tables.get(p.operator_id) == table]
    if not of_table or any(p.next_snapshot is None or p.pending_splits for p in of_table):
        return None
    return min(p.next_snapshot or 0 for p in of_table)


def _holder(
    kind: str, name: str, needed: int | None, facts: TableFacts, table: TableReader
) -> Holder:
    if needed is None or needed > (facts.snapshot_id or 0):
        return Holder(kind, name, needed)
    snapshot = table.snapshot(needed)
    return Holder(kind, name, needed, None if snapshot is None else snapshot.committed_at)

"""The jobs of ours that write a table, and how often they were restarted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import JobManager
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.versions import job_of
from lakehouse_dagster.system_db import Incarnation

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class WriterCounts:
    """How often a writer was restored since it was submitted, and its complete checkpoints."""

    restarts: int
    checkpoints: int


def writers_of(runtime: Runtime, tables: Iterable[str]) -> dict[str, Incarnation]:
    """The newest incarnation of each job that writes one of the tables and is not over."""
    wanted = set(tables)
    latest = runtime.memory.state().latest
    return {
        name: latest[name]
        for name, job in runtime.jobs.items()
        if wanted & set(job.sink_keys) and name in latest and not latest[name].state.is_over
    }


def jobs_of_table(runtime: Runtime, table: str) -> list[str]:
    """The declared jobs that write a table or compact it, by name."""
    jobs = runtime.jobs.items()
    return sorted(name for name, job in jobs if table in (*job.sink_keys, *job.compacts))


def job_on_record(runtime: Runtime, name: str, life: Incarnation | None) -> StreamingJob | None:
    """A job as it is declared, or else as it ran: one whose declaration is gone is left running."""
    declared = runtime.jobs.get(name)
    return declared if declared is not None or life is None else job_of(runtime, life)


def compactors_of(runtime: Runtime, facts: TableFacts) -> tuple[str, ...]:
    """The jobs of ours that may compact a table now: its compaction job, else its writers."""
    found = []
    for name, life in sorted(runtime.memory.state().latest.items()):
        job = None if life.state.is_over else job_on_record(runtime, name, life)
        if job is not None and (
            facts.table in job.compacts
            or (facts.table in job.sink_keys and facts.compacted_by_writers)
        ):
            found.append(name)
    return tuple(found)


def counts_of_writers(
    runtime: Runtime, tables: Iterable[str], job_manager: JobManager
) -> dict[str, WriterCounts]:
    """The counts of each writer, by Flink job id; unknown ones left out."""
    found = {}
    for incarnation in writers_of(runtime, tables).values():
        try:
            statistics = job_manager.checkpoints(incarnation.flink_job_id)
        except FlinkError:
            continue
        found[incarnation.flink_job_id] = WriterCounts(
            statistics.restored_count, statistics.completed_count
        )
    return found


def restarts_since(before: Mapping[str, WriterCounts], after: Mapping[str, WriterCounts]) -> int:
    """How often the writers that are in both were restarted in between."""
    return sum(
        max(0, counts.restarts - before[job].restarts)
        for job, counts in after.items()
        if job in before
    )


def wait_for_their_commits(
    runtime: Runtime, tables: Iterable[str], job_manager: JobManager, *, seconds: float
) -> None:
    """Wait until each writer has committed after now, or was restarted; at most so long.

    A writer that loses against a compaction notices at its next commit.
    """
    tables = tuple(tables)
    over = runtime.clock.deadline(seconds)
    at_first = counts_of_writers(runtime, tables, job_manager)
    while not over():
        now = counts_of_writers(runtime, tables, job_manager)
        waiting = [
            job
            for job, counts in at_first.items()
            # The next one may have been under way: the one after it began after now.
            if job in now
            and now[job].checkpoints < counts.checkpoints + 2
            and now[job].restarts == counts.restarts
        ]
        if not waiting:
            return
        runtime.clock.sleep(_POLL_SECONDS)

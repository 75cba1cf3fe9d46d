"""The jobs of ours that write a table, and how often they were restarted."""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import JobManager
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import Incarnation


def writers_of(runtime: Runtime, tables: Iterable[str]) -> dict[str, Incarnation]:
    """The newest incarnation of each job that writes one of the tables and is not over."""
    wanted = set(tables)
    latest = runtime.memory.state().latest
    return {
        name: latest[name]
        for name, job in runtime.jobs.items()
        if wanted & set(job.sink_keys) and name in latest and not latest[name].state.is_over
    }


def restarts_of_writers(
    runtime: Runtime, tables: Iterable[str], job_manager: JobManager
) -> dict[str, int]:
    """How often each writer was restored since it was submitted; unknown ones left out."""
    found = {}
    for name, incarnation in writers_of(runtime, tables).items():
        try:
            found[name] = job_manager.checkpoints(incarnation.flink_job_id).restored_count
        except FlinkError:
            continue
    return found

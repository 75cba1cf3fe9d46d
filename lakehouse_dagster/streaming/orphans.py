"""Jobs on record whose script is gone: left running, reported, and still to be stopped."""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_dagster.errors import JobNotFoundError
from lakehouse_dagster.sql.model import JobDefinition, Location, Statement, StatementKind
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.versions import deployed
from lakehouse_dagster.system_db import DesiredState, JobRecord


def orphans(runtime: Runtime, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """The jobs that somebody wanted something of and that no script declares any more."""
    return tuple(
        record
        for record in records
        if record.name not in runtime.jobs and record.desired is not DesiredState.UNMANAGED
    )


def job_or_orphan(runtime: Runtime, name: str) -> StreamingJob:
    """The declared job of that name, else what is left of one whose script is gone.

    Raises ``JobNotFoundError`` when there never was such a job.
    """
    try:
        return runtime.job(name)
    except JobNotFoundError:
        if runtime.memory.get(name) is None:
            raise
    return deployed(runtime, name) or _bare(name)


def _bare(name: str) -> StreamingJob:
    """A job of which only the name is known: enough to stop or cancel it."""
    nowhere = Location("(script is gone)", 1, 1)
    return StreamingJob(
        JobDefinition(
            name=name,
            name_is_explicit=True,
            statement=Statement("", nowhere, StatementKind.UNKNOWN),
            setup=(),
            settings={},
            sinks=(),
            reads=(),
            sources=(),
            reads_itself=False,
            dependencies_known=False,
            location=nowhere,
        )
    )

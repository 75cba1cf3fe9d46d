"""The streaming compaction jobs that a policy asks for: ``compaction: dedicated``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink.procedures import call
from lakehouse_dagster.maintenance.calls import compact_together
from lakehouse_dagster.maintenance.spec import Compaction, MaintenancePolicy
from lakehouse_dagster.sql.model import JobDefinition, Location, Statement, StatementKind
from lakehouse_dagster.streaming.spec import DeclaringScript, StartPolicy, StreamingJob

_PLACE = Location("(maintenance policy)", 1, 1)
_OF_CHECKPOINTS = ("execution.checkpointing.", "state.checkpoints.", "state.savepoints.")


def compaction_jobs(
    policy: MaintenancePolicy, jobs: Mapping[str, StreamingJob]
) -> dict[str, StreamingJob]:
    """The compaction jobs of the tables that these jobs write, by name.

    They are named ``compact-<database>.<table>``, or ``compact-<group>``.

    Raises:
        ConfigurationError: a script's job bears such a name.
    """
    writers: dict[str, StreamingJob] = {}
    for job in jobs.values():
        for table in job.sink_keys:
            writers.setdefault(table, job)
    tables_of: dict[str, list[str]] = {}
    single: set[str] = set()
    for table in sorted(writers):
        of_table = policy.for_table(table)
        if of_table.compaction is not Compaction.DEDICATED:
            continue
        name = compaction_job_name(of_table.compaction_group or table)
        tables_of.setdefault(name, []).append(table)
        if of_table.compaction_group is None:
            single.add(name)
    for name, tables in tables_of.items():
        _refuse_taken(name, tables, jobs, alone=name in single)
    return {
        name: _job(name, tables, [writers[table] for table in tables], together=name not in single)
        for name, tables in tables_of.items()
    }


def compaction_job_name(of: str) -> str:
    """The name of the compaction job of a table (``database.table``) or group."""
    return f"compact-{of}"


def _refuse_taken(
    name: str, tables: Sequence[str], jobs: Mapping[str, StreamingJob], *, alone: bool
) -> None:
    if name in jobs:
        raise ConfigurationError(
            f"The compaction job of {', '.join(tables)} is named {name}, as is a job of a script.",
            remedy="Give the script's job another name (SET 'pipeline.name'), or the tables a "
            "compaction_group.",
        )
    if alone and len(tables) > 1:
        raise ConfigurationError(
            f"A compaction_group is named after the table {name.removeprefix('compact-')}.",
            remedy="Name the group otherwise.",
        )


def _job(
    name: str, tables: Sequence[str], writers: Sequence[StreamingJob], *, together: bool
) -> StreamingJob:
    """Checkpoints are kept as the first writer's; a table that is missing is made as its own."""
    first = writers[0].definition
    settings = {k: v for k, v in first.settings.items() if k.startswith(_OF_CHECKPOINTS)}
    on_load = any(writer.start is StartPolicy.ON_LOAD for writer in writers)
    return StreamingJob(
        JobDefinition(
            name=name,
            name_is_explicit=True,
            statement=Statement(
                compact_together(tables) if together else call("compact", table=tables[0]),
                _PLACE,
                StatementKind.ACTION,
            ),
            setup=(),
            settings=settings,
            sinks=(),
            reads=(),
            sources=(),
            reads_itself=False,
            dependencies_known=True,
            location=_PLACE,
        ),
        start=StartPolicy.ON_LOAD if on_load else StartPolicy.ON_DEMAND,
        declared_elsewhere=tuple(
            script
            for table, writer in zip(tables, writers, strict=True)
            for script in (
                *writer.declared_elsewhere,
                DeclaringScript((table,), writer.definition.setup),
            )
        ),
        compacts=tuple(tables),
    )

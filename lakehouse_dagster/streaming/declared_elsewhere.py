"""Tables that a job reads or writes and another script declares: what has to run for them first."""

from __future__ import annotations

from collections.abc import Iterator

from lakehouse_dagster.sql.model import (
    JobDefinition,
    Project,
    Script,
    Statement,
    StatementKind,
    TableName,
)
from lakehouse_dagster.streaming.spec import DeclaringScript

_DECLARES = (
    StatementKind.CREATE_CATALOG,
    StatementKind.CREATE_DATABASE,
    StatementKind.CREATE_TABLE,
    StatementKind.USE,
    StatementKind.SET,
)


def declared_elsewhere(
    project: Project,
) -> Iterator[tuple[JobDefinition, tuple[DeclaringScript, ...]]]:
    """Every job, with the other scripts that declare tables which it reads or writes."""
    scripts = {script.path: script for script in project.scripts}
    homes: dict[TableName, str] = {}
    places: dict[TableName, set[str]] = {}
    for script, table in ((s, table) for s in project.scripts for table in s.tables):
        homes.setdefault(table.name, script.path)
        places.setdefault(table.name, set()).add(table.location.path)
    for job in project.jobs:
        own = {statement.location.path for statement in (*job.setup, job.statement)}
        wanted: dict[str, list[str]] = {}
        for name in (*job.reads, *job.sinks):
            if name in homes and own.isdisjoint(places[name]):
                wanted.setdefault(homes[name], []).append(name.key)
        yield (
            job,
            tuple(
                DeclaringScript(tuple(tables), _declarations(scripts[path]))
                for path, tables in sorted(wanted.items())
            ),
        )


def _declarations(script: Script) -> tuple[Statement, ...]:
    """What has to run for the script's tables to be there; a table may be LIKE a temporary one."""
    kinds = set(_DECLARES)
    if any("LIKE" in s.text.upper() for s in script.setup if s.kind is StatementKind.CREATE_TABLE):
        kinds.add(StatementKind.CREATE_TEMPORARY_TABLE)
    return tuple(s for s in script.setup if s.kind in kinds)

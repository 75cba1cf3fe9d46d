"""Reads the units of a project, each with what the others declare, and puts them together.

No sqlglot here: who reads a unit, and whether it was read before, is left to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from lakehouse_dagster.sql.contradictions import contradicts, declared_differently
from lakehouse_dagster.sql.model import (
    JobDefinition,
    Problem,
    Project,
    Script,
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
)
from lakehouse_dagster.sql.project_checks import (
    cycles,
    missing_variables,
    same_name,
    several_writers,
    undeclared,
)
from lakehouse_dagster.sql.unit import (
    CatalogDefinition,
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    Unit,
)

ReadDeclarations = Callable[[Sequence[Unit], ReadingContext, Externals], Sequence[Declarations]]
"""Reads what units declare (``script_reader.read_declarations`` of each)."""
ReadJobs = Callable[[Sequence[Unit], ReadingContext, Externals], Sequence[Reading]]
"""Reads units wholly (``script_reader.read_jobs`` of each)."""

R = TypeVar("R")

_MOST_ROUNDS = 50


def read_units(
    units: Sequence[Unit],
    context: ReadingContext,
    declarations: ReadDeclarations,
    jobs: ReadJobs,
    *,
    failed: Sequence[Script] = (),
    environ: Mapping[str, str] | None = None,
) -> Project:
    """Read a project: what each unit declares, then its jobs with what the others declare.

    Args:
        units: In the order in which scripts are shown.
        failed: Scripts that could not be opened, with the reason; they go among the others by path.
        environ: The environment that jobs are submitted in; by default this process's.
    """
    prelude = [context.prelude] if context.prelude.files else []

    def read(
        read_batch: Callable[[Sequence[Unit], ReadingContext, Externals], Sequence[R]],
        numbers: Sequence[int],
        told: Externals,
    ) -> list[R]:
        """Read units by number; where there is a prelude, it is the first, and stands alone."""
        before = [n for n in numbers if n < len(prelude)]
        after = [n - len(prelude) for n in numbers if n >= len(prelude)]
        first = read_batch(prelude, context.for_prelude(), told) if before else []
        return [*first, *(read_batch([units[n] for n in after], context, told) if after else [])]

    everything = range(len(prelude) + len(units))
    found = read(declarations, everything, Externals())
    answers = [Externals()] * len(found)
    externals = _gathered(found)
    for _ in range(_MOST_ROUNDS):
        # Until nobody would be answered otherwise: as many rounds as views and LIKE go from file
        # to file. What leads back to itself stays unknown.
        now = [externals.answers(one.asked) for one in found]
        stale = [n for n in everything if now[n] != answers[n]]
        if not stale:
            break
        answers = now
        for number, one in zip(stale, read(declarations, stale, externals), strict=True):
            found[number] = one
        externals = _gathered(found)
    readings = read(jobs, everything, externals)
    scripts = [script for reading in readings for script in reading.scripts]
    if failed:
        scripts = sorted([*scripts, *failed], key=lambda script: script.path)
    known = os.environ if environ is None else environ
    return merge(scripts, variables={*context.variables, *known})


def _gathered(found: Sequence[Declarations]) -> Externals:
    """All that is declared, each name once; a table whose columns are known comes first."""
    tables: dict[TableName, TableDefinition] = {}
    sources: dict[TableName, SourceDefinition] = {}
    views: dict[TableName, ViewDefinition] = {}
    catalogs: dict[str, CatalogDefinition] = {}
    functions: dict[str, None] = {}
    for declared in (one.declared for one in found):
        for table in declared.tables:
            known = tables.setdefault(table.name, table)
            if table.columns_known and not known.columns_known:
                tables[table.name] = table
        for source in declared.sources:
            sources.setdefault(source.name, source)
        for view in declared.views:
            views.setdefault(view.name, view)
        for catalog in declared.catalogs:
            catalogs.setdefault(catalog.name, catalog)
        functions.update(dict.fromkeys(declared.functions))
    return Externals(
        tuple(tables.values()),
        tuple(sources.values()),
        tuple(views.values()),
        tuple(catalogs.values()),
        tuple(functions),
    )


def merge(scripts: Sequence[Script], *, variables: Iterable[str] = ()) -> Project:
    """Make one project of scripts: tables declared once, jobs of different names.

    Args:
        scripts: In the order that decides which of two equal declarations counts.
        variables: Names of the variables that will be known when a job is submitted.
    """
    problems = [problem for script in scripts for problem in script.problems]
    tables = _merge_tables(scripts, problems)
    jobs = _merge_jobs(scripts, problems)
    problems += undeclared(jobs, tables)
    problems += several_writers(jobs, tables)
    problems += cycles(jobs)
    problems += missing_variables(scripts, frozenset(variables))
    return Project(
        scripts=tuple(scripts),
        tables=tuple(tables.values()),
        sources=_merge_sources(scripts, jobs),
        jobs=tuple(jobs),
        problems=tuple(problems),
    )


def _merge_tables(
    scripts: Iterable[Script], problems: list[Problem]
) -> dict[TableName, TableDefinition]:
    tables: dict[TableName, TableDefinition] = {}
    for table in (table for script in scripts for table in script.tables):
        known = tables.setdefault(table.name, table)
        if known is not table and contradicts(known, table):
            problems.append(declared_differently(known, table))
        if table.columns_known and not known.columns_known:
            tables[table.name] = table
    return tables


def _merge_jobs(scripts: Iterable[Script], problems: list[Problem]) -> list[JobDefinition]:
    jobs: dict[str, JobDefinition] = {}
    for job in (job for script in scripts for job in script.jobs):
        known = jobs.setdefault(job.name, job)
        if known is not job:
            problems.append(same_name(known, job))
    return list(jobs.values())


def _merge_sources(
    scripts: Iterable[Script], jobs: Iterable[JobDefinition]
) -> tuple[SourceDefinition, ...]:
    """One source for each key; what a script declares that another one only writes is none."""
    jobs = list(jobs)
    read = {key for job in jobs for key in job.sources}
    written = {flow.external_sink for job in jobs for flow in job.flows}
    sources: dict[tuple[str, ...], SourceDefinition] = {}
    for source in (source for script in scripts for source in script.sources):
        if source.asset_key in read or source.asset_key not in written:
            sources.setdefault(source.asset_key, source)
    return tuple(sources.values())

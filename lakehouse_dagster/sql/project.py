"""Puts the scripts of a project together and resolves names across them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Problem,
    Project,
    Script,
    Severity,
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
    beginning,
    unique,
)


def merge(scripts: Sequence[Script], *, catalog: str) -> Project:
    """Make one project of scripts: tables declared once, views of other scripts expanded.

    Args:
        scripts: In the order that decides which of two equal declarations counts.
        catalog: Name of the lake's catalog.
    """
    problems = [problem for script in scripts for problem in script.problems]
    tables = _merge_tables(scripts, problems)
    views = {
        view.name: view
        for script in scripts
        for view in script.views
        if not view.temporary and view.name.catalog == catalog
    }
    jobs = [_expand(job, views) for job in _merge_jobs(scripts, problems)]
    problems.extend(_undeclared(jobs, tables))
    sources: dict[tuple[str, ...], SourceDefinition] = {}
    for script in scripts:
        for source in script.sources:
            sources.setdefault(source.asset_key, source)
    return Project(
        scripts=tuple(scripts),
        tables=tuple(tables.values()),
        sources=tuple(sources.values()),
        jobs=tuple(jobs),
        problems=tuple(problems),
    )


def _merge_tables(
    scripts: Iterable[Script], problems: list[Problem]
) -> dict[TableName, TableDefinition]:
    tables: dict[TableName, TableDefinition] = {}
    for table in (table for script in scripts for table in script.tables):
        known = tables.setdefault(table.name, table)
        if known.columns_known and table.columns_known and known.shape != table.shape:
            problems.append(
                Problem(
                    location=table.location,
                    severity=Severity.ERROR,
                    message=f"The table {table.name.key} is declared differently at "
                    f"{known.location}.",
                    remedy="Declare it once, or everywhere alike.",
                )
            )
        if table.columns_known and not known.columns_known:
            tables[table.name] = table
    return tables


def _merge_jobs(scripts: Iterable[Script], problems: list[Problem]) -> list[JobDefinition]:
    jobs: dict[str, JobDefinition] = {}
    for job in (job for script in scripts for job in script.jobs):
        known = jobs.setdefault(job.name, job)
        if known is not job:
            problems.append(
                Problem(
                    location=job.location,
                    severity=Severity.ERROR,
                    message=f"Two jobs are named {job.name}; the other is at {known.location}.",
                    remedy="SET 'pipeline.name' to another name before one of them.",
                )
            )
    return list(jobs.values())


def _expand(job: JobDefinition, views: dict[TableName, ViewDefinition]) -> JobDefinition:
    """Replace views of other scripts among a job's reads by what they read."""
    flows = tuple(_expand_flow(flow, views) for flow in job.flows)
    if flows == job.flows:
        return job
    return replace(
        job,
        reads=unique(table for flow in flows for table in flow.reads),
        sources=unique(source for flow in flows for source in flow.sources),
        reads_itself=any(flow.reads_itself for flow in flows),
        dependencies_known=all(flow.dependencies_known for flow in flows),
        flows=flows,
    )


def _expand_flow(flow: Flow, views: dict[TableName, ViewDefinition]) -> Flow:
    tables, sources, known = list(flow.reads), list(flow.sources), flow.dependencies_known
    seen: set[TableName] = set()
    while found := [name for name in tables if name in views]:
        for name in found:
            place = tables.index(name)
            view = views[name]
            tables[place : place + 1] = [] if name in seen else view.reads
            sources.extend(view.sources)
            known = known and view.dependencies_known
            seen.add(name)
    return replace(
        flow,
        reads=unique(table for table in tables if table != flow.sink),
        sources=unique(sources),
        reads_itself=flow.reads_itself or flow.sink in tables,
        dependencies_known=known,
    )


def _undeclared(
    jobs: Iterable[JobDefinition], tables: dict[TableName, TableDefinition]
) -> list[Problem]:
    problems = []
    for job in jobs:
        for name in unique((*job.reads, *job.sinks)):
            if name not in tables:
                verb = "reads" if name in job.reads else "writes"
                problems.append(
                    Problem(
                        location=job.location,
                        severity=Severity.WARNING,
                        message=f"The job {job.name} {verb} {name.key}, which no script declares.",
                        remedy="Add its CREATE TABLE IF NOT EXISTS to a script, if it is not "
                        "made elsewhere.",
                        statement_start=beginning(job.statement),
                    )
                )
    return problems

"""Names of jobs: the script's own, else one that editing the script does not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakehouse_dagster.sql.model import JobDefinition, Severity
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.variables import fill_for_reading, placeholder_in

JOB_NAME = "pipeline.name"
_LONG = 200


def name_jobs(
    jobs: Sequence[JobDefinition], stem: str, variables: Mapping[str, str], report: Report
) -> tuple[JobDefinition, ...]:
    """Give the jobs without a name one that statements added to the script do not change.

    One of them has the file's name: the one that writes the table of that name, else the first.
    Each other is named after the file and the first table that it writes, with a number where
    that is taken. Of jobs with the same name only the first is kept; the others are errors.
    """
    named: dict[str, JobDefinition] = {}
    own = {job.name for job in jobs if job.name_is_explicit}
    for job, name in zip(jobs, _names(jobs, stem, own), strict=True):
        name = fill_for_reading(name, variables).text if job.name_is_explicit else name
        _remark(job, name, report)
        stands_for = placeholder_in(name) if job.name_is_explicit else None
        if stands_for is not None:
            report(
                job.statement,
                Severity.ERROR,
                f"The job's name depends on {stands_for}, which is not known beforehand.",
                f"SET '{JOB_NAME}' to a fixed text, or put the variable among the project's.",
            )
        elif name in named:
            report(
                job.statement,
                Severity.ERROR,
                f"Two jobs are named {name}; the other is at {named[name].location}.",
                f"SET '{JOB_NAME}' to another name before this one, or put both into one "
                "statement set.",
            )
        else:
            named[name] = replace(job, name=name)
    return tuple(named.values())


def _remark(job: JobDefinition, name: str, report: Report) -> None:
    """Say what becomes of a name that is hardly one."""
    what = None
    if not job.name_is_explicit:
        if JOB_NAME in job.settings:
            what = f"'{JOB_NAME}' is empty: the job is named {name}, after its file."
    elif len(name) > _LONG:
        what = f"The job's name has {len(name)} characters; most pages show only its beginning."
    elif not name.isprintable() or "/" in name or "\\" in name:
        what = (
            "The job's name holds line breaks, slashes or the like: Flink keeps it, and Dagster "
            "has _ and a hash in their stead."
        )
    if what is not None:
        report(job.statement, Severity.WARNING, what, f"SET '{JOB_NAME}' to a short plain name.")


def _names(jobs: Sequence[JobDefinition], stem: str, taken: set[str]) -> list[str]:
    unnamed = [job for job in jobs if not job.name_is_explicit]
    main = next((job for job in unnamed if _writes_table_named(job, stem)), None)
    main = main or (unnamed[0] if unnamed else None)
    if stem in taken:
        main = None
    taken = {*taken, stem}
    names = []
    for job in jobs:
        if job.name_is_explicit:
            names.append(job.name)
        elif job is main:
            names.append(stem)
        else:
            names.append(_free(f"{stem}_{_sink_name(job)}", taken))
            taken.add(names[-1])
    return names


def _writes_table_named(job: JobDefinition, stem: str) -> bool:
    return any(
        stem in (sink.table, sink.key, f"{sink.database}_{sink.table}") for sink in job.sinks
    )


def _free(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _sink_name(job: JobDefinition) -> str:
    for flow in job.flows:
        if flow.sink is not None:
            return flow.sink.table
        if flow.external_sink is not None:
            return flow.external_sink[-1]
    return "unknown"

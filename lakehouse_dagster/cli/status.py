"""``lakehouse status``: jobs and tables at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from lakehouse_dagster.cli.output import print_json, print_table, reports_errors, stdout_console
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.durations import in_words
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.status import (
    JobStatus,
    TableStatus,
    job_statuses,
    table_statuses,
)

if TYPE_CHECKING:
    from lakehouse_dagster.maintenance.status import TableFiles

_PATIENCE_SECONDS = 5.0
_COLOURS = {
    "RUNNING": "green",
    "DEGRADED": "yellow",
    "RESTARTING": "yellow",
    "FAILED": "red",
    "LOST": "red",
    "UNREACHABLE": "red",
}


@click.command()
@project_options
@click.option("--tables", "with_files", is_flag=True, help="Tables alone: files, due actions.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: see docs/command.md.")
@reports_errors
def status(module: str | None, lakehouse_name: str | None, with_files: bool, as_json: bool) -> None:
    """Show jobs (desired, observed, restarts, checkpoints) and tables (snapshot, age)."""
    lake = load_project(module, lakehouse_name)
    if with_files:
        _files(lake, as_json)
        return
    runtime = at_a_glance(lake.runtime)
    jobs = job_statuses(runtime)
    tables = table_statuses(runtime, tuple(lake.graph.tables))
    if as_json:
        print_json({"jobs": [asdict(j) for j in jobs], "tables": [asdict(t) for t in tables]})
    else:
        _show(jobs, tables)


def _files(lake: LoadedLakehouse, as_json: bool) -> None:
    """The files of all tables; the cluster is not asked."""
    from lakehouse_dagster.maintenance.status import table_files

    tables = table_files(lake.keeper, lake.lakehouse.maintenance, tuple(lake.graph.tables))
    if as_json:
        print_json({"tables": [asdict(table) for table in tables]})
    else:
        _show_files(tables)


def _show_files(tables: Sequence[TableFiles]) -> None:
    headers = ("table", "files", "bytes", "level 0", "small", "snapshots", "oldest")
    rows = [
        (
            table.name,
            _number(table.files),
            _number(table.bytes),
            _number(table.level0_files),
            _number(table.small_files),
            _number(table.snapshots),
            _ago(table.oldest_snapshot_age_seconds),
            _number(table.tags or None),
            _number(table.branches or None),
            _number(table.consumers or None),
            _due(table),
        )
        for table in tables
    ]
    print_table((*headers, "tags", "branches", "consumers", ""), rows, show_empty=False)


def _due(table: TableFiles) -> str:
    """What is to be done to it, what is not done and why, and what a person could do."""
    due = [f"{', '.join(table.due)} due."] if table.due else []
    return " ".join([*due, *table.held_back, *table.advice, table.problem or ""]).strip()


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def at_a_glance(runtime: Runtime) -> Runtime:
    """The same for somebody who waits: asks about every job, and does not wait long for answers.

    A cluster that is slower than that is shown as UNREACHABLE, with the reason.
    """
    cluster = runtime.cluster
    return replace(
        runtime,
        cluster=replace(
            cluster,
            connect_timeout_seconds=min(cluster.connect_timeout_seconds, _PATIENCE_SECONDS),
            read_timeout_seconds=min(cluster.read_timeout_seconds, _PATIENCE_SECONDS),
        ),
        policy=replace(runtime.policy, details_per_tick=max(1, len(runtime.jobs))),
    )


def _show(jobs: tuple[JobStatus, ...], tables: tuple[TableStatus, ...]) -> None:
    from rich.text import Text

    unreachable = {job.reason for job in jobs if job.observed == "UNREACHABLE"}
    for reason in sorted(unreachable):  # once, not at every job
        stdout_console().print(Text(f"{reason} Nothing is started meanwhile.\n", style="red"))
    print_table(
        ("job", "desired", "observed", "no.", "restarts", "checkpoint", ""),
        [
            (
                job.name,
                job.desired,
                Text(job.observed, style=_COLOURS.get(job.observed, "")),
                str(job.incarnation or ""),
                str(job.restarts),
                _ago(job.last_checkpoint_age_seconds),
                _why(job),
            )
            for job in jobs
        ],
    )
    click.echo()
    print_table(
        ("table", "snapshot", "committed", "watermark lag", ""),
        [
            (
                table.name,
                str(table.snapshot or ""),
                _ago(table.age_seconds),
                ""
                if table.watermark_lag_seconds is None
                else in_words(table.watermark_lag_seconds),
                table.problem or "",
            )
            for table in tables
        ],
        show_empty=False,
    )


def _why(job: JobStatus) -> str:
    """The present reason; the last error where the job is down because of it; what to do."""
    parts = [] if job.observed == "UNREACHABLE" else [job.reason]
    down = job.observed in ("ABSENT", "FAILED", "LOST") and job.desired == "RUNNING"
    if down and job.last_error:
        parts[0] = f"{job.reason}: {job.last_error}"
    if job.waits_for_a_person:
        parts.append(f"{job.attempts} attempts failed: waits for `lakehouse jobs start {job.name}`")
    elif down and job.attempts and job.next_attempt_at is not None:
        parts.append(f"attempt {job.attempts} failed, next at {job.next_attempt_at:%H:%M:%S} UTC")
    if job.orphaned:
        parts.append("ORPHANED: no script declares it any more")
    if job.outdated:
        parts.append(f"OUTDATED: `lakehouse jobs upgrade {job.name}` runs the changed script")
    if job.foreign:
        ids = ", ".join(job.foreign)
        parts.append(f"Flink job {ids} of its name is not ours: `lakehouse jobs adopt {job.name}`")
    return "; ".join(parts)


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f"{in_words(max(0.0, seconds))} ago"

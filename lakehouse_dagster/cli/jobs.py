"""``lakehouse jobs …``: the same actions as the Dagster jobs, for a shell."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict

import click

from lakehouse_dagster.cli.output import print_json, reports_errors
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.cli.status import at_a_glance
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.streaming.apply import Applied, apply, verb
from lakehouse_dagster.streaming.runtime import this_process
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.streaming.status import job_statuses
from lakehouse_dagster.streaming.stop import StoppedHow


@click.group()
def jobs() -> None:
    """Start, stop, restart or cancel streaming jobs."""


def _acts(name: str, help_text: str) -> None:
    """Add the command ``jobs NAME``; all of them take the same arguments."""

    @jobs.command(name, help=help_text)
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @project_options
    @click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")
    @click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
    @reports_errors
    def command(
        names: tuple[str, ...],
        module: str | None,
        lakehouse_name: str | None,
        dry_run: bool,
        as_json: bool,
        allow_empty_start: bool = False,
    ) -> None:
        lake = load_project(module, lakehouse_name)
        for job_name in names:
            lake.runtime.job(job_name)
        if dry_run:
            _say_plan(lake, name, names, as_json)
            return
        _do(lake, name, names, as_json, allow_empty_start)

    if name == "start":
        click.option(
            "--allow-empty-start",
            is_flag=True,
            help="Start from nothing if no restore point is left.",
        )(command)


_acts("start", "Start jobs, or adopt those that run; resume suspended ones.")
_acts("stop", "Stop jobs with a savepoint, from which the next start goes on.")
_acts("restart", "Stop jobs with a savepoint and start them from it.")
_acts("cancel", "Cancel jobs without a savepoint; their checkpoints are kept.")


def _say_plan(lake: LoadedLakehouse, name: str, names: tuple[str, ...], as_json: bool) -> None:
    seen = {job.name: job for job in job_statuses(at_a_glance(lake.runtime))}
    chosen = [seen[job] for job in dict.fromkeys(names)]
    if as_json:
        print_json(
            [
                {"job": j.name, "verb": name, "desired": j.desired, "observed": j.observed}
                for j in chosen
            ]
        )
        return
    for job in chosen:
        click.echo(f"would {name} {job.name}, which is {job.observed}: {job.reason}")


def _do(
    lake: LoadedLakehouse,
    name: str,
    names: tuple[str, ...],
    as_json: bool,
    allow_empty_start: bool,
) -> None:
    _show_progress()
    runtime = lake.runtime
    chosen = verb(name, allow_empty_start=allow_empty_start)
    for job_name in names:
        runtime.memory.reset_attempts(job_name)
    results = apply(
        runtime,
        [(job_name, chosen) for job_name in dict.fromkeys(names)],
        holder=this_process(f"lakehouse jobs {name}"),
    )
    if as_json:
        print_json([_as_data(result) for result in results])
    for result in results:
        if result.error is not None:
            click.echo(f"Error: {result.job}: {result.error}", err=True)
        elif not as_json:
            click.echo(_in_words(result))
    if any(result.error is not None for result in results):
        sys.exit(1)


class _OnStderr(logging.Handler):
    """Shows what is being done; how it ended is said once, at the end."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            click.echo(record.getMessage(), err=True)


def _show_progress() -> None:
    logger = logging.getLogger("lakehouse_dagster")
    logger.setLevel(logging.INFO)
    logger.handlers = [_OnStderr()]


def _as_data(result: Applied) -> dict[str, object]:
    outcome = asdict(result.outcome) if result.outcome is not None else {"job": result.job}
    return {**outcome, "error": str(result.error) if result.error is not None else None}


def _in_words(result: Applied) -> str:
    outcome = result.outcome
    if isinstance(outcome, StartOutcome):
        return (
            f"{outcome.job}: {outcome.how.value} as incarnation {outcome.incarnation} "
            f"(Flink job {outcome.flink_job_id}), {outcome.reason}"
        )
    assert outcome is not None
    if outcome.how is StoppedHow.STOPPED:
        return f"{outcome.job}: stopped with savepoint {outcome.savepoint_path}"
    if outcome.how is StoppedHow.CANCELLED:
        return f"{outcome.job}: cancelled; its checkpoints are kept"
    return f"{outcome.job}: did not run"

"""``lakehouse jobs …``: the same actions as the Dagster jobs, for a shell."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict

import click

from lakehouse_dagster.cli.output import print_json, reports_errors
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.streaming.apply import Applied, apply, verb
from lakehouse_dagster.streaming.runtime import this_process
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.streaming.status import job_statuses


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
    seen = {job.name: job for job in job_statuses(lake.runtime)}
    plan = [
        {"job": job, "verb": name, "desired": seen[job].desired, "observed": seen[job].observed}
        for job in dict.fromkeys(names)
    ]
    if as_json:
        print_json(plan)
        return
    for row in plan:
        click.echo("would {verb} {job}, which is {observed}".format(**row))


def _do(
    lake: LoadedLakehouse,
    name: str,
    names: tuple[str, ...],
    as_json: bool,
    allow_empty_start: bool,
) -> None:
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("lakehouse_dagster").setLevel(logging.INFO)
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
    else:
        for result in results:
            click.echo(_in_words(result), err=result.error is not None)
    if any(result.error is not None for result in results):
        sys.exit(1)


def _as_data(result: Applied) -> dict[str, object]:
    outcome = asdict(result.outcome) if result.outcome is not None else {"job": result.job}
    return {**outcome, "error": str(result.error) if result.error is not None else None}


def _in_words(result: Applied) -> str:
    outcome = result.outcome
    if outcome is None:
        return f"{result.job}: {result.error}"
    if isinstance(outcome, StartOutcome):
        return (
            f"{outcome.job}: {outcome.how.value} as incarnation {outcome.incarnation} "
            f"(Flink job {outcome.flink_job_id}), {outcome.reason}"
        )
    if outcome.savepoint_path is not None:
        return f"{outcome.job}: stopped, savepoint {outcome.savepoint_path}"
    return f"{outcome.job}: does not run"

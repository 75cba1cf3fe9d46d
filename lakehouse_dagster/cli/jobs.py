"""``lakehouse jobs …``: the same actions as the Dagster jobs, for a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from lakehouse_dagster.cli.output import (
    names_or_all,
    print_json,
    reports_errors,
    show_progress,
)
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.cli.status import at_a_glance
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.streaming.apply import Allowed, Applied, apply, verb
from lakehouse_dagster.streaming.forget import rename as rename_job
from lakehouse_dagster.streaming.observe import Verb
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.outcomes import in_words
from lakehouse_dagster.streaming.retention import tidy
from lakehouse_dagster.streaming.runtime import this_process
from lakehouse_dagster.streaming.status import job_statuses


@click.group()
def jobs() -> None:
    """Start, stop, upgrade, adopt, rename or forget streaming jobs."""


_EMPTY_START = click.option(
    "--allow-empty-start", is_flag=True, help="Start from nothing if no restore point is left."
)
_STATE_LOSS = click.option(
    "--allow-state-loss", is_flag=True, help="Go on although some kept state does not fit."
)


def _acts(name: Verb, help_text: str, *options: Callable[[Any], Any]) -> None:
    """Add the command ``jobs NAME``; all of them take the same arguments."""

    @jobs.command(name.value, help=help_text)
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
        allow_state_loss: bool = False,
    ) -> None:
        allowed = Allowed(empty_start=allow_empty_start, state_loss=allow_state_loss)
        _act(load_project(module, lakehouse_name), name, names, allowed, dry_run, as_json)

    for option in options:
        option(command)


_acts(
    Verb.START,
    "Start jobs, or adopt those that run; resume suspended ones.",
    _EMPTY_START,
    _STATE_LOSS,
)
_acts(Verb.STOP, "Stop (suspend) jobs with a savepoint, from which the next start goes on.")
_acts(Verb.RESTART, "Stop jobs with a savepoint and start them from it.", _STATE_LOSS)
_acts(
    Verb.UPGRADE,
    "Bring changed scripts to the cluster with their state; undone if they do not come to work.",
    _STATE_LOSS,
)
_acts(Verb.CANCEL, "Cancel jobs without a savepoint; their checkpoints are kept.")
_acts(Verb.FORGET, "Forget jobs that do not run, such as those whose script is gone.")


@jobs.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@project_options
@click.option("--all", "every", is_flag=True, help="All of ours that run, after a lost database.")
@click.option("--job-id", "flink_job_id", help="Flink job to adopt, if its name is another.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@reports_errors
def adopt(
    names: tuple[str, ...],
    module: str | None,
    lakehouse_name: str | None,
    every: bool,
    flink_job_id: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take over jobs that run: started by hand, or lost by the system database.

    Nothing is submitted and nothing is stopped.
    """
    names_or_all(names, every, "jobs")
    if flink_job_id and len(names) != 1:
        raise click.UsageError("--job-id goes with exactly one NAME.")
    lake = load_project(module, lakehouse_name)
    allowed = Allowed(flink_job_id=flink_job_id, foreign=not every)
    chosen = tuple(lake.runtime.jobs) if every else names
    _act(lake, Verb.ADOPT, chosen, allowed, dry_run, as_json)


@jobs.command()
@click.argument("old")
@click.argument("new")
@project_options
@click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")
@reports_errors
def rename(
    old: str, new: str, module: str | None, lakehouse_name: str | None, dry_run: bool
) -> None:
    """Let job NEW of the scripts go on with what is on record of OLD.

    For a changed pipeline.name: the running job is known under its new name, and keeps its state.
    """
    lake = load_project(module, lakehouse_name)
    lake.runtime.job(new)
    if dry_run:
        click.echo(f"would let {new} go on with what is on record of {old}")
        return
    rename_job(lake.runtime, old, new, holder=this_process("lakehouse jobs rename"))
    click.echo(f"{new}: goes on with what was on record of {old}")


@jobs.command("tidy")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@project_options
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; delete nothing.")
@reports_errors
def tidy_command(
    names: tuple[str, ...], module: str | None, lakehouse_name: str | None, dry_run: bool
) -> None:
    """Delete savepoints and checkpoints that newer ones have superseded (all jobs by default)."""
    lake = load_project(module, lakehouse_name)
    chosen = names or tuple(sorted(lake.runtime.jobs))
    for name in chosen:
        lake.runtime.job(name)
    for done in tidy(lake.runtime, chosen, dry_run=dry_run):
        if done.skipped:
            click.echo(f"{done.job}: {done.skipped}", err=True)
        for point in done.deleted:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {point.path}: {point.reason}")


def _act(
    lake: LoadedLakehouse,
    name: Verb,
    names: tuple[str, ...],
    allowed: Allowed,
    dry_run: bool,
    as_json: bool,
) -> None:
    runtime, chosen = lake.runtime, verb(name, allowed)
    for job_name in names:
        job_or_orphan(runtime, job_name) if chosen.on_orphans else runtime.job(job_name)
    if dry_run:
        _say_plan(lake, name, names, as_json)
        return
    show_progress()
    for job_name in names:
        runtime.memory.reset_attempts(job_name)
    results = apply(
        runtime,
        [(job_name, chosen) for job_name in dict.fromkeys(names)],
        holder=this_process(f"lakehouse jobs {name.value}"),
    )
    if as_json:
        print_json([_as_data(result) for result in results])
    for result in results:
        if result.error is not None:
            click.echo(f"Error: {result.job}: {result.error}", err=True)
        elif not as_json and result.outcome is not None:
            click.echo(in_words(result.outcome))
    if any(result.error is not None for result in results):
        sys.exit(1)


def _say_plan(lake: LoadedLakehouse, name: Verb, names: tuple[str, ...], as_json: bool) -> None:
    seen = {job.name: job for job in job_statuses(at_a_glance(lake.runtime))}
    chosen = [seen[job] for job in dict.fromkeys(names) if job in seen]
    if as_json:
        print_json(
            [
                {"job": j.name, "verb": name.value, "desired": j.desired, "observed": j.observed}
                for j in chosen
            ]
        )
        return
    for job in chosen:
        click.echo(f"would {name.value} {job.name}, which is {job.observed}: {job.reason}")


def _as_data(result: Applied) -> dict[str, object]:
    outcome = asdict(result.outcome) if result.outcome is not None else {"job": result.job}
    return {**outcome, "error": str(result.error) if result.error is not None else None}

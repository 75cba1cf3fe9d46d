"""``lakehouse tables …``: what changes a table's layout, its jobs standing still meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakehouse_dagster.cli.named_tables import existing
from lakehouse_dagster.cli.output import (
    INTERRUPTED,
    answers_ctrl_c,
    print_json,
    reports_errors,
    show_progress,
)
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.streaming.runtime import this_process

if TYPE_CHECKING:
    from lakehouse_dagster.maintenance.dedicated import Moved
    from lakehouse_dagster.maintenance.rescale import Rescaled
    from lakehouse_dagster.paimon.file_facts import TableFacts
    from lakehouse_dagster.streaming.runtime import Runtime

F = TypeVar("F", bound=Callable[..., Any])
Outcome = TypeVar("Outcome", bound="Moved | Rescaled")


@click.group()
def tables() -> None:
    """Give tables a compaction job, or another number of buckets."""


def _of_one_table(function: F) -> F:
    """What all these commands take; ``_act`` gets all of it but the table as it is."""
    function = reports_errors(function)
    function = click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")(
        function
    )
    function = click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")(
        function
    )
    return click.argument("table")(project_options(function))


@tables.command()
@_of_one_table
def dedicate(table: str, **given: Any) -> None:
    """Let a compaction job compact TABLE, whose policy says compaction: dedicated.

    Its writers are stopped with a savepoint and go on, with write-only, where they were.
    """
    from lakehouse_dagster.maintenance.dedicated import compactor_to_begin
    from lakehouse_dagster.maintenance.dedicated import dedicate as act

    def planned(runtime: Runtime, facts: TableFacts) -> str:
        return (
            f"would be made write-only, and compacted by {compactor_to_begin(runtime, facts).name}"
        )

    def done(moved: Moved) -> str:
        return f"{moved.compaction_job} compacts it"

    _act(act, table, planned, done, **given)


@tables.command()
@_of_one_table
def undedicate(table: str, **given: Any) -> None:
    """End the compaction job of TABLE: its writers compact it themselves again."""
    from lakehouse_dagster.maintenance.dedicated import compactor_to_end
    from lakehouse_dagster.maintenance.dedicated import undedicate as act

    def planned(runtime: Runtime, facts: TableFacts) -> str:
        job = compactor_to_end(runtime, facts.table)
        ends = f", and {job.name} would end" if job is not None else ""
        return f"would be compacted by its writers again{ends}"

    def done(_: Moved) -> str:
        return "its writers compact it"

    _act(act, table, planned, done, **given)


@tables.command()
@click.option("--buckets", required=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE[,COLUMN=VALUE...]",
    help="Only this partition; may be given several times.",
)
@_of_one_table
def rescale(table: str, buckets: int, partitions: tuple[str, ...], **given: Any) -> None:
    """Rewrite TABLE into another number of buckets: about 1 GB a bucket is good.

    Its jobs are stopped with a savepoint, and resumed when the rows were found to be the same.
    """
    from lakehouse_dagster.maintenance.rescale import chosen_partitions, refuse_unfit
    from lakehouse_dagster.maintenance.rescale import rescale as act

    def planned(_: Runtime, facts: TableFacts) -> str:
        refuse_unfit(facts, buckets)
        chosen_partitions(facts, chosen)
        size = f"{facts.size_bytes} bytes in {facts.files} files"
        return f"({size}) would get {buckets} buckets instead of {facts.total_buckets}"

    def done(rescaled: Rescaled) -> str:
        return (
            f"{rescaled.to_buckets} buckets instead of {rescaled.from_buckets}, {rescaled.rows} "
            f"rows in {rescaled.partitions} partitions as before"
        )

    chosen = [_partition(text) for text in partitions] or None
    _act(partial(act, buckets=buckets, partitions=chosen), table, planned, done, **given)


def _partition(text: str) -> dict[str, str | None]:
    parts = [part.partition("=") for part in text.split(",")]
    if not all(column and sign for column, sign, _ in parts):
        raise click.UsageError(f"--partition is {text!r}: write COLUMN=VALUE.")
    return {column: value for column, _, value in parts}


def _act(
    act: Callable[..., Outcome],
    table: str,
    planned: Callable[[Runtime, TableFacts], str],
    done: Callable[[Outcome], str],
    *,
    module: str | None,
    lakehouse_name: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Act on the table and say what came of it, or only what would be done."""
    from lakehouse_dagster.maintenance.damage import Damage
    from lakehouse_dagster.maintenance.writers import jobs_of_table

    lake = load_project(module, lakehouse_name)
    existing(lake, [table])
    if dry_run:
        what = planned(lake.runtime, Damage(lake.keeper).seen_in(lake.keeper.facts(table)))
        jobs = jobs_of_table(lake.runtime, table)
        if as_json:
            print_json({"table": table, "planned": what, "jobs": jobs})
        else:
            click.echo(f"{table} {what}; its jobs: {', '.join(jobs) or 'none'}")
        return
    show_progress()
    command = click.get_current_context().info_name
    with answers_ctrl_c("Cancelling: the table is put back, and jobs that were stopped go on."):
        try:
            outcome = act(lake.keeper, table, holder=this_process(f"lakehouse tables {command}"))
        except KeyboardInterrupt:
            click.echo("Cancelled.", err=True)
            sys.exit(INTERRUPTED)
    if as_json:
        print_json(asdict(outcome))
        return
    resumed = f"; resumed: {', '.join(outcome.writers)}" if outcome.writers else ""
    click.echo(f"{table}: {done(outcome)}{resumed}")
    for note in outcome.notes:
        click.echo(note)

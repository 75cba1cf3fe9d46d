"""``lakehouse tables …``: what changes a table's layout, its jobs standing still meanwhile."""

from __future__ import annotations

from dataclasses import asdict

import click

from lakehouse_dagster.cli.output import print_json, reports_errors, show_progress
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.streaming.runtime import this_process


@click.group()
def tables() -> None:
    """Give tables a compaction job, or another number of buckets."""


_DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")


@tables.command()
@click.argument("table")
@project_options
@_DRY_RUN
@_JSON
@reports_errors
def dedicate(
    table: str, module: str | None, lakehouse_name: str | None, dry_run: bool, as_json: bool
) -> None:
    """Let a compaction job compact TABLE, whose policy says compaction: dedicated.

    Its writers are stopped with a savepoint and go on, with write-only, where they were.
    """
    from lakehouse_dagster.maintenance.dedicated import dedicate as act

    lake = load_project(module, lakehouse_name)
    if dry_run:
        _say_plan(lake, table, "would be made write-only")
        return
    show_progress()
    moved = act(lake.keeper, table, holder=this_process("lakehouse tables dedicate"))
    if as_json:
        print_json(asdict(moved))
        return
    click.echo(f"{table}: {moved.compaction_job} compacts it{_resumed(moved.writers)}")
    _notes(moved.notes)


@tables.command()
@click.argument("table")
@project_options
@_DRY_RUN
@_JSON
@reports_errors
def undedicate(
    table: str, module: str | None, lakehouse_name: str | None, dry_run: bool, as_json: bool
) -> None:
    """End the compaction job of TABLE: its writers compact it themselves again."""
    from lakehouse_dagster.maintenance.dedicated import undedicate as act

    lake = load_project(module, lakehouse_name)
    if dry_run:
        _say_plan(lake, table, "would be compacted by its writers again")
        return
    show_progress()
    moved = act(lake.keeper, table, holder=this_process("lakehouse tables undedicate"))
    if as_json:
        print_json(asdict(moved))
        return
    click.echo(f"{table}: its writers compact it{_resumed(moved.writers)}")
    _notes(moved.notes)


@tables.command()
@click.argument("table")
@click.option("--buckets", required=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE[,COLUMN=VALUE...]",
    help="Only this partition; may be given several times.",
)
@project_options
@_DRY_RUN
@_JSON
@reports_errors
def rescale(
    table: str,
    buckets: int,
    partitions: tuple[str, ...],
    module: str | None,
    lakehouse_name: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewrite TABLE into another number of buckets: about 1 GB a bucket is good.

    Its jobs are stopped with a savepoint, and resumed when the rows were found to be the same.
    """
    from lakehouse_dagster.maintenance.rescale import rescale as act

    chosen = [_partition(text) for text in partitions] or None
    lake = load_project(module, lakehouse_name)
    if dry_run:
        facts = lake.keeper.facts(table)
        size = f"{facts.size_bytes} bytes in {facts.files} files"
        _say_plan(
            lake, table, f"({size}) would get {buckets} buckets instead of {facts.total_buckets}"
        )
        return
    show_progress()
    done = act(
        lake.keeper,
        table,
        buckets,
        partitions=chosen,
        holder=this_process("lakehouse tables rescale"),
    )
    if as_json:
        print_json(asdict(done))
        return
    click.echo(
        f"{table}: {done.to_buckets} buckets instead of {done.from_buckets}, {done.rows} rows in "
        f"{done.partitions} partitions as before{_resumed(done.writers)}"
    )
    _notes(done.notes)


def _partition(text: str) -> dict[str, str | None]:
    parts = [part.partition("=") for part in text.split(",")]
    if not all(column and sign for column, sign, _ in parts):
        raise click.UsageError(f"--partition is {text!r}: write COLUMN=VALUE.")
    return {column: value for column, _, value in parts}


def _say_plan(lake: LoadedLakehouse, table: str, what: str) -> None:
    lake.keeper.facts(table)  # refuses a table that is not there
    jobs = [
        name
        for name, job in sorted(lake.runtime.jobs.items())
        if table in (*job.sink_keys, *job.compacts)
    ]
    click.echo(f"{table} {what}; its jobs: {', '.join(jobs) or 'none'}")


def _resumed(writers: tuple[str, ...]) -> str:
    return f"; resumed: {', '.join(writers)}" if writers else ""


def _notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        click.echo(note)

"""``lakehouse discover``: tables of the catalog, for the next time that Dagster loads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

from lakehouse_dagster.cli.output import print_json, reports_errors
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.lakehouse import NOBODY_LOOKED


@click.command()
@project_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document: see docs/command.md.")
@reports_errors
def discover(module: str | None, lakehouse_name: str | None, as_json: bool) -> None:
    """Look into the catalog and keep its tables, so that Dagster shows those in no script.

    Which tables are looked for is said by the lakehouse (discover). Dagster shows them when it
    next loads the code location.
    """
    with _without_being_asked_to_look():
        lake = load_project(module, lakehouse_name)
    found = lake.discover()
    in_scripts = {table.name.key for table in lake.project.tables}
    new = [name for name in found.tables if name not in in_scripts]
    if as_json:
        print_json(
            {
                "found_at": found.found_at.isoformat(),
                "tables": list(found.tables),
                "in_no_script": new,
                "problems": dict(found.problems),
            }
        )
        return
    click.echo(f"{len(found.tables)} tables found, {len(new)} of them in no script.")
    for name in new:
        click.echo(f"  {name}")
    for name, problem in found.problems.items():
        click.echo(f"{name} could not be read: {problem}", err=True)


@contextmanager
def _without_being_asked_to_look() -> Iterator[None]:
    """Loading warns that nobody has looked into the catalog yet; we are about to."""
    logger = logging.getLogger("lakehouse_dagster")

    def others(record: logging.LogRecord) -> bool:
        return record.msg != NOBODY_LOOKED

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)

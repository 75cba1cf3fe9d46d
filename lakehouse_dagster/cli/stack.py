"""``lakehouse stack …``: the local Flink with its SQL Gateway, alone.

With ``--json`` every command prints one document on stdout (see docs/command.md); progress and
errors go to stderr.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakehouse_dagster.cli.output import print_json, print_table, reports_errors
from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.local.engines import DEFAULT_ENGINE, engine_named

if TYPE_CHECKING:
    from lakehouse_dagster.local.stack import LocalStack, StackStatus

MIB = 1024 * 1024

_F = TypeVar("_F", bound=Callable[..., Any])


def _known_engine(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return engine_named(value).name
    except LakehouseError as error:
        raise click.BadParameter(str(error)) from error


def _stack_options(function: _F) -> _F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option(
            "--folder",
            type=click.Path(file_okay=False, path_type=Path),
            envvar="LAKEHOUSE_STACK_FOLDER",
            help="The stack's folder [default: .lakehouse/ENGINE here].",
        ),
        click.option(
            "--engine",
            default=DEFAULT_ENGINE,
            show_default=True,
            callback=_known_engine,
            help="Which Flink, with the Paimon made for it.",
        ),
    ):
        function = option(function)
    return function


@click.group()
def stack() -> None:
    """The local Flink stack alone: JobManager, TaskManager and SQL Gateway in one folder."""


@stack.command()
@_stack_options
@click.option("--slots", type=click.IntRange(min=1), default=8, show_default=True)
@click.option(
    "--checkpoint-interval",
    "checkpoint_interval_seconds",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Paimon commits one snapshot a checkpoint.",
)
@click.option("--rest-port", type=click.IntRange(1, 65535), help="[default: a free one]")
@click.option("--sql-gateway-port", type=click.IntRange(1, 65535), help="[default: a free one]")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched and started.")
@reports_errors
def up(
    engine: str,
    folder: Path | None,
    as_json: bool,
    slots: int,
    checkpoint_interval_seconds: float,
    rest_port: int | None,
    sql_gateway_port: int | None,
    dry_run: bool,
) -> None:
    """Start the stack, or what is missing of it; a running one is adopted as it is."""
    from lakehouse_dagster.local.fetch import missing
    from lakehouse_dagster.local.progress import progress_to

    local = _stack(
        engine,
        folder,
        slots=slots,
        checkpoint_interval_seconds=checkpoint_interval_seconds,
        rest_port=rest_port,
        sql_gateway_port=sql_gateway_port,
    )
    if not dry_run:
        _show(local.up(progress_to()), as_json)
        return
    start = [process.name for process in local.status().processes if not process.running]
    plan = {"fetch": list(missing(engine)) if start else [], "start": start}
    if as_json:
        print_json(plan)
    else:
        click.echo(f"would fetch: {', '.join(plan['fetch']) or 'nothing'}")
        click.echo(f"would start: {', '.join(plan['start']) or 'nothing'}")


@stack.command()
@_stack_options
@click.option("--dry-run", is_flag=True, help="Say what would be stopped.")
@reports_errors
def down(engine: str, folder: Path | None, as_json: bool, dry_run: bool) -> None:
    """Stop the stack's own processes; its files stay."""
    from lakehouse_dagster.local.progress import progress_to

    local = _stack(engine, folder)
    if not dry_run:
        local.down(progress_to())
        _show(local.status(), as_json)
        return
    stop = [process.name for process in local.status().processes if process.running]
    if as_json:
        print_json({"stop": stop})
    else:
        click.echo(f"would stop: {', '.join(stop) or 'nothing'}")


@stack.command()
@_stack_options
@reports_errors
def status(engine: str, folder: Path | None, as_json: bool) -> None:
    """Show what runs, where, and how much memory it holds."""
    _show(_stack(engine, folder).status(), as_json)


@stack.command()
@_stack_options
@click.argument("service", required=False)
@click.option("-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True)
@reports_errors
def logs(engine: str, folder: Path | None, as_json: bool, service: str | None, lines: int) -> None:
    """Show the ends of the logs.

    SERVICE is jobmanager, taskmanager or sql-gateway; all of them when none is named.
    """
    found = _stack(engine, folder).logs(service, lines=lines)
    if as_json:
        print_json([dataclasses.asdict(log) for log in found])
        return
    for log in found:
        click.secho(f"==> {log.path} <==", bold=True)
        for line in log.lines:
            click.echo(line)
    if not found:
        click.echo("no logs yet", err=True)


def default_folder(engine: str) -> Path:
    """Where a stack lives when no folder is named: below the current folder, one an engine."""
    return Path.cwd() / ".lakehouse" / engine


def _stack(engine: str, folder: Path | None, **options: Any) -> LocalStack:
    from lakehouse_dagster.local.stack import LocalStack

    return LocalStack(folder or default_folder(engine), engine, **options)


def _show(found: StackStatus, as_json: bool) -> None:
    if as_json:
        document = {
            **dataclasses.asdict(found),
            "running": found.running,
            "resident_bytes": found.resident_bytes,
        }
        print_json(document)
        return
    from rich.text import Text

    rows = []
    for process in found.processes:
        style, word = ("green", "running") if process.running else ("red", "not running")
        memory = f"{process.resident_bytes / MIB:.0f} MiB" if process.resident_bytes else ""
        rows.append((process.name, str(process.pid or ""), Text(word, style=style), memory))
    print_table(("process", "pid", "state", "memory"), rows)
    for name, value in (
        ("engine", found.engine),
        ("Flink", found.rest_url),
        ("SQL Gateway", found.sql_gateway_url),
        ("warehouse", str(found.warehouse)),
    ):
        if value:
            click.echo(f"{name}: {value}")

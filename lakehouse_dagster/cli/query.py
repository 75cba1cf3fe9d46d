"""``lakehouse query``: look into any layer, at any version, through the SQL Gateway."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from lakehouse_dagster.cli.output import print_json, reports_errors
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import StatementResult, create_catalog, use_catalog
from lakehouse_dagster.lakehouse import LoadedLakehouse

_FORMATS = ("table", "csv", "json", "arrow")


@click.command()
@click.argument("sql")
@project_options
@click.option(
    "--at",
    multiple=True,
    metavar="TABLE=SNAPSHOT",
    help="Read a table as it was at a snapshot, such as --at ods.orders=7; repeatable.",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--output", type=click.Path(dir_okay=False), help="File for --format arrow (IPC file format)."
)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Rows.")
@click.option("--timeout", type=click.FloatRange(1), default=120.0, help="Seconds.")
@reports_errors
def query(
    sql: str,
    module: str | None,
    lakehouse_name: str | None,
    at: tuple[str, ...],
    form: str,
    as_json: bool,
    output: str | None,
    limit: int,
    timeout: float,
) -> None:
    """Run one SELECT as a batch query and print its rows."""
    if (form == "arrow") != (output is not None):
        raise click.UsageError("--format arrow and --output FILE go together.")
    lake = load_project(module, lakehouse_name)
    result = run_query(lake, sql, at=_versions(at), limit=limit, timeout_seconds=timeout)
    if as_json or form == "json":
        print_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
    elif form == "csv":
        _as_csv(result)
    elif output is not None:
        _as_arrow(result, output)
    else:
        _as_table(result)
    if result.truncated:
        click.echo(f"Only the first {limit} rows are shown (--limit).", err=True)


def _versions(at: tuple[str, ...]) -> dict[str, int]:
    versions = {}
    for item in at:
        table, _, snapshot = item.partition("=")
        if table.count(".") != 1 or not snapshot.isdigit():
            raise click.BadParameter(f"{item!r} is not database.table=snapshot.", param_hint="--at")
        versions[table] = int(snapshot)
    return versions


def run_query(
    lake: LoadedLakehouse,
    sql: str,
    *,
    at: Mapping[str, int],
    limit: int,
    timeout_seconds: float,
) -> StatementResult:
    """Run one reading statement in batch mode; anything else is refused.

    ``at`` maps ``database.table`` to the snapshot that it is read at.
    """
    from lakehouse_dagster.sql.model import StatementKind
    from lakehouse_dagster.sql.statements import split

    statements = split(sql, "the query")
    if len(statements) != 1 or statements[0].kind is not StatementKind.QUERY:
        raise ConfigurationError(
            "This command runs one reading statement (SELECT, SHOW, DESCRIBE, EXPLAIN).",
            remedy="Put changes into a script.",
        )
    catalog = lake.lakehouse.catalog
    with lake.lakehouse.flink.sql_gateway() as gateway:
        session = gateway.open_session("lakehouse-query", {"execution.runtime-mode": "batch"})
        try:
            session.execute(create_catalog(catalog.name, catalog.flink_options()))
            session.execute(use_catalog(catalog.name))
            return session.execute(
                statements[0].text,
                config={
                    "execution.runtime-mode": "batch",
                    **{
                        f"paimon.{catalog.name}.{table}.scan.snapshot-id": str(snapshot)
                        for table, snapshot in at.items()
                    },
                },
                timeout_seconds=timeout_seconds,
                max_rows=limit,
            )
        finally:
            session.delete()


def _as_csv(result: StatementResult) -> None:
    import csv

    writer = csv.writer(sys.stdout)
    writer.writerow(result.columns)
    writer.writerows(result.rows)


def _as_table(result: StatementResult) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    view = Table(*(Column(Text(name)) for name in result.columns), box=None)
    for row in result.rows:
        view.add_row(*(Text("NULL" if v is None else str(v)) for v in row))
    Console().print(view)


def _as_arrow(result: StatementResult, output: str) -> None:
    import pyarrow as pa

    columns = list(zip(*result.rows, strict=True)) or [() for _ in result.columns]
    table = pa.table(
        {name: list(values) for name, values in zip(result.columns, columns, strict=True)}
    )
    with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)

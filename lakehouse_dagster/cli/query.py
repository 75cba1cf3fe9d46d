"""``lakehouse query``: look into any layer, at any version, through the SQL Gateway."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import click

from lakehouse_dagster.cli.output import print_json, print_table, reports_errors
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.errors import ConfigurationError, SnapshotNotFoundError
from lakehouse_dagster.flink import StatementResult, create_catalog, use_catalog
from lakehouse_dagster.lakehouse import LoadedLakehouse

_VERSION = re.compile(r"(?P<table>[^.=\s]+\.[^.=\s]+)=(?P<snapshot>[0-9]{1,18})")
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
    versions = _versions(at)
    lake = load_project(module, lakehouse_name)
    result = run_query(lake, sql, at=versions, limit=limit, timeout_seconds=timeout)
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
    versions: dict[str, int] = {}
    for item in at:
        match = _VERSION.fullmatch(item)
        if match is None:
            raise click.BadParameter(f"{item!r} is not database.table=snapshot.", param_hint="--at")
        if match["table"] in versions:
            raise click.BadParameter(f"{match['table']} is named twice.", param_hint="--at")
        versions[match["table"]] = int(match["snapshot"])
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

    ``at`` maps ``database.table`` to the snapshot that it is read at. Raises ``CatalogError`` when
    there is no such table or snapshot: Flink would say nothing of a misspelt name, and read the
    newest.
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
    for table, snapshot in at.items():
        _require_snapshot(lake, table, snapshot)
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


def _require_snapshot(lake: LoadedLakehouse, name: str, snapshot_id: int) -> None:
    table = lake.lakehouse.catalog.open().table(name)
    if table.snapshot(snapshot_id) is None:
        raise SnapshotNotFoundError(
            f"The table {name} has no snapshot {snapshot_id}.",
            remedy=f"Its newest is {table.latest_snapshot_id()}; old ones expire.",
        )


def _as_csv(result: StatementResult) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows(result.rows)


def _as_table(result: StatementResult) -> None:
    rows = [["NULL" if value is None else str(value) for value in row] for row in result.rows]
    print_table(result.columns, rows)


def _as_arrow(result: StatementResult, output: str) -> None:
    import pyarrow as pa

    arrays = [
        _arrow_column([row[n] for row in result.rows], kind)
        for n, kind in enumerate(result.column_types)
    ]
    table = pa.table(arrays, names=list(result.columns))
    with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _arrow_column(values: list[Any], kind: str) -> Any:
    """A column of the Arrow type that belongs to a Flink type; nested ones by their values."""
    import pyarrow as pa

    wanted = _arrow_type(kind)
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, TypeError, ValueError):  # a value that was left as text
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    match = re.fullmatch(r"(\w+)(?:\((\d+)(?:, (\d+))?\))?", kind)
    name, precision, scale = match.groups() if match else (kind, None, None)
    if name == "DECIMAL" and precision is not None:
        return pa.decimal128(int(precision), int(scale or 0))
    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "CHAR": pa.string(),
        "VARCHAR": pa.string(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "VARBINARY": pa.binary(),
        "BYTES": pa.binary(),
        "DATE": pa.date32(),
        "TIME": pa.time64("us"),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    }.get(name)

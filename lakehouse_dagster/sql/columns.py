"""What the columns of tables and sources stand for in lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lakehouse_dagster.sql.lineage import RelationColumns
from lakehouse_dagster.sql.model import (
    Certainty,
    Column,
    ColumnKind,
    ColumnLineage,
    ColumnOrigin,
    SourceDefinition,
    TableDefinition,
    TableName,
)
from lakehouse_dagster.sql.scanner import scan

_AUDIT_LOG = "audit_log"
_ROW_KIND = "rowkind"


def of_table(table: TableDefinition) -> RelationColumns:
    """A table of the lake: each column is itself."""
    columns = None
    if table.columns_known:
        columns = tuple(
            ColumnLineage(column.name, (ColumnOrigin(table.name, None, column.name),))
            for column in table.columns
        )
    fields = row_fields(table.columns) if columns is not None else ()
    return RelationColumns(columns, base=(table.name, None), fields=fields)


def of_source(
    source: SourceDefinition, computed: Mapping[str, tuple[str, ...]] | None
) -> RelationColumns:
    """A source: computed columns are made from the columns that their expressions name.

    Args:
        computed: These names by computed column; None if the expressions are not at hand.
    """

    def lineage(column: Column) -> ColumnLineage:
        names: tuple[str, ...] = (column.name,)
        certainty = Certainty.EXACT
        if column.kind is ColumnKind.COMPUTED:
            names = (computed or {}).get(column.name, ())
            certainty = Certainty.EXACT if computed is not None else Certainty.UNKNOWN
        origins = tuple(ColumnOrigin(None, source.asset_key, name) for name in names)
        return ColumnLineage(column.name, origins, certainty)

    known = tuple(lineage(column) for column in source.columns) if source.columns else None
    fields = row_fields(source.columns)
    return RelationColumns(known, base=(None, source.asset_key), fields=fields)


def of_system_table(name: TableName, table: object) -> RelationColumns:
    """``t$audit_log`` has the columns of t and the kind of change; others have their own."""
    if not name.table.endswith(f"${_AUDIT_LOG}") or not isinstance(table, TableDefinition):
        return RelationColumns(None)
    known = of_table(table).columns
    return RelationColumns((ColumnLineage(_ROW_KIND, ()), *known) if known else None)


def row_fields(columns: Iterable[Column]) -> tuple[tuple[str, str], ...]:
    """The fields of ROW columns, of ROWs in ROWs too, each with the column that it is in."""
    return tuple(
        (field, column.name)
        for column in columns
        if column.type[:3].upper() == "ROW"
        for field in _fields(column.type)
    )


def _fields(row: str) -> Iterator[str]:
    opened: list[bool] = []  # of each open bracket, whether it is a ROW's
    before, name_comes = "", False
    for token in scan(row):
        if token.is_trivia:
            continue
        text = token.text
        if name_comes:
            name_comes = False
            if all(opened):
                yield token.content
        elif text in ("<", "("):
            opened.append(before.upper() == "ROW")
            name_comes = opened[-1]
        elif text in (">", ")") and opened:
            opened.pop()
        elif text == "," and opened:
            name_comes = opened[-1]
        before = text


def writable(columns: tuple[Column, ...]) -> tuple[str, ...] | None:
    """The columns that an INSERT writes, in order; None where METADATA may or may not be one."""
    if any(column.kind is ColumnKind.METADATA for column in columns):
        return None
    return tuple(column.name for column in columns if column.kind is ColumnKind.PHYSICAL) or None

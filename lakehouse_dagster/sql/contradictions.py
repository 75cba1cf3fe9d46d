"""Declarations of one table that do not agree."""

from __future__ import annotations

from lakehouse_dagster.sql.model import Problem, Severity, TableDefinition


def contradicts(known: TableDefinition, table: TableDefinition) -> bool:
    """Whether two declarations of a table differ in what both of them know."""
    comparable = known.columns_known and table.columns_known
    made_by_query = known.filled_by is not None or table.filled_by is not None
    return comparable and not made_by_query and known.shape != table.shape


def declared_differently(known: TableDefinition, table: TableDefinition) -> Problem:
    """The error at the second of two declarations."""
    return Problem(
        table.location,
        Severity.ERROR,
        f"The table {table.name.key} is declared differently at {known.location}.",
        "Declare it once, or everywhere alike.",
    )

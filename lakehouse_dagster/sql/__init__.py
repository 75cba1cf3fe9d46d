"""Reads Flink SQL text: statements, tables, sources, jobs and what they depend on.

Nothing here asks a cluster or a catalog; the text alone is enough. sqlglot is imported only when
a script is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse_dagster.sql.model import (
    Certainty,
    Column,
    ColumnKind,
    ColumnLineage,
    ColumnOrigin,
    Flow,
    JobDefinition,
    Location,
    Problem,
    Project,
    Script,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableDefinition,
    TableName,
    ViewDefinition,
)
from lakehouse_dagster.sql.statements import as_one_statement, split
from lakehouse_dagster.sql.variables import substitute

if TYPE_CHECKING:
    from lakehouse_dagster.sql.reader import read_project, read_script

__all__ = [
    "Certainty",
    "Column",
    "ColumnKind",
    "ColumnLineage",
    "ColumnOrigin",
    "Flow",
    "JobDefinition",
    "Location",
    "Problem",
    "Project",
    "Script",
    "Severity",
    "SourceDefinition",
    "Statement",
    "StatementKind",
    "TableDefinition",
    "TableName",
    "ViewDefinition",
    "as_one_statement",
    "read_project",
    "read_script",
    "split",
    "substitute",
]

_LAZY = {"read_project", "read_script"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from lakehouse_dagster.sql import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

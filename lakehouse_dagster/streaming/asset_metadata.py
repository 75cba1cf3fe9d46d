"""What scripts and the catalog say of a table or source, as Dagster metadata; secrets masked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse_dagster.paimon import TableSchema
from lakehouse_dagster.sql.model import (
    Column,
    ColumnKind,
    Flow,
    JobDefinition,
    Location,
    SourceDefinition,
    TableDefinition,
)
from lakehouse_dagster.sql.sources import mask_secrets

COLUMN_SCHEMA = "dagster/column_schema"


def of_table(
    table: TableDefinition | None, in_catalog: TableSchema | None, catalog: str, name: str
) -> dict[str, Any]:
    """What is known of a table of the lake: from its script, else from the last discovery."""
    metadata: dict[str, Any] = {
        "dagster/table_name": f"{catalog}.{name}",
        "dagster/storage_kind": "paimon",
    }
    declared = table if table is not None and table.columns_known else None
    if declared is not None:
        metadata[COLUMN_SCHEMA] = _schema(declared.columns, declared.primary_key)
    elif in_catalog is not None:
        metadata[COLUMN_SCHEMA] = _schema_in_catalog(in_catalog)
    known = declared or in_catalog or table
    if known is None:
        return metadata
    if known.primary_key:
        metadata["primary_key"] = ", ".join(known.primary_key)
    if known.partition_keys:
        metadata["partition_keys"] = ", ".join(known.partition_keys)
    if known.options:
        metadata["options"] = dg.MetadataValue.json(mask_secrets(known.options))
    return metadata


def of_source(source: SourceDefinition | None) -> dict[str, Any]:
    """What is known of something outside the lake."""
    if source is None:
        return {}
    metadata: dict[str, Any] = {"options": dg.MetadataValue.json(mask_secrets(source.options))}
    if source.columns:
        metadata[COLUMN_SCHEMA] = _schema(source.columns, ())
    return metadata


def of_writing(
    flows: Iterable[Flow], jobs: Sequence[JobDefinition], left_out: Sequence[str]
) -> dict[str, Any]:
    """How data gets into it, as far as the graph itself does not show it."""
    flows = tuple(flows)
    metadata: dict[str, Any] = {}
    if jobs:
        metadata["streaming_job"] = ", ".join(job.name for job in jobs)
    if any(flow.reads_itself for flow in flows):
        metadata["reads_itself"] = True
    if left_out:
        metadata["cyclic_dependencies_left_out"] = ", ".join(left_out)
    if any(not flow.dependencies_known for flow in flows):
        metadata["dependencies"] = "not all known: a statement could not be read wholly"
    return metadata


def of_places(base_folder: Path, places: Sequence[tuple[Location, str]]) -> dict[str, Any]:
    """Links to lines of scripts. Dagster calls them beta at every use: said once, in docs."""
    if not places:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        references = dg.CodeReferencesMetadataValue(
            code_references=[
                dg.LocalFileCodeReference(
                    file_path=_file(base_folder.absolute(), location.path),
                    line_number=location.line,
                    label=label,
                )
                for location, label in places
            ]
        )
    return {"dagster/code_references": references}


def _schema(columns: Sequence[Column], primary_key: tuple[str, ...]) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            _column(
                column.name,
                column.type,
                column.nullable and column.name not in primary_key,
                primary_key == (column.name,),
                column.comment,
                column.kind,
            )
            for column in columns
        ]
    )


def _schema_in_catalog(schema: TableSchema) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            _column(c.name, c.type, c.nullable, schema.primary_key == (c.name,), c.comment)
            for c in schema.columns
        ]
    )


def _column(
    name: str,
    type_: str,
    nullable: bool,
    unique: bool,
    comment: str | None,
    kind: ColumnKind = ColumnKind.PHYSICAL,
) -> dg.TableColumn:
    return dg.TableColumn(
        name=name,
        type=type_ or "unknown",
        description=comment,
        constraints=_constraints(nullable, unique, kind),
    )


@cache
def _constraints(nullable: bool, unique: bool, kind: ColumnKind) -> dg.TableColumnConstraints:
    """Few there are, for very many columns."""
    other = [] if kind is ColumnKind.PHYSICAL else [kind.value]
    return dg.TableColumnConstraints(nullable=nullable, unique=unique, other=other)


@lru_cache(maxsize=4096)
def _file(base_folder: Path, path: str) -> str:
    return str((base_folder / path).resolve())

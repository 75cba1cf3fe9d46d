"""Column lineage of scripts as Dagster metadata: what values come from, and what picks rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import dagster as dg

from lakehouse_dagster.sql.model import Certainty, ColumnLineage, ColumnOrigin, Flow

COLUMN_LINEAGE = "dagster/column_lineage"
COLUMNS_SHOWN = 300
"""At most so many columns of a table stand in the readable form; the other has them all."""

_MARKS = {
    Certainty.EXACT: "",
    Certainty.AT_MOST: " (some of these)",
    Certainty.UNKNOWN: " (and perhaps others)",
}


def column_lineage(flows: Iterable[Flow], keys: Mapping[str, dg.AssetKey]) -> dict[str, Any]:
    """Metadata of an asset that these flows write; empty where nothing is known.

    Dagster's own entry names keys and columns. Beside it stands the same to be read, with how far
    it can be trusted, and apart from it what only decides which rows there are.

    Args:
        flows: what writes the asset; where several do, a column comes from what each of them says.
        keys: asset keys by ``database.table`` and ``system/…/name``.
    """
    flows = tuple(flows)
    columns = _merged(column for flow in flows for column in flow.columns or ())
    metadata: dict[str, Any] = {}
    if columns:
        made: dict[ColumnOrigin, list[dg.TableColumnDep]] = {}
        for column in columns.values():
            for origin in column.origins:
                if origin not in made:
                    key = keys.get(_node(origin))
                    made[origin] = [] if key is None else [dg.TableColumnDep(key, origin.column)]
        metadata[COLUMN_LINEAGE] = dg.TableColumnLineage(
            {
                name: [dep for origin in column.origins for dep in made[origin]]
                for name, column in columns.items()
            }
        )
        metadata["columns_made_from"] = dg.MetadataValue.md(_table(columns, keys))
    unknown = [name for name, c in columns.items() if c.certainty is Certainty.UNKNOWN]
    if any(flow.columns is None for flow in flows):
        metadata["column_lineage_unknown"] = "all columns" if not columns else "some columns"
    elif unknown:
        metadata["column_lineage_unknown"] = ", ".join(unknown)
    filters = dict.fromkeys(origin for flow in flows for origin in flow.row_filters)
    if filters:
        metadata["row_filters"] = ", ".join(_shown(origin, keys) for origin in filters)
    return metadata


def _merged(columns: Iterable[ColumnLineage]) -> dict[str, ColumnLineage]:
    """One lineage a column: all the origins, as sure as the least sure of what is put together."""
    order = (Certainty.EXACT, Certainty.AT_MOST, Certainty.UNKNOWN)
    merged: dict[str, ColumnLineage] = {}
    for column in columns:
        known = merged.setdefault(column.column, column)
        if known is column:
            continue
        origins = tuple(dict.fromkeys((*known.origins, *column.origins)))
        certainty = max(known.certainty, column.certainty, key=order.index)
        merged[column.column] = ColumnLineage(column.column, origins, certainty)
    return merged


def _node(origin: ColumnOrigin) -> str:
    return origin.table.key if origin.table is not None else "/".join(origin.source or ())


def _shown(origin: ColumnOrigin, keys: Mapping[str, dg.AssetKey]) -> str:
    node = _node(origin)
    return f"{keys[node].to_user_string() if node in keys else node}.{origin.column}"


def _table(columns: Mapping[str, ColumnLineage], keys: Mapping[str, dg.AssetKey]) -> str:
    shown = cache(lambda origin: f"`{_cell(_shown(origin, keys))}`")
    lines = ["| column | made from |", "|---|---|"]
    for name, column in list(columns.items())[:COLUMNS_SHOWN]:
        origins = ", ".join(map(shown, column.origins))
        without = "not known" if column.certainty is Certainty.UNKNOWN else "no column"
        mark = _MARKS[column.certainty] if origins else ""
        lines.append(f"| `{_cell(name)}` | {origins or without}{mark} |")
    if len(columns) > COLUMNS_SHOWN:
        lines.append(f"| and {len(columns) - COLUMNS_SHOWN} more | |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("`", "'").replace("\n", " ")

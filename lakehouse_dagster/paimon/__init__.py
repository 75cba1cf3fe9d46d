"""Reads Paimon: catalog, schemas, snapshots and what each of them changed.

pypaimon and pyarrow are imported when something is read, never before: loading definitions needs
neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_dagster.paimon.catalog import PaimonCatalog
    from lakehouse_dagster.paimon.reader import CatalogReader, TableReader
    from lakehouse_dagster.paimon.types import (
        ColumnSchema,
        PartitionChanges,
        PartitionFiles,
        Snapshot,
        SnapshotChanges,
        SnapshotRange,
        TableSchema,
    )

_HOMES = {
    "CatalogReader": "reader",
    "ColumnSchema": "types",
    "PaimonCatalog": "catalog",
    "PartitionChanges": "types",
    "PartitionFiles": "types",
    "Snapshot": "types",
    "SnapshotChanges": "types",
    "SnapshotRange": "types",
    "TableReader": "reader",
    "TableSchema": "types",
}

__all__ = [
    "CatalogReader",
    "ColumnSchema",
    "PaimonCatalog",
    "PartitionChanges",
    "PartitionFiles",
    "Snapshot",
    "SnapshotChanges",
    "SnapshotRange",
    "TableReader",
    "TableSchema",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

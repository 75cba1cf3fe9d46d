"""What a snapshot changed, from its delta manifests alone: no data file is opened.

The Avro files are read after Paimon's page "Concepts / Spec / Manifest". pypaimon's own reader
also decodes the statistics of every column of every file, which nobody here needs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from lakehouse_dagster.errors import SnapshotNotFoundError
from lakehouse_dagster.paimon.files import WarehouseFiles, translated_errors
from lakehouse_dagster.paimon.types import PartitionChanges, PartitionFiles

_ADD = 0
_UNKNOWN = datetime(1970, 1, 1)


def delta_entries(
    files: WarehouseFiles, table_name: str, table_path: str, document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The entries of a snapshot's delta manifests: one a file added or deleted.

    Args:
        files: of the warehouse.
        table_name: ``database.table``, for messages.
        table_path: folder of the table.
        document: the snapshot's JSON.

    Raises:
        SnapshotNotFoundError: a manifest is gone: the snapshot expired while it was read.
    """
    folder = f"{table_path}/manifest"
    entries: list[dict[str, Any]] = []
    for manifest in records_of(files, f"{folder}/{document['deltaManifestList']}", table_name):
        entries += records_of(files, f"{folder}/{manifest['_FILE_NAME']}", table_name)
    return entries


def live_entries(
    files: WarehouseFiles, table_name: str, table_path: str, document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The entries of the files that a snapshot consists of; arguments as of ``delta_entries``."""
    folder = f"{table_path}/manifest"
    live: dict[tuple[object, ...], dict[str, Any]] = {}
    for listed in (document["baseManifestList"], document["deltaManifestList"]):
        for manifest in records_of(files, f"{folder}/{listed}", table_name):
            for entry in records_of(files, f"{folder}/{manifest['_FILE_NAME']}", table_name):
                key = (entry["_PARTITION"], entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"])
                if entry["_KIND"] == _ADD:
                    live[key] = entry
                else:
                    live.pop(key, None)
    return list(live.values())


def records_of(files: WarehouseFiles, path: str, table_name: str) -> list[dict[str, Any]]:
    """The records of a manifest or manifest list.

    Raises:
        SnapshotNotFoundError: it is gone.
    """
    records = files.read_avro(path)
    if records is None:
        raise SnapshotNotFoundError(
            f"A manifest of the table {table_name} is gone ({path}): its snapshot has expired.",
            remedy="Take a later snapshot.",
        )
    return records


def changes_by_partition(
    entries: Sequence[Mapping[str, Any]],
    partition_fields: Sequence[Any],
    options: Mapping[str, str],
) -> tuple[PartitionChanges, ...]:
    """Sum manifest entries up by partition.

    Args:
        entries: of manifests.
        partition_fields: pypaimon's fields of the partition columns, in the table's order.
        options: of the catalog, whose secrets no message may show.
    """
    by_partition: dict[bytes, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_partition.setdefault(entry["_PARTITION"], []).append(entry)
    return tuple(
        _summed(_partition_values(row, partition_fields, options), of_partition)
        for row, of_partition in by_partition.items()
    )


def files_by_partition(
    entries: Sequence[Mapping[str, Any]],
    partition_fields: Sequence[Any],
    options: Mapping[str, str],
) -> tuple[PartitionFiles, ...]:
    """The partitions of live files; arguments as of ``changes_by_partition``."""
    newest: dict[bytes, datetime] = {}
    for entry in entries:
        made, row = entry["_FILE"]["_CREATION_TIME"], entry["_PARTITION"]
        # Avro's two kinds of time differ in whether Python sees a time zone.
        made = (made or _UNKNOWN).replace(tzinfo=timezone.utc)
        newest[row] = max(made, newest.get(row, made))
    return tuple(
        PartitionFiles(_partition_values(row, partition_fields, options), made)
        for row, made in newest.items()
    )


def _partition_values(
    row: bytes, partition_fields: Sequence[Any], options: Mapping[str, str]
) -> dict[str, Any]:
    if not partition_fields:
        return {}
    with translated_errors("decode the partition of a manifest entry", options):
        from pypaimon.table.row.generic_row import GenericRowDeserializer

        values = GenericRowDeserializer.from_bytes(row, list(partition_fields)).values
    return {field.name: value for field, value in zip(partition_fields, values, strict=True)}


def partition_texts(
    rows: Collection[str], schema: Mapping[str, Any], options: Mapping[str, str]
) -> dict[str, tuple[tuple[str, str | None], ...]]:
    """Column and value, as text, of each partition.

    Args:
        rows: partitions as Paimon's binary rows, in hex.
        schema: the table's schema, as its JSON file has it.
        options: of the catalog, whose secrets no message may show.
    """
    keys = schema.get("partitionKeys") or ()
    if not keys:
        return dict.fromkeys(rows, ())
    with translated_errors("understand a table's schema", options):
        from pypaimon.schema.table_schema import TableSchema

        fields = {field.name: field for field in TableSchema.from_json(json.dumps(schema)).fields}
    return {
        row: tuple(
            (column, None if value is None else str(value))
            for column, value in _partition_values(
                bytes.fromhex(row), [fields[key] for key in keys], options
            ).items()
        )
        for row in rows
    }


def _summed(partition: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> PartitionChanges:
    added = [entry["_FILE"] for entry in entries if entry["_KIND"] == _ADD]
    deleted = [entry["_FILE"] for entry in entries if entry["_KIND"] != _ADD]
    return PartitionChanges(
        partition=partition,
        files_added=len(added),
        files_deleted=len(deleted),
        bytes_added=sum(file["_FILE_SIZE"] for file in added),
        bytes_deleted=sum(file["_FILE_SIZE"] for file in deleted),
        rows_added=sum(file["_ROW_COUNT"] for file in added),
        rows_deleted=sum(file["_ROW_COUNT"] for file in deleted),
    )

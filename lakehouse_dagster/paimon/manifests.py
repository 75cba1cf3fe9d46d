"""What a snapshot changed, from its delta manifests alone: no data file is opened.

The Avro files are read after Paimon's page "Concepts / Spec / Manifest". pypaimon's own reader
also decodes the statistics of every column of every file, which nobody here needs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    return list(entries_of(files, table_name, table_path, [document["deltaManifestList"]]))


def live_entries(
    files: WarehouseFiles, table_name: str, table_path: str, document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The entries of the files that a snapshot consists of; arguments as of ``delta_entries``."""
    live: dict[tuple[object, ...], dict[str, Any]] = {}
    for entry in entries_of(files, table_name, table_path, both_lists(document)):
        key = (entry["_PARTITION"], entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"])
        if entry["_KIND"] == _ADD:
            live[key] = entry
        else:
            live.pop(key, None)
    return list(live.values())


def both_lists(document: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the manifest lists of a snapshot: what was before it, and what it changed."""
    return document["baseManifestList"], document["deltaManifestList"]


def manifests_of(
    files: WarehouseFiles, table_name: str, table_path: str, manifest_lists: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """What manifest lists say of each manifest; arguments and errors as of ``delta_entries``."""
    for name in manifest_lists:
        yield from records_of(files, f"{table_path}/manifest/{name}", table_name)


def entries_of(
    files: WarehouseFiles, table_name: str, table_path: str, manifest_lists: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """The entries of all their manifests, in order; arguments and errors likewise."""
    for manifest in manifests_of(files, table_name, table_path, manifest_lists):
        path = f"{table_path}/manifest/{manifest['_FILE_NAME']}"
        yield from records_of(files, path, table_name)


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
    if not keys or not rows:
        return dict.fromkeys(rows, ())
    with translated_errors("understand a table's schema", options):
        from pypaimon.schema.table_schema import TableSchema

        by_name = {field.name: field for field in TableSchema.from_json(json.dumps(schema)).fields}
    fields = [by_name[key] for key in keys]
    return {
        row: tuple(
            (column, None if value is None else str(value))
            for column, value in _partition_values(bytes.fromhex(row), fields, options).items()
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

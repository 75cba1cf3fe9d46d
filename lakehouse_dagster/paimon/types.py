"""What is read from Paimon: frozen records, free of pypaimon and pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_END_OF_INPUT = 2**62


@dataclass(frozen=True)
class ColumnSchema:
    """A column as the table's schema has it; ``type`` is Flink's name of the type."""

    name: str
    type: str
    nullable: bool
    comment: str | None


@dataclass(frozen=True)
class TableSchema:
    """A table's present schema; secrets in its options are masked."""

    columns: tuple[ColumnSchema, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)
    comment: str | None


@dataclass(frozen=True)
class Snapshot:
    """One commit of a table (Paimon's page "Concepts / Spec / Snapshot").

    ``delta_record_count`` counts rows in files, added less deleted, before merging by key: it is
    not by how many rows the table grew. ``watermark`` is ``None`` also where the job had none yet
    or its sources have all ended.
    """

    id: int
    schema_id: int
    commit_user: str
    commit_identifier: int
    commit_kind: str
    """``APPEND``, ``COMPACT``, ``OVERWRITE`` or ``ANALYZE``."""
    committed_at: datetime
    watermark: datetime | None
    delta_record_count: int
    changelog_record_count: int | None

    @property
    def moves_rows(self) -> bool:
        """Whether rows may have come or gone by it: files that were merged hold the same ones."""
        return self.commit_kind not in ("COMPACT", "ANALYZE")

    @property
    def is_of_a_checkpoint(self) -> bool:
        """Whether a streaming job committed it, with the checkpoint whose number it bears.

        Batch jobs, and streaming ones at the end of their input, take the greatest one there is.
        """
        return self.commit_identifier < _END_OF_INPUT


@dataclass(frozen=True)
class SnapshotRange:
    """The snapshots of a range that still exist, and those that do not.

    ``expired`` holds runs of missing ids, first and last included.
    """

    snapshots: tuple[Snapshot, ...]
    expired: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PartitionChanges:
    """What one snapshot did to the files of one partition.

    ``partition`` holds a typed value (``date``, ``int``, ``None`` for NULL …) for each partition
    column, and is empty for a table without partitions. ``rows_…`` count rows in files before
    merging by key.
    """

    partition: Mapping[str, Any] = field(hash=False)
    files_added: int
    files_deleted: int
    bytes_added: int
    bytes_deleted: int
    rows_added: int
    rows_deleted: int


@dataclass(frozen=True)
class SnapshotChanges:
    """A snapshot and the partitions that it touched, in the order of its manifests."""

    snapshot: Snapshot
    partitions: tuple[PartitionChanges, ...]


@dataclass(frozen=True)
class PartitionFiles:
    """A partition that has data files in a snapshot, typed as in ``PartitionChanges``.

    ``newest_file_at`` is when its newest file was made by the clock **and in the time zone** of the
    machine that wrote it, which Paimon does not write down (``DataFileMeta.creationTime``).
    """

    partition: Mapping[str, Any] = field(hash=False)
    newest_file_at: datetime

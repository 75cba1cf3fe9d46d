"""Writes Paimon tables with pypaimon: what the tests read was made by somebody else's code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema


class Writer:
    """One Paimon table of a warehouse, created and written by pypaimon."""

    def __init__(
        self,
        warehouse: Path,
        name: str,
        columns: pa.Schema,
        *,
        partition_keys: tuple[str, ...] = (),
        primary_keys: tuple[str, ...] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> None:
        self.columns = columns
        self.folder = warehouse / f"{name.split('.')[0]}.db" / name.split(".")[1]
        self.name = name
        self.catalog = CatalogFactory.create({"warehouse": str(warehouse)})
        self.catalog.create_database(name.split(".")[0], True)
        schema = Schema.from_pyarrow_schema(
            columns,
            partition_keys=list(partition_keys),
            primary_keys=list(primary_keys),
            options=dict(options or {}),
            comment=comment,
        )
        self.catalog.create_table(name, schema, False)

    def append(self, rows: list[dict[str, Any]], overwrite: dict[str, Any] | None = None) -> None:
        """Commit rows as one snapshot."""
        builder = self.catalog.get_table(self.name).new_batch_write_builder()
        if overwrite is not None:
            builder = builder.overwrite(overwrite)
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.Table.from_pylist(rows, schema=self.columns))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def truncate(self, *partitions: dict[str, Any]) -> None:
        """Commit that these partitions have no rows any more."""
        commit = self.catalog.get_table(self.name).new_batch_write_builder().new_commit()
        commit.truncate_partitions(list(partitions))
        commit.close()

    def expire(self, *snapshot_ids: int) -> None:
        """Delete snapshot files, as expiry leaves a table behind."""
        for snapshot_id in snapshot_ids:
            (self.folder / "snapshot" / f"snapshot-{snapshot_id}").unlink()

    def data_bytes(self, pattern: str = "**") -> int:
        """The size of the data files in the folders that match a pattern."""
        return sum(file.stat().st_size for file in self.folder.glob(f"{pattern}/bucket-*/data-*"))

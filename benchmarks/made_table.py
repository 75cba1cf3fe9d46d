"""A table of very many live files: pypaimon writes four of them, the manifests tell of the others.

The data files of the others do not exist. Who only looks at manifests cannot tell the difference.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

_FIRST_DAY = date(2025, 7, 1)
_ENTRIES_A_MANIFEST = 4_000
"""Roughly what fits into Paimon's ``manifest.target-file-size`` of 8 MB."""


@dataclass
class MadeTable:
    """The table ``b.big`` of a warehouse, partitioned by a day as text, with a primary key.

    Args:
        warehouse: folder, which need not exist.
        partitions, buckets, files_each: ``files_each`` live files in every bucket at first.
    """

    warehouse: Path
    partitions: int
    buckets: int
    files_each: int

    def __post_init__(self) -> None:
        self._folder = self.warehouse / "b.db" / "big"
        _write_with_pypaimon(self.warehouse, self.buckets)
        self._document = json.loads((self._folder / "snapshot" / "snapshot-1").read_text())
        (listed,) = self._read(self._document["deltaManifestList"])
        self._listed = listed
        self._written = self._read(listed["_FILE_NAME"])
        assert len(self._written) == self.buckets
        self.files = 0
        self._live: list[dict[str, Any]] = []
        self._manifests: list[dict[str, Any]] = []
        self._commit([self._added(file, level=5) for file in self._places() * self.files_each])

    def commit(self) -> None:
        """What one checkpoint leaves: 16 files of the newest partitions more, 4 merged away."""
        newest = self._places()[-16:]
        removed = [{**self._live.pop(), "_KIND": 1} for _ in range(4)]
        self._commit([*(self._added(file, level=0) for file in newest), *removed])

    def _places(self) -> list[dict[str, Any]]:
        """An entry of each partition and bucket, oldest first."""
        return [
            {**entry, "_PARTITION": entry["_PARTITION"].replace(_text(0), _text(number))}
            for number in range(self.partitions)
            for entry in self._written
        ]

    def _added(self, entry: dict[str, Any], level: int) -> dict[str, Any]:
        size = 20_000_000 + self.files * 7919 % 200_000_000
        name = f"data-{uuid.uuid4()}-0.parquet"
        file = {**entry["_FILE"], "_FILE_NAME": name, "_FILE_SIZE": size, "_LEVEL": level}
        added = {**entry, "_FILE": file}
        self._live.append(added)
        self.files += 1
        return added

    def _commit(self, entries: list[dict[str, Any]]) -> None:
        base, made = self._manifests, []
        for start in range(0, len(entries), _ENTRIES_A_MANIFEST):
            part = entries[start : start + _ENTRIES_A_MANIFEST]
            name = f"manifest-{uuid.uuid4()}-0"
            size = self._write(name, self._listed["_FILE_NAME"], part)
            gone = sum(entry["_KIND"] for entry in part)
            made.append(
                {
                    **self._listed,
                    "_FILE_NAME": name,
                    "_FILE_SIZE": size,
                    "_NUM_ADDED_FILES": len(part) - gone,
                    "_NUM_DELETED_FILES": gone,
                }
            )
            self.files -= gone
        self._snapshot(base, made)
        self._manifests = [*base, *made]

    def _snapshot(self, base: list[dict[str, Any]], delta: list[dict[str, Any]]) -> None:
        like, number = self._document["deltaManifestList"], self._document["id"] + 1
        name = f"manifest-list-{uuid.uuid4()}"
        rows = sum(entry["_FILE"]["_ROW_COUNT"] for entry in self._live)
        self._document |= {
            "id": number,
            "baseManifestList": f"{name}-0",
            "deltaManifestList": f"{name}-1",
            "baseManifestListSize": self._write(f"{name}-0", like, base),
            "deltaManifestListSize": self._write(f"{name}-1", like, delta),
            "totalRecordCount": rows,
            "deltaRecordCount": rows - self._document["totalRecordCount"],
            "timeMillis": int(time.time() * 1000),
            "uuid": str(uuid.uuid4()),
        }
        folder = self._folder / "snapshot"
        (folder / f"snapshot-{number}").write_text(json.dumps(self._document))
        (folder / "LATEST").write_text(str(number))

    def _read(self, name: str) -> list[dict[str, Any]]:
        import fastavro

        with (self._folder / "manifest" / name).open("rb") as file:
            return list(fastavro.reader(file))  # type: ignore[arg-type]

    def _write(self, name: str, like: str, records: list[dict[str, Any]]) -> int:
        """Write a file of the same schema and codec as another one; its size comes back."""
        import fastavro

        with (self._folder / "manifest" / like).open("rb") as file:
            reader = fastavro.reader(file)
            schema, codec = reader.writer_schema, reader.codec
        path = self._folder / "manifest" / name
        with path.open("wb") as file:
            fastavro.writer(file, schema, records, codec=codec)
        return path.stat().st_size


def _text(number: int) -> bytes:
    return str(_FIRST_DAY + timedelta(days=number)).encode()


def _write_with_pypaimon(warehouse: Path, buckets: int) -> None:
    """One partition with a file in every bucket."""
    import pyarrow as pa
    import pypaimon

    catalog = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("b", True)
    columns = pa.schema(
        [
            pa.field("dt", pa.string(), nullable=False),
            pa.field("id", pa.int64(), nullable=False),
            ("customer", pa.string()),
            ("amount", pa.float64()),
        ]
    )
    schema = pypaimon.Schema.from_pyarrow_schema(
        columns,
        partition_keys=["dt"],
        primary_keys=["dt", "id"],
        options={"bucket": str(buckets)},
    )
    catalog.create_table("b.big", schema, False)
    numbers = range(64)
    rows = {
        "dt": [_text(0).decode()] * len(numbers),
        "id": list(numbers),
        "customer": [f"c{number}" for number in numbers],
        "amount": [float(number) for number in numbers],
    }
    builder = catalog.get_table("b.big").new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(pa.table(rows, schema=columns))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()

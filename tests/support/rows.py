"""Numbered rows that a Flink job reads as they appear, and the proof that none was lost or doubled.

The rows follow from their numbers alone, so that a table can be compared with what was written
row by row. They go into an append table: a primary key would hide a row that came twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_dagster.paimon import PaimonCatalog


@dataclass(frozen=True)
class Row:
    """One row; ``text`` and ``amount`` follow from ``id``."""

    id: int
    text: str
    amount: int

    @classmethod
    def numbered(cls, number: int) -> Row:
        return cls(number, hashlib.sha256(str(number).encode()).hexdigest()[:12], number * 7 % 101)


@dataclass
class SourceFolder:
    """A folder that Flink's filesystem source watches (``source.monitor-interval``)."""

    folder: Path
    last: int = 0
    """The number of the last row that was written; they begin at 1."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, count: int = 50) -> None:
        """Write the next rows as one file, moved in whole: Flink ignores names with a dot."""
        rows = [Row.numbered(self.last + i) for i in range(1, count + 1)]
        lines = "".join(json.dumps(vars(row)) + "\n" for row in rows)
        name = f"rows-{self.last + 1:06d}.json"
        hidden = self.folder / f".{name}"
        hidden.write_text(lines)
        hidden.rename(self.folder / name)
        self.last += count

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(Row.numbered(number) for number in range(1, self.last + 1))


@dataclass(frozen=True)
class Comparison:
    """How the rows of a table differ from those of the source."""

    expected: int
    count: int
    distinct: int
    missing: tuple[Row, ...] = field(repr=False)
    unexpected: tuple[Row, ...] = field(repr=False)
    """Rows that the source never had, or that are in the table more often than in the source."""

    @property
    def equal(self) -> bool:
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        return (
            f"{self.count} rows ({self.distinct} distinct) for {self.expected} of the source; "
            f"missing {[row.id for row in self.missing[:5]]} ({len(self.missing)}), "
            f"unexpected {[row.id for row in self.unexpected[:5]]} ({len(self.unexpected)})"
        )


def compare(catalog: PaimonCatalog, table: str, source: SourceFolder) -> Comparison:
    """Compare a table with all that was written, whole rows and how often each is there."""
    reader = catalog.open().table(table)
    found: Counter[Row] = Counter()
    if reader.latest_snapshot_id():
        data = reader.read(columns=["id", "text", "amount"]).to_pylist()
        found = Counter(Row(**row) for row in data)
    wanted = Counter(source.rows)
    return Comparison(
        expected=source.last,
        count=found.total(),
        distinct=len(found),
        missing=tuple(sorted((wanted - found).elements(), key=lambda row: row.id)),
        unexpected=tuple(sorted((found - wanted).elements(), key=lambda row: row.id)),
    )


def wait_until_equal(
    catalog: PaimonCatalog, table: str, source: SourceFolder, *, seconds: float = 40.0
) -> None:
    """Wait until every row is there; AssertionError as soon as one is there that must not be."""
    deadline = time.monotonic() + seconds
    reader = catalog.open().table(table)
    read: tuple[int | None, int] | None = None
    while True:
        now = (reader.latest_snapshot_id(), source.last)
        if now != read:  # reading is dear, and without a new snapshot or row tells nothing new
            seen = compare(catalog, table, source)
            read = now
            assert not seen.unexpected, str(seen)
            if seen.equal:
                return
        assert time.monotonic() < deadline, str(seen)
        time.sleep(0.1)


def assert_equal(catalog: PaimonCatalog, table: str, source: SourceFolder) -> None:
    """Count, distinct and content are those of the source."""
    seen = compare(catalog, table, source)
    assert seen.equal, str(seen)
    assert seen.count == seen.distinct == source.last

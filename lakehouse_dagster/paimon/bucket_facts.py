"""The live files of a table, summed up by partition and bucket, from manifest entries alone.

Entries of added and of deleted files both say all about the file (Paimon's page "Concepts / Spec /
Manifest"), so sums are kept up to date by adding and taking away: the files need not be remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_ADD = 0

BucketKey = tuple[str, int]
"""The partition as Paimon's binary row, in hex, and the bucket's number."""


class FactsDoNotAddUpError(Exception):
    """A file was deleted that was never added: the sums do not belong to this history."""


@dataclass
class BucketSums:
    """The live files of one bucket; sizes in bytes, records before merging by key."""

    files: int = 0
    size_bytes: int = 0
    records: int = 0
    small_files: int = 0
    small_bytes: int = 0
    files_of_level: dict[int, int] = field(default_factory=dict)
    bytes_of_level: dict[int, int] = field(default_factory=dict)

    def count(self, file: Mapping[str, Any], times: int, small_below_bytes: int) -> None:
        """Add a file (``times`` is 1) or take it away (-1)."""
        size, level = file["_FILE_SIZE"], file["_LEVEL"]
        self.files += times
        self.size_bytes += times * size
        self.records += times * file["_ROW_COUNT"]
        if size < small_below_bytes:
            self.small_files += times
            self.small_bytes += times * size
        self.files_of_level[level] = self.files_of_level.get(level, 0) + times
        self.bytes_of_level[level] = self.bytes_of_level.get(level, 0) + times * size
        if self.files < 0 or self.files_of_level[level] < 0:
            raise FactsDoNotAddUpError
        if not self.files_of_level[level]:
            del self.files_of_level[level], self.bytes_of_level[level]

    def copy(self) -> BucketSums:
        """The same, to count on without changing these."""
        return replace(
            self,
            files_of_level=dict(self.files_of_level),
            bytes_of_level=dict(self.bytes_of_level),
        )

    @property
    def settled_bytes(self) -> int:
        """What lies on the highest level in use, where a full compaction leaves all."""
        return self.bytes_of_level[max(self.bytes_of_level)] if self.bytes_of_level else 0

    def as_list(self) -> list[Any]:
        """As JSON takes it; short, because a table may have many thousands."""
        levels = [
            [level, files, self.bytes_of_level[level]]
            for level, files in sorted(self.files_of_level.items())
        ]
        return [self.records, self.small_files, self.small_bytes, levels]

    @classmethod
    def from_list(cls, stored: list[Any]) -> BucketSums:
        """The opposite of :meth:`as_list`."""
        records, small_files, small_bytes, levels = stored
        return cls(
            files=sum(files for _, files, _ in levels),
            size_bytes=sum(size for _, _, size in levels),
            records=records,
            small_files=small_files,
            small_bytes=small_bytes,
            files_of_level={level: files for level, files, _ in levels},
            bytes_of_level={level: size for level, _, size in levels},
        )


def fold(
    sums: dict[BucketKey, BucketSums],
    entries: Iterable[Mapping[str, Any]],
    small_below_bytes: int,
) -> None:
    """Bring the sums forward by the entries of one or more snapshots' manifests.

    Added files count before deleted ones, as the manifests of one snapshot are in no order. Buckets
    that change get sums of their own: those that were there may belong to somebody else.

    Raises:
        FactsDoNotAddUpError: the sums are of another history; they are then worth nothing.
    """
    entries = list(entries)
    touched: set[BucketKey] = set()
    for times, of_kind in ((1, _is_added), (-1, _is_deleted)):
        for entry in filter(of_kind, entries):
            key = (bytes(entry["_PARTITION"]).hex(), entry["_BUCKET"])
            if key not in touched:
                touched.add(key)
                sums[key] = sums[key].copy() if key in sums else BucketSums()
            sums[key].count(entry["_FILE"], times, small_below_bytes)
    for key in touched:
        if not sums[key].files:
            del sums[key]


def _is_added(entry: Mapping[str, Any]) -> bool:
    return bool(entry["_KIND"] == _ADD)


def _is_deleted(entry: Mapping[str, Any]) -> bool:
    return bool(entry["_KIND"] != _ADD)

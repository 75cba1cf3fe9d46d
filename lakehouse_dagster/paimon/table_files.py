"""Keeps the sums over a table's live files up to date (``file_facts.py`` says what they are)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from lakehouse_dagster.errors import CatalogError, SnapshotNotFoundError
from lakehouse_dagster.paimon.bucket_facts import (
    BucketKey,
    BucketSums,
    FactsDoNotAddUpError,
    fold,
)
from lakehouse_dagster.paimon.file_facts import FactStore, StoredSums
from lakehouse_dagster.paimon.files import WarehouseFiles
from lakehouse_dagster.paimon.manifests import both_lists, delta_entries, entries_of
from lakehouse_dagster.paimon.snapshots import SnapshotFolder

FOLDED_AT_MOST = 200
"""Beyond so many new snapshots, reading all manifests of the newest one is cheaper."""
_ATTEMPTS = 3


class LiveFiles:
    """The sums of one table.

    Args:
        files: of the warehouse.
        name: ``database.table``.
        path: folder of the table.
        store: where the sums are remembered.
    """

    def __init__(self, files: WarehouseFiles, name: str, path: str, store: FactStore) -> None:
        self._files = files
        self._name = name
        self._path = path
        self._store = store
        self._snapshots = SnapshotFolder(files, name, path)

    def sums(self, small_below_bytes: int) -> tuple[StoredSums, Mapping[str, Any]] | None:
        """The sums of the newest snapshot, and its JSON; None when there is no snapshot.

        Raises:
            CatalogError: a file that the snapshot needs is gone or damaged.
        """
        for attempt in range(_ATTEMPTS):
            latest = self._snapshots.latest_id()
            if latest is None:
                return None
            document = self._snapshots.document(latest)
            try:
                if document is not None:
                    return self._of(document, small_below_bytes), document
            except SnapshotNotFoundError:
                # It may have expired while it was read; the last attempt tells what is missing.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise CatalogError(f"The snapshots of {self._name} expire faster than they can be read.")

    def _of(self, document: Mapping[str, Any], small_below_bytes: int) -> StoredSums:
        known = self._store.load(self._name)
        fingerprint = _fingerprint(document)
        if known is not None and known.small_below_bytes == small_below_bytes:
            if (known.snapshot_id, known.fingerprint) == (document["id"], fingerprint):
                return known
            sums = self._brought_forward(known, document)
            if sums is not None:
                stored = self._saved(document, fingerprint, small_below_bytes, sums)
                stored.keep_partitions(known)
                return stored
        sums = {}
        entries = entries_of(self._files, self._name, self._path, both_lists(document))
        fold(sums, entries, small_below_bytes)
        return self._saved(document, fingerprint, small_below_bytes, sums)

    def _saved(
        self,
        document: Mapping[str, Any],
        fingerprint: str,
        small_below_bytes: int,
        sums: Mapping[BucketKey, BucketSums],
    ) -> StoredSums:
        stored = StoredSums(int(document["id"]), fingerprint, small_below_bytes, sums)
        self._store.save(self._name, stored)
        return stored

    def _brought_forward(
        self, known: StoredSums, document: Mapping[str, Any]
    ) -> dict[BucketKey, BucketSums] | None:
        """The sums of the snapshot from known ones of an earlier one; None if that cannot be."""
        latest = int(document["id"])
        if not 0 < latest - known.snapshot_id <= FOLDED_AT_MOST:
            return None
        before = self._snapshots.document(known.snapshot_id)
        if before is not None and _fingerprint(before) != known.fingerprint:
            return None
        sums = dict(known.sums)
        for number in range(known.snapshot_id + 1, latest + 1):
            step = document if number == latest else self._snapshots.document(number)
            if step is None:
                return None
            try:
                entries = delta_entries(self._files, self._name, self._path, step)
                fold(sums, entries, known.small_below_bytes)
            except (SnapshotNotFoundError, FactsDoNotAddUpError):
                return None
        records = sum(of_bucket.records for of_bucket in sums.values())
        return sums if records == document.get("totalRecordCount", records) else None


def _fingerprint(document: Mapping[str, Any]) -> str:
    text = json.dumps(
        [document.get(key) for key in ("id", "commitUser", "timeMillis", "deltaManifestList")]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]

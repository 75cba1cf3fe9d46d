"""The snapshots of one table: which is the latest, and what each file says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.paimon.files import WarehouseFiles
from lakehouse_dagster.paimon.types import Snapshot, SnapshotRange

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# In a range of more snapshots than this, listing the folder is cheaper than trying each.
_PROBE_AT_MOST = 16


class SnapshotFolder:
    """The ``snapshot`` folder of one table, or that of changelogs kept longer than snapshots.

    Args:
        files: of the warehouse.
        table_name: ``database.table``, for messages.
        table_path: folder of the table.
        kind: ``snapshot`` or ``changelog``; the files are alike.
    """

    def __init__(
        self, files: WarehouseFiles, table_name: str, table_path: str, kind: str = "snapshot"
    ) -> None:
        self._files = files
        self._table_name = table_name
        self._kind = kind
        self._folder = f"{table_path}/{kind}"

    def latest_id(self) -> int | None:
        """The id of the latest snapshot; ``None`` when there is none, or no table.

        Paimon writes the id into the file ``LATEST`` after each commit, but as a hint only: it can
        lag behind, or be missing or half-written for a moment. So it is believed when its snapshot
        exists and the next one does not, and the folder is listed otherwise (Paimon's
        ``HintFileUtils.findLatest``).
        """
        hint = self._files.read(f"{self._folder}/LATEST")
        hinted = _hinted_id(hint)
        if (
            hinted is not None
            and not self._files.exists(self._path(hinted + 1))
            and self._files.exists(self._path(hinted))
        ):
            return hinted
        found = self.listed_ids()
        if not found and hinted is not None and self._files.exists(f"{self._folder}/LATEST"):
            raise CatalogError(
                f"The table {self._table_name} has a snapshot {hinted} according to its file "
                "LATEST, but no snapshot file.",
                remedy=f"Look at {self._folder}: files of the table were deleted by hand.",
            )
        return max(found, default=None)

    def oldest_id(self) -> int | None:
        """The id of the oldest snapshot that still exists; ``None`` when there is none."""
        return min(self.listed_ids(), default=None)

    def document(self, snapshot_id: int) -> dict[str, Any] | None:
        """The snapshot's JSON; ``None`` when it has expired or was never made."""
        path = self._path(snapshot_id)
        content = self._files.read(path)
        if content is None:
            return None
        try:
            document = json.loads(content)
        except ValueError as error:
            raise CatalogError(
                f"The snapshot file {path} of the table {self._table_name} is not JSON: {error}"
            ) from error
        if not isinstance(document, dict):
            raise CatalogError(
                f"The snapshot file {path} of the table {self._table_name} holds no snapshot."
            )
        return document

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot; ``None`` when it has expired or was never made."""
        document = self.document(snapshot_id)
        return None if document is None else self.parsed(document)

    def between(self, after: int, upto: int) -> SnapshotRange:
        """The snapshots ``after + 1 … upto``, and the runs of ids that are missing among them."""
        ids: Iterable[int] = range(after + 1, upto + 1)
        if upto - after > _PROBE_AT_MOST:
            ids = sorted(number for number in self.listed_ids() if after < number <= upto)
        found = [snapshot for number in ids if (snapshot := self.snapshot(number)) is not None]
        return SnapshotRange(
            snapshots=tuple(found),
            expired=missing_runs(after, upto, [snapshot.id for snapshot in found]),
        )

    def parsed(self, document: Mapping[str, Any]) -> Snapshot:
        """A snapshot's JSON as a record.

        Raises:
            CatalogError: it lacks a field that Paimon's specification requires.
        """
        try:
            return Snapshot(
                id=int(document["id"]),
                schema_id=int(document["schemaId"]),
                commit_user=str(document["commitUser"]),
                commit_identifier=int(document["commitIdentifier"]),
                commit_kind=str(document["commitKind"]),
                committed_at=from_millis(document["timeMillis"]),
                watermark=_watermark(document.get("watermark")),
                delta_record_count=int(document.get("deltaRecordCount") or 0),
                changelog_record_count=_integer(document.get("changelogRecordCount")),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CatalogError(
                f"A snapshot of the table {self._table_name} cannot be understood: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _path(self, snapshot_id: int) -> str:
        return f"{self._folder}/{self._kind}-{snapshot_id}"

    def listed_ids(self) -> set[int]:
        """The ids that have a file."""
        names = self._files.names(self._folder)
        return {
            int(match[1])
            for name in names
            if (match := re.fullmatch(rf"{self._kind}-([1-9][0-9]*)", name))
        }


def missing_runs(after: int, upto: int, present: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The runs of ids in ``after + 1 … upto`` that are not present (ascending), ends included."""
    runs = []
    expected = after + 1
    for number in (*present, upto + 1):
        if number > expected:
            runs.append((expected, number - 1))
        expected = number + 1
    return tuple(runs)


def _hinted_id(content: bytes | None) -> int | None:
    text = (content or b"").strip()
    return int(text) if text.isdigit() else None


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def from_millis(milliseconds: Any) -> datetime:
    """A time as Paimon writes it: milliseconds since 1970, UTC."""
    return _EPOCH + timedelta(milliseconds=int(milliseconds))


def _watermark(milliseconds: Any) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return from_millis(milliseconds)
    except OverflowError:
        # Flink's Long.MIN_VALUE: no watermark yet; Long.MAX_VALUE: all sources have ended.
        return None

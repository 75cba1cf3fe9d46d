"""Puts a table's facts together: live files, snapshots, tags, branches and consumers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from lakehouse_dagster.errors import CatalogError, SnapshotNotFoundError, TableNotFoundError
from lakehouse_dagster.paimon.bucket_facts import BucketKey
from lakehouse_dagster.paimon.file_facts import (
    DYNAMIC_BUCKETS,
    SMALL_SHARE,
    BranchFacts,
    BucketFacts,
    ConsumerFacts,
    FactStore,
    StoredSums,
    TableFacts,
    TableKind,
    TagFacts,
    target_file_bytes,
)
from lakehouse_dagster.paimon.files import WarehouseFiles
from lakehouse_dagster.paimon.manifests import (
    both_lists,
    manifests_of,
    partition_texts,
    records_of,
)
from lakehouse_dagster.paimon.masking import masked
from lakehouse_dagster.paimon.snapshots import from_millis
from lakehouse_dagster.paimon.table_files import LiveFiles

F = TypeVar("F")
_REMEDY = (
    "Put it back from a copy. A consumer's or tag's may be deleted if nobody needs what it keeps."
)


class FactsReader:
    """Reads the facts of one table.

    Args:
        files: of the warehouse.
        name: ``database.table``.
        path: folder of the table.
        store: where the sums over files are remembered.
    """

    def __init__(self, files: WarehouseFiles, name: str, path: str, store: FactStore) -> None:
        self._files = files
        self._name = name
        self._path = path
        self._store = store

    def read(self) -> TableFacts:
        """The facts as of now; a table that cannot be looked into has a ``problem``.

        Raises:
            TableNotFoundError: there is no such table.
        """
        schema = self._newest_schema()
        try:
            return self._facts(schema)
        except (CatalogError, SnapshotNotFoundError) as error:
            return TableFacts(
                self._name,
                kind=_kind(schema),
                options=masked(schema.get("options", {})),
                problem=str(error),
            )

    def _facts(self, schema: Mapping[str, Any]) -> TableFacts:
        options: Mapping[str, str] = schema.get("options", {})
        target = target_file_bytes(options, _kind(schema))
        found = LiveFiles(self._files, self._name, self._path, self._store).sums(
            int(target * SMALL_SHARE)
        )
        base = TableFacts(
            self._name,
            kind=_kind(schema),
            schema_id=schema["id"],
            total_buckets=int(options.get("bucket", DYNAMIC_BUCKETS)),
            partition_keys=tuple(schema.get("partitionKeys", ())),
            tags=self._each("tag", "tag-", self._tag),
            branches=self._each("branch", "branch-", self._branch),
            consumers=self._each("consumer", "consumer-", self._consumer),
            options=masked(options),
        )
        if found is None:
            return base
        stored, document = found
        return self._with_snapshot(base, schema, stored, document)

    def _with_snapshot(
        self,
        base: TableFacts,
        schema: Mapping[str, Any],
        stored: StoredSums,
        document: Mapping[str, Any],
    ) -> TableFacts:
        snapshots = self._numbers("snapshot", "snapshot-")
        changelogs = self._numbers("changelog", "changelog-")
        oldest = self._json(f"snapshot/snapshot-{snapshots[0]}") if snapshots else None
        oldest_changelog = (
            self._json(f"changelog/changelog-{changelogs[0]}") if changelogs else None
        )
        buckets, manifests = self._of_snapshot(schema, stored, document)
        return replace(
            base,
            snapshot_id=document["id"],
            buckets=buckets,
            oldest_snapshot_id=snapshots[0] if snapshots else None,
            oldest_snapshot_at=from_millis(oldest["timeMillis"]) if oldest else None,
            newest_snapshot_at=from_millis(document["timeMillis"]),
            snapshot_count=len(snapshots),
            changelog_count=len(changelogs),
            oldest_changelog_id=changelogs[0] if changelogs else None,
            oldest_changelog_at=(
                from_millis(oldest_changelog["timeMillis"]) if oldest_changelog else None
            ),
            manifest_files=len(manifests),
            manifest_bytes=sum(manifests),
        )

    def _of_snapshot(
        self, schema: Mapping[str, Any], stored: StoredSums, document: Mapping[str, Any]
    ) -> tuple[tuple[BucketFacts, ...], tuple[int, ...]]:
        """The buckets' facts and the manifests' sizes: as long as the snapshot is the newest."""
        if stored.shown is None:
            manifests = tuple(
                manifest["_FILE_SIZE"]
                for manifest in manifests_of(
                    self._files, self._name, self._path, both_lists(document)
                )
            )
            buckets = self._buckets(schema, stored, self._deleted_records(document))
            # Frozen, but this is no part of what it is: only what has been worked out from it.
            object.__setattr__(stored, "shown", (buckets, manifests))
        return stored.shown or ((), ())

    def _buckets(
        self,
        schema: Mapping[str, Any],
        stored: StoredSums,
        deleted: Mapping[BucketKey, int],
    ) -> tuple[BucketFacts, ...]:
        texts = stored.partitions
        new = {partition for partition, _ in stored.sums} - texts.keys()
        texts.update(partition_texts(new, schema, self._files.options))
        return tuple(
            BucketFacts(
                partition=texts[key[0]],
                bucket=key[1],
                files=of_bucket.files,
                size_bytes=of_bucket.size_bytes,
                records=of_bucket.records,
                level0_files=of_bucket.files_of_level.get(0, 0),
                level0_bytes=of_bucket.bytes_of_level.get(0, 0),
                small_files=of_bucket.small_files,
                small_bytes=of_bucket.small_bytes,
                settled_bytes=of_bucket.settled_bytes,
                levels=len(of_bucket.files_of_level),
                deleted_records=deleted.get(key, 0),
            )
            for key, of_bucket in sorted(stored.sums.items())
        )

    def _deleted_records(self, document: Mapping[str, Any]) -> dict[BucketKey, int]:
        """Rows that deletion vectors mark, from the snapshot's index manifest."""
        name = document.get("indexManifest")
        if not name:
            return {}
        found: dict[BucketKey, int] = {}
        for entry in records_of(self._files, f"{self._path}/manifest/{name}", self._name):
            if entry["_INDEX_TYPE"] != "DELETION_VECTORS":
                continue
            key = (bytes(entry["_PARTITION"]).hex(), entry["_BUCKET"])
            ranges = entry.get("_DELETIONS_VECTORS_RANGES") or ()
            marked = sum(vector.get("_CARDINALITY") or 0 for vector in ranges)
            found[key] = found.get(key, 0) + marked
        return found

    # the folders beside the snapshots

    def _newest_schema(self) -> dict[str, Any]:
        numbers = self._numbers("schema", "schema-")
        schema = self._json(f"schema/schema-{numbers[-1]}") if numbers else None
        if schema is None:
            raise TableNotFoundError(
                f"The catalog has no table {self._name}.",
                remedy="Look at its name, or start the job that creates it.",
            )
        return schema

    def _numbers(self, folder: str, prefix: str) -> list[int]:
        names = self._files.names(f"{self._path}/{folder}")
        rest = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return sorted(int(number) for number in rest if number.isdigit())

    def _each(self, folder: str, prefix: str, read: Callable[[str], F | None]) -> dict[str, F]:
        """What ``read`` makes of each name in a folder; those that vanish meanwhile left out."""
        found = {}
        for name in self._files.names(f"{self._path}/{folder}"):
            if name.startswith(prefix):
                facts = read(f"{folder}/{name}")
                if facts is not None:
                    found[name.removeprefix(prefix)] = facts
        return found

    def _tag(self, path: str) -> TagFacts | None:
        document = self._json(path)
        if document is None:
            return None
        retained = document.get("tagTimeRetained")
        # Paimon writes the time of creation only for tags that have an end of their own.
        created_at = _local_time(document.get("tagCreateTime"))
        return TagFacts(
            int(document["id"]),
            created_at or self._files.modified_at(f"{self._path}/{path}"),
            float(retained) if isinstance(retained, (int, float)) else None,
        )

    def _branch(self, path: str) -> BranchFacts:
        numbers = self._numbers(f"{path}/snapshot", "snapshot-")
        names = self._files.names(f"{self._path}/{path}/tag")
        tags = tuple(name.removeprefix("tag-") for name in names if name.startswith("tag-"))
        # The tag that a branch is made from is copied into it; those made on it are of later ones.
        tagged = [tag.snapshot_id for t in tags if (tag := self._tag(f"{path}/tag/tag-{t}"))]
        return BranchFacts(
            numbers[0] if numbers else None,
            numbers[-1] if numbers else None,
            tags,
            min(tagged, default=None),
        )

    def _consumer(self, path: str) -> ConsumerFacts | None:
        document = self._json(path)
        if document is None:
            return None
        return ConsumerFacts(
            int(document["nextSnapshot"]), self._files.modified_at(f"{self._path}/{path}")
        )

    def _json(self, path: str) -> dict[str, Any] | None:
        content = self._files.read(f"{self._path}/{path}")
        if content is None:
            return None
        try:
            document = json.loads(content)
        except ValueError as error:
            raise CatalogError(
                f"{path} of the table {self._name} is not JSON: {error}.", remedy=_REMEDY
            ) from error
        if not isinstance(document, dict):
            raise CatalogError(
                f"{path} of the table {self._name} is not understood.", remedy=_REMEDY
            )
        return document


def _kind(schema: Mapping[str, Any]) -> TableKind:
    if not schema.get("primaryKeys"):
        return TableKind.APPEND
    engine = schema.get("options", {}).get("merge-engine", "deduplicate").lower()
    return TableKind.FIRST_ROW if engine == "first-row" else TableKind.PRIMARY_KEY


def _local_time(value: Any) -> datetime | None:
    """Paimon writes a tag's creation time as a list: year, month, day, hour, minute, …, nanos."""
    if not isinstance(value, list) or len(value) < 5:
        return None
    year, month, day, hour, minute, *rest = (int(part) for part in value)
    second = rest[0] if rest else 0
    return datetime(year, month, day, hour, minute, second).astimezone()  # in the writer's zone

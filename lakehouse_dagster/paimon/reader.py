"""Reads a catalog and its tables; nothing here ever writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import CatalogError, SnapshotNotFoundError, TableNotFoundError
from lakehouse_dagster.paimon.files import NoFiles, WarehouseFiles, translated_errors
from lakehouse_dagster.paimon.manifests import (
    changes_by_partition,
    delta_entries,
    files_by_partition,
    live_entries,
)
from lakehouse_dagster.paimon.masking import masked
from lakehouse_dagster.paimon.metastores import Metastore
from lakehouse_dagster.paimon.missing_files import named_in, needed_names
from lakehouse_dagster.paimon.places import Place, Places, RestPlaces, WarehouseLayout
from lakehouse_dagster.paimon.snapshots import SnapshotFolder
from lakehouse_dagster.paimon.types import (
    ColumnSchema,
    PartitionFiles,
    Snapshot,
    SnapshotChanges,
    SnapshotRange,
    TableSchema,
)

if TYPE_CHECKING:
    import pyarrow

    from lakehouse_dagster.paimon.catalog import PaimonCatalog
    from lakehouse_dagster.paimon.file_facts import FactStore, TableFacts

# Neither paths that lead out of the warehouse, nor Paimon's `table$branch_b` and system tables.
_TABLE_NAME = re.compile(r"^([^./$`\s][^./$`]*)\.([^./$`\s][^/$`]*)$")


class CatalogReader:
    """Reads the tables of a catalog; safe to use from several threads.

    Args:
        catalog: where the catalog is.
    """

    def __init__(self, catalog: PaimonCatalog) -> None:
        self.catalog = catalog
        asks_server = catalog.metastore == Metastore.REST
        self._places: Places = RestPlaces(catalog) if asks_server else WarehouseLayout(catalog)

    def databases(self) -> tuple[str, ...]:
        """The names of the databases.

        Raises:
            CatalogError: the warehouse does not exist or cannot be read.
        """
        return self._places.databases()

    def tables(self) -> tuple[str, ...]:
        """The tables of all databases, as ``database.table``.

        Raises:
            CatalogError: the warehouse does not exist or cannot be read.
        """
        return self._places.tables()

    def table(self, name: str) -> TableReader:
        """A reader of one table, which need not exist yet; nothing is read or asked.

        Args:
            name: ``database.table``.

        Raises:
            TableNotFoundError: no table can have such a name.
        """
        match = _TABLE_NAME.match(name)
        if match is None:
            raise TableNotFoundError(
                f"{name!r} is not the name of a table.", remedy="Write database.table."
            )
        return TableReader(self.catalog, self._places, match[1], match[2])


class TableReader:
    """Reads one table; made by :meth:`CatalogReader.table`."""

    def __init__(self, catalog: PaimonCatalog, places: Places, database: str, table: str) -> None:
        self.name = f"{database}.{table}"
        self._catalog = catalog
        self._find: Callable[[], Place] = lambda: places.place(database, table)

    def __repr__(self) -> str:
        return f"TableReader({self.name!r})"

    @property
    def _files(self) -> WarehouseFiles:
        return self._find().files

    @property
    def _path(self) -> str:
        return self._find().path

    @property
    def _snapshots(self) -> SnapshotFolder:
        place = self._find()
        return SnapshotFolder(place.files, self.name, place.path)

    @property
    def _changelogs(self) -> SnapshotFolder:
        place = self._find()
        return SnapshotFolder(place.files, self.name, place.path, "changelog")

    def exists(self) -> bool:
        """Whether the catalog has the table; one look, nothing is read."""
        return self._files.exists(f"{self._path}/schema")

    def schema(self) -> TableSchema:
        """The table's present schema.

        Raises:
            TableNotFoundError: there is no such table.
        """
        schema = self._paimon_schema()
        return TableSchema(
            columns=tuple(
                ColumnSchema(
                    name=field.name,
                    type=_flink_type(field.type),
                    nullable=bool(field.type.nullable),
                    comment=field.description or None,
                )
                for field in schema.fields
            ),
            primary_key=tuple(schema.primary_keys),
            partition_keys=tuple(schema.partition_keys),
            options=masked(schema.options),
            comment=schema.comment or None,
        )

    def latest_snapshot_id(self) -> int | None:
        """The id of the latest snapshot; ``None`` when there is none yet, or no table.

        Cheap (one small file read and two looked for): made for asking about every table in turn.
        """
        return self._snapshots.latest_id()

    def latest_snapshot(self) -> Snapshot | None:
        """The latest snapshot; ``None`` when there is none yet, or no table."""
        latest = self.latest_snapshot_id()
        return None if latest is None else self.snapshot(latest)

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot; ``None`` when it has expired or was never made."""
        return self._snapshots.snapshot(snapshot_id)

    def snapshots(self, after: int, upto: int) -> SnapshotRange:
        """The snapshots ``after + 1 … upto`` that still exist, and those that have expired.

        Args:
            after: the last snapshot that was seen before; 0 for none.
            upto: the last one wanted; ids that were never made do not count as expired.
        """
        latest = self.latest_snapshot_id() or 0
        return self._snapshots.between(after, min(upto, latest))

    def newest_snapshots(self, most: int) -> tuple[Snapshot, ...]:
        """At most so many of the newest snapshots, oldest first; none if there is none yet."""
        latest = self.latest_snapshot_id() or 0
        return self._snapshots.between(max(0, latest - most), latest).snapshots

    def newest_first(
        self, most: int, *, oldest: int = 1, since: datetime | None = None
    ) -> Iterator[Snapshot]:
        """The snapshots that are still there, read one by one from the newest back.

        Args:
            most: at most so many are looked for.
            oldest: the first one that is looked for.
            since: older ones are not looked at.
        """
        latest = self.latest_snapshot_id() or 0
        for number in range(latest, max(oldest - 1, latest - most), -1):
            snapshot = self.snapshot(number)
            if snapshot is None:
                continue  # it has expired meanwhile
            if since is not None and snapshot.committed_at < since:
                return
            yield snapshot

    def changes(self, snapshot_id: int) -> SnapshotChanges:
        """What one snapshot did to the table's files, by partition, from its manifests alone.

        Raises:
            SnapshotNotFoundError: the snapshot has expired or was never made.
            TableNotFoundError: there is no such table.
        """
        document = self._document(snapshot_id)
        snapshot = self._snapshots.parsed(document)
        entries = delta_entries(self._files, self.name, self._path, document)
        fields = self._partition_fields(snapshot.schema_id)
        return SnapshotChanges(snapshot, changes_by_partition(entries, fields, self._files.options))

    def partitions(self, snapshot_id: int) -> tuple[PartitionFiles, ...]:
        """The partitions that have data files in a snapshot, from all its manifests.

        Raises:
            SnapshotNotFoundError: the snapshot has expired or was never made.
            TableNotFoundError: there is no such table.
        """
        document = self._document(snapshot_id)
        entries = live_entries(self._files, self.name, self._path, document)
        fields = self._partition_fields(self._snapshots.parsed(document).schema_id)
        return files_by_partition(entries, fields, self._files.options)

    def facts(self, store: FactStore) -> TableFacts:
        """What decides which maintenance the table needs: files, snapshots, tags, readers.

        Args:
            store: remembers the sums over files, so that only new snapshots' manifests are read.

        Raises:
            TableNotFoundError: there is no such table.
        """
        from lakehouse_dagster.paimon.facts_reader import FactsReader

        return FactsReader(self._files, self.name, self._path, store).read()

    def missing_file(self, told: Iterable[str]) -> str | None:
        """A file that exceptions name, that the newest snapshot needs and that is not there.

        Args:
            told: texts of exceptions, with paths in them.

        Returns:
            Its path from the table's folder on; None if there is no such file.

        Raises:
            SnapshotNotFoundError: a manifest of the newest snapshot is gone.
        """
        named = {path for text in told if (path := named_in(text, self._path)) is not None}
        gone = {
            path.rsplit("/", 1)[-1]: path
            for path in named
            if not self._files.exists(f"{self._path}/{path}")
        }
        # Only then: what was gone before may be needed by an older snapshot alone.
        latest = self.latest_snapshot_id() if gone else None
        document = None if latest is None else self._snapshots.document(latest)
        if document is None:
            return None
        needed = needed_names(self._files, self.name, self._path, document)
        return next((gone[name] for name in needed if name in gone), None)

    def oldest_snapshot_id(self) -> int | None:
        """The id of the oldest snapshot that still exists; ``None`` when there is none."""
        return self._snapshots.oldest_id()

    def changelog_ids(self) -> tuple[int, ...]:
        """The ids of the snapshots that expired and whose changelogs are kept, in order."""
        return tuple(sorted(self._changelogs.listed_ids()))

    def changelog(self, snapshot_id: int) -> Snapshot | None:
        """What is left of an expired snapshot whose changelog is kept; ``None`` when it is not."""
        return self._changelogs.snapshot(snapshot_id)

    def read(
        self,
        columns: Sequence[str] | None = None,
        snapshot_id: int | None = None,
        limit: int | None = None,
    ) -> pyarrow.Table:
        """The table's rows, merged by key, as one Arrow table in memory.

        Args:
            columns: those wanted, in this order; all of them by default.
            snapshot_id: the snapshot to read; the latest by default.
            limit: at most so many rows.

        Raises:
            TableNotFoundError: there is no such table.
            SnapshotNotFoundError: the snapshot has expired or was never made.
            CatalogError: a column does not exist, or the rows cannot be read.
        """
        with translated_errors(f"read the table {self.name}", self._files.options):
            table = self._paimon_table()
            if snapshot_id is not None:
                if self.snapshot(snapshot_id) is None:
                    raise self._no_snapshot(snapshot_id)
                table = table.copy({"scan.snapshot-id": str(snapshot_id)})
            builder = table.new_read_builder()
            if columns is not None:
                self._refuse_unknown(columns, [field.name for field in table.fields])
                builder = builder.with_projection(list(columns))
            if limit is not None:
                builder = builder.with_limit(limit)
            return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def _paimon_table(self) -> Any:
        from pypaimon.common.identifier import Identifier
        from pypaimon.table.file_store_table import FileStoreTable

        place, schema = self._find(), self._paimon_schema()
        name = Identifier.from_string(self.name)
        return FileStoreTable(place.files.file_io, name, place.path, schema)

    def _partition_fields(self, schema_id: int) -> Sequence[Any]:
        """pypaimon's fields of the partition columns.

        Most tables have none, and its way to the schema takes longer than all the rest of a look.
        """
        if self._has_no_partitions(schema_id):
            return ()
        schema = self._paimon_schema()
        fields = {field.name: field for field in schema.fields}
        return [fields[key] for key in schema.partition_keys]

    def _has_no_partitions(self, schema_id: int) -> bool:
        """Whether the file of the schema says so; one that cannot be read says nothing."""
        content = self._files.read(f"{self._path}/schema/schema-{schema_id}")
        try:
            return bool(json.loads(content or b"")["partitionKeys"] == [])
        except (ValueError, KeyError, TypeError):
            return False

    def _paimon_schema(self) -> Any:
        place = self._find()
        with place.files.asked(f"read the schema of the table {self.name}"):
            from pypaimon.schema.schema_manager import SchemaManager

            # Folders that do not exist have no files, and no way to them.
            exists = not isinstance(place.files, NoFiles)
            schema = SchemaManager(place.files.file_io, place.path).latest() if exists else None
        if schema is None:
            raise TableNotFoundError(
                f"The catalog {self._catalog.name} ({self._catalog.warehouse}) has no table "
                f"{self.name}.",
                remedy="Look at its name, or start the job that creates it.",
            )
        return schema

    def _document(self, snapshot_id: int) -> dict[str, Any]:
        document = self._snapshots.document(snapshot_id)
        if document is None:
            # Tells a missing table from a missing snapshot.
            self._paimon_schema()
            raise self._no_snapshot(snapshot_id)
        return document

    def _no_snapshot(self, snapshot_id: int) -> SnapshotNotFoundError:
        return SnapshotNotFoundError(
            f"The table {self.name} has no snapshot {snapshot_id}: it has expired, or was never "
            "made.",
            remedy="Take a later snapshot, or keep snapshots longer (snapshot.time-retained).",
        )

    def _refuse_unknown(self, columns: Sequence[str], known: Sequence[str]) -> None:
        unknown = [column for column in columns if column not in known]
        if unknown:
            raise CatalogError(
                f"The table {self.name} has no column {', '.join(unknown)}.",
                remedy=f"Its columns are {', '.join(known)}.",
            )


_PLAIN_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_LOCAL_ZONED = re.compile(r"^TIMESTAMP(\(\d+\))? WITH LOCAL TIME ZONE$")


def _flink_type(data_type: Any) -> str:
    """A type as Flink SQL writes it, without NOT NULL at the top."""
    from pypaimon.schema import data_types

    if isinstance(data_type, data_types.RowType):
        fields = (f"{_quoted(f.name)} {_nested_type(f.type)}" for f in data_type.fields)
        return f"ROW<{', '.join(fields)}>"
    if isinstance(data_type, data_types.MapType):
        return f"MAP<{_nested_type(data_type.key)}, {_nested_type(data_type.value)}>"
    if isinstance(data_type, data_types.ArrayType):
        return f"ARRAY<{_nested_type(data_type.element)}>"
    if isinstance(data_type, data_types.MultisetType):
        return f"MULTISET<{_nested_type(data_type.element)}>"
    if isinstance(data_type, data_types.AtomicType):
        return _LOCAL_ZONED.sub(r"TIMESTAMP_LTZ\1", data_type.type)
    return str(data_type).removesuffix(" NOT NULL")


def _nested_type(data_type: Any) -> str:
    return _flink_type(data_type) + ("" if data_type.nullable else " NOT NULL")


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"

"""The state that a script builds up: current catalog and database, options, known relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from lakehouse_dagster.sql import columns
from lakehouse_dagster.sql.lineage import RelationColumns
from lakehouse_dagster.sql.model import (
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
    unique,
)
from lakehouse_dagster.sql.parsing import may_be_alias, name_parts, qualify, tables_read
from lakehouse_dagster.sql.sources import catalog_key
from lakehouse_dagster.sql.tables import TableBody
from lakehouse_dagster.sql.unit import Asked, CatalogDefinition, Externals
from lakehouse_dagster.sql.variables import placeholder_in

LAKE_DATABASE = "default"
"""Current database of a Paimon catalog that is newly used."""

FLINK_CATALOG = "default_catalog"
FLINK_DATABASE = "default_database"


@dataclass(frozen=True)
class UnknownRelation:
    """A table or view of which nobody knows what stands behind it; ``reason`` says why."""

    name: TableName
    reason: str

    @staticmethod
    def unreadable(name: TableName) -> UnknownRelation:
        """One whose CREATE cannot be read."""
        return UnknownRelation(name, f"the CREATE statement of {name} is not readable")


Relation = TableDefinition | SourceDefinition | ViewDefinition | UnknownRelation


@dataclass(frozen=True)
class Reads:
    """What a query reads, as far as it can be told; ``unknown`` says what cannot, and why."""

    tables: tuple[TableName, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    unknown: tuple[str, ...] = ()


class Elsewhere:
    """What other units declare, and which of it was asked for."""

    def __init__(self, externals: Externals) -> None:
        self._externals = externals
        self._asked_relations: dict[TableName, None] = {}
        self._asked_catalogs: dict[str, None] = {}
        self._asked_functions: dict[str, None] = {}

    def relation(self, name: TableName) -> Relation | None:
        """What another unit declares under a name."""
        self._asked_relations[name] = None
        return self._externals.relations.get(name)

    def catalog(self, name: str) -> CatalogDefinition | None:
        """A catalog that another unit creates."""
        self._asked_catalogs[name] = None
        return self._externals.kinds.get(name)

    def has_function(self, name: str) -> bool:
        """Whether another unit creates a function of that name."""
        self._asked_functions[name] = None
        return name.lower() in self._externals.function_names

    @property
    def asked(self) -> Asked:
        """All that was asked for so far."""
        return Asked(
            tuple(self._asked_relations), tuple(self._asked_catalogs), tuple(self._asked_functions)
        )


@dataclass
class Session:
    """What Flink would hold in the session that runs the script."""

    lake: str
    elsewhere: Elsewhere
    other_catalogs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    catalog: str = ""
    database: str = LAKE_DATABASE
    settings: dict[str, str] = field(default_factory=dict)
    temporary: dict[TableName, Relation] = field(default_factory=dict)
    lasting: dict[TableName, Relation] = field(default_factory=dict)
    bodies: dict[TableName, TableBody] = field(default_factory=dict, repr=False)
    """What the session's own CREATE TABLEs say, unmasked and with variables filled in."""
    chosen: bool = False
    """Whether the session has said where it is: it begins in the lake's catalog."""
    catalogs: dict[str, CatalogDefinition] = field(default_factory=dict)
    """Catalogs that the session creates besides the lake's, by name."""
    functions: set[str] = field(default_factory=set)
    """Functions that the session creates, in lower case."""
    brings_functions: bool = False
    """Whether it loads modules or catalogs, which may hold functions that no script creates."""

    def __post_init__(self) -> None:
        self.catalog = self.catalog or self.lake

    def use_catalog(self, catalog: str) -> None:
        """Make a catalog current, and its first database with it."""
        self.catalog = catalog
        self.chosen = True
        known = None if catalog == self.lake else self._catalog(catalog)
        self.database = LAKE_DATABASE if known is None else known.database
        if catalog == FLINK_CATALOG:
            self.database = FLINK_DATABASE

    def use_database(self, parts: tuple[str, ...]) -> None:
        """Make a database current, and its catalog where the name has two parts."""
        if len(parts) > 1:
            self.catalog = parts[-2]
        self.database = parts[-1]
        self.chosen = True

    def resolve(self, parts: tuple[str, ...]) -> TableName:
        """Complete a written name."""
        return qualify(parts, self.catalog, self.database)

    def find(self, name: TableName) -> Relation | None:
        """What stands behind a complete name, here or in another unit."""
        relation = self.temporary.get(name) or self.lasting.get(name)
        if relation is None and name.catalog != FLINK_CATALOG:
            relation = self.elsewhere.relation(name)
        return relation or self._mistaken(name)

    def _mistaken(self, name: TableName) -> UnknownRelation | None:
        """A table of the lake that nobody declares, where Flink's own catalog has one so named.

        A script that was written for a session that begins in Flink's own catalog means that one.
        """
        own = TableName(FLINK_CATALOG, FLINK_DATABASE, name.table)
        is_first = (name.catalog, name.database) == (self.lake, LAKE_DATABASE)
        if self.chosen or not is_first or not (own in self.temporary or own in self.lasting):
            return None
        return UnknownRelation(
            name, f"{own} is declared, but the session begins in the catalog {self.lake}"
        )

    def _catalog(self, name: str) -> CatalogDefinition | None:
        return self.catalogs.get(name) or self.elsewhere.catalog(name)

    def body_of(self, name: TableName) -> TableBody | None:
        """What is known of a table, for a table that is LIKE it or for ALTER; None if nothing."""
        own = self.bodies.get(name)
        if own is not None:
            return own
        relation = self.find(name)
        if isinstance(relation, TableDefinition):
            return TableBody(
                relation.columns,
                relation.primary_key,
                relation.partition_keys,
                relation.options,
                columns_known=relation.columns_known,
            )
        if isinstance(relation, SourceDefinition):
            known = bool(relation.columns)
            return TableBody(relation.columns, options=relation.options, columns_known=known)
        return None

    def catalog_kind(self, name: str) -> str | None:
        """The kind of a catalog other than the lake's; None if nobody creates it."""
        if name in (FLINK_CATALOG, self.lake):
            return None
        known = self._catalog(name)
        return None if known is None else known.kind

    def outside_key(self, name: TableName) -> tuple[str, ...] | None:
        """Key of a table of another catalog; None if that catalog is not known."""
        if name.catalog in self.other_catalogs:
            prefix = self.other_catalogs[name.catalog]
            return (*prefix, name.database, base_table(name).table)
        kind = self.catalog_kind(name.catalog)
        return None if kind is None else catalog_key(kind, name.database, base_table(name).table)

    def reads_of(self, query: exp.Expr) -> Reads:
        """Tell what a query reads, views expanded."""
        found = [
            self.reads_of_name(name_parts(table))
            for table in tables_read(query)
            if not (may_be_alias(table) and self.find(self.resolve(name_parts(table))) is None)
        ]
        return Reads(
            tables=unique(t for reads in found for t in reads.tables),
            sources=unique(s for reads in found for s in reads.sources),
            unknown=unique(u for reads in found for u in reads.unknown),
        )

    def reads_of_name(self, parts: tuple[str, ...]) -> Reads:
        """Tell what reading one name reads."""
        name = self.resolve(parts)
        stands_for = placeholder_in(str(name))
        if stands_for is not None:
            return Reads(unknown=(f"the name {name} depends on {stands_for}, which is not set",))
        relation = self.find(name)
        if isinstance(relation, SourceDefinition):
            return Reads(sources=(relation.asset_key,))
        if isinstance(relation, ViewDefinition):
            unknown = () if relation.dependencies_known else (f"the view {name} is not readable",)
            return Reads(relation.reads, relation.sources, unknown)
        if isinstance(relation, UnknownRelation):
            return Reads(unknown=(relation.reason,))
        if name.catalog == self.lake:
            return Reads(tables=(base_table(name),))
        key = self.outside_key(name)
        if key is not None:
            return Reads(sources=(key,))
        return Reads(unknown=(f"no statement of the script declares {name}",))

    def columns_of_name(self, parts: tuple[str, ...]) -> RelationColumns:
        """Tell what the columns of a name in FROM are made from: the lookup of the lineage."""
        name = self.resolve(parts)
        if placeholder_in(str(name)) is not None:
            return RelationColumns(None)
        relation = self.find(name)
        if isinstance(relation, SourceDefinition):
            body = self.bodies.get(name)
            return columns.of_source(relation, body.computed if body else None)
        if isinstance(relation, ViewDefinition):
            return RelationColumns(relation.columns, relation.row_filters)
        if isinstance(relation, UnknownRelation):
            return RelationColumns(None)
        if isinstance(relation, TableDefinition):
            return columns.of_table(relation)
        if name.catalog == self.lake:
            base = base_table(name)
            if base != name:
                return columns.of_system_table(name, self.find(base))
            return RelationColumns(None, base=(name, None))
        key = self.outside_key(name)
        return RelationColumns(None, base=None if key is None else (None, key))


def base_table(name: TableName) -> TableName:
    """Return the table of a Paimon system table or branch, such as ``orders$audit_log``."""
    table = name.table.split("$")[0]
    return TableName(name.catalog, name.database, table or name.table)

"""The state that a script builds up: current catalog and database, options, known relations."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from lakehouse_dagster.sql.model import (
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
    unique,
)
from lakehouse_dagster.sql.parsing import name_parts, qualify, tables_read
from lakehouse_dagster.sql.sources import source_key

LAKE_DATABASE = "default"
"""Current database of a Paimon catalog that is newly used."""

FLINK_CATALOG = "default_catalog"
FLINK_DATABASE = "default_database"


@dataclass(frozen=True)
class UnknownRelation:
    """A table or view whose CREATE cannot be read: nobody knows what stands behind it."""

    name: TableName


Relation = TableDefinition | SourceDefinition | ViewDefinition | UnknownRelation


@dataclass(frozen=True)
class Reads:
    """What a query reads, as far as it can be told; ``unknown`` says what cannot, and why."""

    tables: tuple[TableName, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass
class Session:
    """What Flink would hold in the session that runs the script."""

    lake: str
    catalog: str = ""
    database: str = LAKE_DATABASE
    settings: dict[str, str] = field(default_factory=dict)
    relations: dict[TableName, Relation] = field(default_factory=dict)
    foreign_catalogs: dict[str, str] = field(default_factory=dict)
    """Catalogs that the script creates besides the lake's: type by name."""

    def __post_init__(self) -> None:
        self.catalog = self.catalog or self.lake

    def use_catalog(self, catalog: str) -> None:
        """Make a catalog current, and its first database with it."""
        self.catalog = catalog
        self.database = FLINK_DATABASE if catalog == FLINK_CATALOG else LAKE_DATABASE

    def use_database(self, parts: tuple[str, ...]) -> None:
        """Make a database current, and its catalog where the name has two parts."""
        if len(parts) > 1:
            self.catalog = parts[-2]
        self.database = parts[-1]

    def resolve(self, parts: tuple[str, ...]) -> TableName:
        """Complete a written name."""
        return qualify(parts, self.catalog, self.database)

    def reads_of(self, query: exp.Expr) -> Reads:
        """Tell what a query reads, views expanded."""
        found = [self.reads_of_name(name_parts(table)) for table in tables_read(query)]
        return Reads(
            tables=unique(t for reads in found for t in reads.tables),
            sources=unique(s for reads in found for s in reads.sources),
            unknown=unique(u for reads in found for u in reads.unknown),
        )

    def reads_of_name(self, parts: tuple[str, ...]) -> Reads:
        """Tell what reading one name reads."""
        name = self.resolve(parts)
        if "${" in str(name):
            return Reads(unknown=(f"the name {name} holds a variable",))
        relation = self.relations.get(name)
        if isinstance(relation, SourceDefinition):
            return Reads(sources=(relation.asset_key,))
        if isinstance(relation, ViewDefinition):
            unknown = () if relation.dependencies_known else (f"the view {name} is not readable",)
            return Reads(relation.reads, relation.sources, unknown)
        if isinstance(relation, UnknownRelation):
            return Reads(unknown=(f"the CREATE statement of {name} is not readable",))
        if name.catalog == self.lake:
            return Reads(tables=(base_table(name),))
        if name.catalog in self.foreign_catalogs:
            kind = self.foreign_catalogs[name.catalog]
            return Reads(sources=((*source_key(kind, name.database, {}), name.table),))
        return Reads(unknown=(f"no statement of the script declares {name}",))


def base_table(name: TableName) -> TableName:
    """Return the table of a Paimon system table or branch, such as ``orders$audit_log``."""
    table = name.table.split("$")[0]
    return TableName(name.catalog, name.database, table or name.table)

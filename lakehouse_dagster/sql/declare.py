"""What CREATE and ALTER make known: tables, sources, views, catalogs, functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql import parsing, tables, written
from lakehouse_dagster.sql.alter import NotFollowedError, altered
from lakehouse_dagster.sql.lineage import QueryLineage, query_lineage
from lakehouse_dagster.sql.model import (
    Column,
    ColumnLineage,
    Flow,
    Location,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableDefinition,
    TableName,
    ViewDefinition,
)
from lakehouse_dagster.sql.parsing import UnreadableStatementError
from lakehouse_dagster.sql.relations import Found, Relations
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.session import LAKE_DATABASE, Session, UnknownRelation
from lakehouse_dagster.sql.sources import catalog_kind, connector_of, mask_secrets, source_key
from lakehouse_dagster.sql.tables import TableBody
from lakehouse_dagster.sql.unit import CatalogDefinition
from lakehouse_dagster.sql.variables import Filled, placeholder_in

_CREATE_WORDS = ("CREATE", "OR", "REPLACE", "TEMPORARY", "TABLE", "VIEW", "IF", "NOT", "EXISTS")
_VIEWS = (StatementKind.CREATE_VIEW, StatementKind.CREATE_TEMPORARY_VIEW)
_NOWHERE = Location("", 1, 1)


@dataclass(frozen=True)
class _CreatedTable:
    parts: tuple[str, ...]
    temporary: bool
    body: TableBody


class DeclarationReader:
    """Reads the statements of a session that declare something."""

    def __init__(
        self, session: Session, report: Report, fill: Callable[[Statement], Filled]
    ) -> None:
        self._session = session
        self._report = report
        self._fill = fill
        self._relations = Relations(session, report)

    def begin_file(self) -> Found:
        """Let what is declared from here on be another file's; where it will be."""
        return self._relations.begin_file()

    def catalog(self, statement: Statement) -> bool:
        """Read CREATE CATALOG; return whether the session needs the statement.

        Whoever runs the job makes the lake's catalog, from its declaration.
        """
        tree = self._create(statement)
        name = tables.created_table(tree).name
        options = tables.options_of(tree)
        kind = catalog_kind(options)
        if name == self._session.lake:
            return False
        database = options.get("default-database", LAKE_DATABASE)
        self._session.catalogs[name] = CatalogDefinition(name, kind, database)
        self._session.brings_functions = True
        if kind == "paimon" and name not in self._session.other_catalogs:
            self._report(
                statement,
                Severity.WARNING,
                f"The Paimon catalog {name} is not the lake's catalog, {self._session.lake}: its "
                "tables are not assets of the lake.",
                f"Name the lake's catalog {name} if it is the same one, or declare it as another "
                "catalog of the project.",
            )
        return True

    def function(self, statement: Statement) -> None:
        """Read CREATE FUNCTION."""
        words = ("CREATE", "TEMPORARY", "SYSTEM", "FUNCTION", "IF", "NOT", "EXISTS")
        parts = written.name_after(statement.text, *words)
        if parts:
            self._session.functions.add(parts[-1].lower())
        self._create(statement)

    def table(self, statement: Statement) -> None:
        """Read CREATE TABLE, temporary or not."""
        filled = self._fill(statement)
        try:
            created = self._created_table(statement, filled.text)
        except UnreadableStatementError:
            self.declare_unreadable(statement)
            raise
        name = self._created_name(created.parts, statement)
        body = created.body
        if body.like:
            body = body.like_table(self._session.body_of(self._session.resolve(body.like)))
        self._keep(statement, name, body, created.temporary, filled)

    def table_as(self, statement: Statement, fills: Callable[[exp.Expr, TableName], Flow]) -> Flow:
        """Read CREATE TABLE … AS, and return what fills the table."""
        filled = self._fill(statement)
        try:
            tree = self._create(statement)
            query = tree.expression
            if query is None:
                raise UnreadableStatementError("It has no query.", statement.location)
        except UnreadableStatementError:
            self.declare_unreadable(statement)
            raise
        name = self._created_name(parsing.name_parts(tables.created_table(tree)), statement)
        flow = fills(query, name)
        body = _with_query_columns(tables.table_body(tree), flow.columns)
        self._keep(statement, name, body, tables.is_temporary(tree), filled, filled_by=flow)
        return flow

    def view(self, statement: Statement) -> None:
        """Read CREATE VIEW, temporary or not."""
        try:
            tree = self._create(statement)
            if tree.expression is None:
                raise UnreadableStatementError("It has no query.", statement.location)
        except UnreadableStatementError:
            self.declare_unreadable(statement)
            raise
        name = self._created_name(parsing.name_parts(tables.created_table(tree)), statement)
        names = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
        self._declare_view(
            statement,
            name,
            tree.expression,
            tuple(column.name for column in names),
            temporary=tables.is_temporary(tree),
        )

    def alter(self, statement: Statement) -> None:
        """Follow ALTER TABLE and ALTER VIEW; a table whose outcome is not certain is unknown."""
        words = ("ALTER", "TABLE", "TEMPORARY", "VIEW", "IF", "EXISTS")
        parts = written.name_after(self._fill(statement).text, *words)
        name = self._session.resolve(parts) if parts else None
        try:
            tree = parsing.parse(self._filled(statement), written=statement)
        except UnreadableStatementError:
            self._relations.forget_columns(name)
            raise
        action = tree.args.get("action")
        if not isinstance(tree, nodes.AlterObject) or not isinstance(action, nodes.AlterAction):
            self._relations.forget_columns(name)
            return
        if tree.args["kind"] == "TABLE" and name is not None:
            self._alter_table(statement, name, action)
        elif tree.args["kind"] == "VIEW" and name is not None:
            self._alter_view(statement, name, action)

    def drop_temporary(self, statement: Statement) -> None:
        """Read DROP TEMPORARY TABLE or VIEW: what it hid shows again."""
        words = ("DROP", "TEMPORARY", "TABLE", "VIEW", "IF", "EXISTS")
        parts = written.name_after(self._fill(statement).text, *words)
        if parts:
            self._session.temporary.pop(self._session.resolve(parts), None)

    def declare_unreadable(self, statement: Statement) -> None:
        """Remember a table or view that exists, of which nothing but the name is known."""
        text = self._fill(statement).text
        parts = written.name_after(text, *_CREATE_WORDS)
        name = self._session.resolve(parts) if parts else None
        if name is None or placeholder_in(str(name)) is not None:
            return
        temporary = statement.kind in (
            StatementKind.CREATE_TEMPORARY_TABLE,
            StatementKind.CREATE_TEMPORARY_VIEW,
        )
        if statement.kind in _VIEWS:
            unknown = ViewDefinition(name, temporary, (), (), False, statement.location)
            self._relations.declare_view(unknown)
        elif temporary:
            self._relations.remember(UnknownRelation.unreadable(name), temporary=True)
        elif written.option(text, "connector") not in (None, "paimon"):
            self._relations.remember(UnknownRelation.unreadable(name), temporary=False)
        elif name.catalog == self._session.lake:
            self._relations.declare_table(
                TableDefinition(name, (), (), (), {}, None, statement.location, columns_known=False)
            )
        elif self._session.outside_key(name) is None:
            self._relations.remember(UnknownRelation.unreadable(name), temporary=False)

    # tables

    def _created_table(self, statement: Statement, text: str) -> _CreatedTable:
        try:
            return _read_table(text)
        except UnreadableStatementError:
            # Once more, for the reason with its place in this script.
            tree = self._create(statement)
            return _created_table(tree)

    def _keep(
        self,
        statement: Statement,
        name: TableName,
        body: TableBody,
        temporary: bool,
        filled: Filled,
        filled_by: Flow | None = None,
    ) -> None:
        """Remember a table: one of the lake, a source, or one of which too little is known."""
        connector = connector_of(body.options)
        in_lake = name.catalog == self._session.lake and not temporary
        self._session.bodies[name] = body
        options = mask_secrets({key: filled.shown(value) for key, value in body.options.items()})
        if in_lake and connector in ("", "paimon"):
            self._relations.declare_table(
                TableDefinition(
                    name=name,
                    columns=body.columns,
                    primary_key=body.primary_key,
                    partition_keys=body.partition_keys,
                    options=options,
                    comment=body.comment,
                    location=statement.location,
                    columns_known=body.columns_known,
                    filled_by=filled_by,
                )
            )
            return
        if in_lake:
            self._report(
                statement,
                Severity.WARNING,
                f"A Paimon catalog takes no table of connector {connector!r}.",
                "Write CREATE TEMPORARY TABLE.",
            )
        outside = None if temporary or connector else self._session.outside_key(name)
        if not connector and outside is None and (body.like or not body.columns_known):
            reason = f"no statement of the script declares the catalog of {name}"
            self._relations.remember(UnknownRelation(name, reason), temporary=temporary)
            return
        kind = self._session.catalog_kind(name.catalog) or "unknown"
        self._relations.declare_source(
            SourceDefinition(
                name=name,
                connector=connector or kind,
                asset_key=outside or source_key(connector or kind, name.table, body.options),
                columns=body.columns if body.columns_known else (),
                options=options,
                location=statement.location,
            ),
            temporary=temporary,
        )

    # views

    def _declare_view(
        self,
        statement: Statement,
        name: TableName,
        query: exp.Expr,
        names: tuple[str, ...],
        *,
        temporary: bool,
    ) -> None:
        reads = self._session.reads_of(query)
        found = self._lineage(statement, query)
        # A view that leads back to itself has been read half, in an earlier round.
        closed = name in reads.tables
        self._relations.declare_view(
            ViewDefinition(
                name=name,
                temporary=temporary,
                reads=tuple(table for table in reads.tables if table != name),
                sources=reads.sources,
                dependencies_known=not reads.unknown and not closed,
                location=statement.location,
                columns=None if closed else _named(found.columns, names),
                row_filters=() if closed else found.row_filters,
            )
        )

    def _lineage(self, statement: Statement, query: exp.Expr) -> QueryLineage:
        try:
            return query_lineage(query, self._session.columns_of_name)
        except Exception as error:  # noqa: BLE001 - dependencies are known all the same
            self._report.failed(statement, error)
            return QueryLineage(None, ())

    # ALTER

    def _alter_table(
        self, statement: Statement, name: TableName, action: nodes.AlterAction
    ) -> None:
        if action.args["kind"] not in ("SET", "RESET"):
            self._report(
                statement,
                Severity.WARNING,
                "ALTER TABLE fails when it is run again at the job's next start.",
                "Change the CREATE TABLE, and alter the table once, outside of the script.",
            )
        body = self._session.bodies.get(name)
        if body is None or self._relations.get(name) is None:
            return
        if action.args["kind"] == "RENAME TO":
            self._relations.rename(name, parsing.name_parts(action.this)[-1])
            return
        try:
            self._relations.become(name, altered(body, action), self._fill(statement))
        except NotFollowedError:
            self._relations.forget_columns(name)

    def _alter_view(self, statement: Statement, name: TableName, action: nodes.AlterAction) -> None:
        known = self._relations.get(name)
        if not isinstance(known, ViewDefinition):
            return
        if action.args["kind"] == "AS" and action.this is not None:
            self._declare_view(statement, name, action.this, (), temporary=known.temporary)
        elif action.args["kind"] == "RENAME TO":
            new = replace(name, table=parsing.name_parts(action.this)[-1])
            self._relations.declare_view(replace(known, name=new))

    # helpers

    def _filled(self, statement: Statement) -> Statement:
        return replace(statement, text=self._fill(statement).text)

    def _create(self, statement: Statement) -> exp.Create:
        tree = parsing.parse(self._filled(statement), written=statement)
        if not isinstance(tree, exp.Create):
            raise UnreadableStatementError("It is no CREATE statement.", statement.location)
        return tree

    def _created_name(self, parts: tuple[str, ...], statement: Statement) -> TableName:
        name = self._session.resolve(parts)
        stands_for = placeholder_in(str(name))
        if stands_for is not None:
            reason = f"The name {name} depends on {stands_for}, which is not set."
            raise UnreadableStatementError(reason, statement.location)
        return name


@lru_cache(maxsize=20_000)
def _read_table(text: str) -> _CreatedTable:
    """Read a CREATE TABLE; kept, because every unit is read twice and a prelude for each."""
    statement = Statement(text, _NOWHERE, StatementKind.CREATE_TABLE)
    return _created_table(parsing.parse(statement))


def _created_table(tree: exp.Expr) -> _CreatedTable:
    if not isinstance(tree, exp.Create):
        raise UnreadableStatementError("It is no CREATE statement.", _NOWHERE)
    parts = parsing.name_parts(tables.created_table(tree))
    return _CreatedTable(parts, tables.is_temporary(tree), tables.table_body(tree))


def _with_query_columns(body: TableBody, columns: tuple[ColumnLineage, ...] | None) -> TableBody:
    """The columns of CREATE TABLE … AS: the query's, by name, with what is declared of them."""
    if columns is None:
        return replace(body, columns_known=False)
    declared = {column.name: column for column in body.columns}
    key = set(body.primary_key)
    from_query = tuple(
        declared.get(c.column) or Column(c.column, "", nullable=c.column not in key)
        for c in columns
    )
    own = tuple(c for c in body.columns if c.name not in {column.name for column in from_query})
    return replace(body, columns=(*own, *from_query), columns_known=True)


def _named(
    columns: tuple[ColumnLineage, ...] | None, names: tuple[str, ...]
) -> tuple[ColumnLineage, ...] | None:
    """A view's columns under the names that it gives them."""
    if columns is None or not names:
        return columns
    if len(columns) != len(names):
        return None
    return tuple(replace(column, column=name) for column, name in zip(columns, names, strict=True))

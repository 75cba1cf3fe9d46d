"""Goes through a script's statements in order, as a session would, and gathers what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from lakehouse_dagster.sql import parsing, tables
from lakehouse_dagster.sql.jobs import JobReader, name_jobs
from lakehouse_dagster.sql.model import (
    JobDefinition,
    Location,
    Problem,
    Script,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableDefinition,
    TableName,
    ViewDefinition,
    beginning,
)
from lakehouse_dagster.sql.parsing import READER_FAILED, UnreadableStatementError
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.session import Session, UnknownRelation
from lakehouse_dagster.sql.settings import parse_reset, parse_set
from lakehouse_dagster.sql.sources import is_sink_only, mask_secrets, source_key
from lakehouse_dagster.sql.statements import LineIndex, is_closed_set, split

_CREATE_WORDS = ("CREATE", "OR", "REPLACE", "TEMPORARY", "TABLE", "VIEW", "IF", "NOT", "EXISTS")
_CHECKED = (StatementKind.CREATE_DATABASE, StatementKind.CREATE_FUNCTION)
_UNTERMINATED = {
    TokenKind.OPEN_STRING: ("string", "'"),
    TokenKind.OPEN_NAME: ("quoted name", "`"),
    TokenKind.OPEN_COMMENT: ("comment", "*/"),
}


class ScriptReader:
    """Reads one script; use once."""

    def __init__(self, text: str, path: str, *, stem: str, lake: str) -> None:
        self._text = text
        self._path = path
        self._stem = stem
        self._session = Session(lake=lake)
        self._setup: list[Statement] = []
        self._tables: dict[TableName, TableDefinition] = {}
        self._sources: list[SourceDefinition] = []
        self._views: list[ViewDefinition] = []
        self._problems: list[Problem] = []
        self._jobs = JobReader(self._session, self._problem)
        self._handlers: dict[StatementKind, Callable[[Statement], None]] = {
            StatementKind.SET: self._set,
            StatementKind.RESET: self._reset,
            StatementKind.USE: self._use,
            StatementKind.CREATE_CATALOG: self._create_catalog,
            StatementKind.CREATE_TABLE: self._create_table,
            StatementKind.CREATE_TEMPORARY_TABLE: self._create_table,
            StatementKind.CREATE_TABLE_AS: self._create_table,
            StatementKind.CREATE_VIEW: self._create_view,
            StatementKind.CREATE_TEMPORARY_VIEW: self._create_view,
            StatementKind.ALTER: self._alter,
            StatementKind.DROP: self._drop,
            StatementKind.DROP_TEMPORARY: self._drop_temporary,
            StatementKind.ACTION: self._action,
            StatementKind.CREATE_OTHER: self._create_other,
            StatementKind.UNKNOWN: self._unknown,
        }
        self._keeps_in_setup = True

    def read(self) -> Script:
        """Read the script."""
        self._check_text()
        statements = split(self._text, self._path)
        if not statements:
            message = "The script holds no statement."
            self._error(Location(self._path, 1, 1), message, "Leave it out of the scripts.")
        for statement in statements:
            self._read_statement(statement)
        jobs = name_jobs(self._jobs.found, self._stem, self._problem)
        return Script(
            path=self._path,
            statements=statements,
            tables=tuple(self._tables.values()),
            sources=self._sources_read(jobs),
            views=tuple(self._views),
            jobs=jobs,
            problems=tuple(self._problems),
        )

    def _read_statement(self, statement: Statement) -> None:
        if statement.kind in (StatementKind.INSERT, StatementKind.STATEMENT_SET):
            if statement.kind is StatementKind.STATEMENT_SET and not is_closed_set(statement):
                message = "The statement set is not closed by END."
                self._error(statement.location, message, "Write END; after its last INSERT.")
            self._jobs.read(statement, tuple(self._setup))
            return
        self._keeps_in_setup = statement.kind not in (
            StatementKind.SET,
            StatementKind.RESET,
            StatementKind.QUERY,
        )
        handler = self._handlers.get(statement.kind)
        try:
            if handler:
                handler(statement)
            elif statement.kind in _CHECKED:
                parsing.parse(statement)
        except UnreadableStatementError as error:
            self._unreadable(statement, error)
        except Exception as error:  # noqa: BLE001 - a script must not stop a project's loading
            reason = f"{READER_FAILED} ({type(error).__name__})."
            self._unreadable(statement, UnreadableStatementError(reason, statement.location))
        if self._keeps_in_setup:
            self._setup.append(statement)

    # what single statements do

    def _set(self, statement: Statement) -> None:
        option = parse_set(statement.text)
        if option is not None:
            self._session.settings[option[0]] = option[1]
        elif statement.text.strip().upper() != "SET":
            reason = "It is not of the form SET 'key' = 'value'."
            raise UnreadableStatementError(reason, statement.location)

    def _reset(self, statement: Statement) -> None:
        key = parse_reset(statement.text)
        if key is None:
            self._session.settings.clear()
        else:
            self._session.settings.pop(key, None)

    def _use(self, statement: Statement) -> None:
        tree = parsing.parse(statement)
        kind = tree.args.get("kind")
        if kind is not None and kind.name == "CATALOG":
            self._session.use_catalog(tree.this.name)
        elif kind is None and isinstance(tree.this, exp.Table):
            self._session.use_database(parsing.name_parts(tree.this))

    def _create_catalog(self, statement: Statement) -> None:
        tree = _create(parsing.parse(statement), statement)
        name = tables.created_table(tree).name
        kind = tables.options_of(tree).get("type", "unknown")
        if name == self._session.lake:
            # Whoever runs the job makes the lake's catalog, from its declaration.
            self._keeps_in_setup = False
            return
        self._session.foreign_catalogs[name] = kind
        if kind == "paimon":
            self._problem(
                statement,
                Severity.WARNING,
                f"The Paimon catalog {name} is not the lake's catalog, {self._session.lake}: its "
                "tables are not assets of the lake.",
                f"Name the lake's catalog {name} if it is the same one.",
            )

    def _create_table(self, statement: Statement) -> None:
        if statement.kind is StatementKind.CREATE_TABLE_AS:
            self._keeps_in_setup = False
            self._problem(
                statement,
                Severity.WARNING,
                "CREATE TABLE … AS runs a job of its own each time; it is not supervised.",
                "Write CREATE TABLE and INSERT INTO instead.",
            )
        try:
            tree = _create(parsing.parse(statement), statement)
        except UnreadableStatementError:
            self._declare_unreadable(statement)
            raise
        name = self._created_name(tree, statement)
        body = tables.table_body(tree)
        base = self._session.relations.get(self._session.resolve(body.like)) if body.like else None
        if isinstance(base, SourceDefinition):
            body = replace(
                body,
                columns=base.columns + body.columns,
                options={**(base.options if body.inherits_options else {}), **body.options},
                columns_known=True,
            )
        connector = body.options.get("connector", "")
        in_lake = name.catalog == self._session.lake and not tables.is_temporary(tree)
        if in_lake and connector in ("", "paimon"):
            options = mask_secrets(body.options)
            self._declare(
                TableDefinition(
                    name=name,
                    columns=body.columns,
                    primary_key=body.primary_key,
                    partition_keys=body.partition_keys,
                    options=options,
                    comment=body.comment,
                    location=statement.location,
                    columns_known=body.columns_known,
                )
            )
            return
        if in_lake:
            self._problem(
                statement,
                Severity.WARNING,
                f"A Paimon catalog takes no table of connector {connector!r}.",
                "Write CREATE TEMPORARY TABLE.",
            )
        if not connector and not body.columns_known:
            self._session.relations[name] = UnknownRelation(name)
            return
        connector = connector or self._session.foreign_catalogs.get(name.catalog, "unknown")
        source = SourceDefinition(
            name=name,
            connector=connector,
            asset_key=source_key(connector, name.table, body.options),
            columns=body.columns,
            options=mask_secrets(body.options),
            location=statement.location,
        )
        self._session.relations[name] = source
        self._sources.append(source)

    def _create_view(self, statement: Statement) -> None:
        try:
            tree = _create(parsing.parse(statement), statement)
            if tree.expression is None:
                raise UnreadableStatementError("It has no query.", statement.location)
        except UnreadableStatementError:
            self._declare_unreadable(statement)
            raise
        reads = self._session.reads_of(tree.expression)
        name = self._created_name(tree, statement)
        view = ViewDefinition(
            name=name,
            temporary=tables.is_temporary(tree),
            reads=reads.tables,
            sources=reads.sources,
            dependencies_known=not reads.unknown,
            location=statement.location,
        )
        self._session.relations[name] = view
        self._views.append(view)

    def _alter(self, statement: Statement) -> None:
        words = [t.text.upper() for t in scan(statement.text) if t.kind is TokenKind.WORD]
        if words[1:2] == ["TABLE"] and not {"SET", "RESET"} & set(words):
            self._problem(
                statement,
                Severity.WARNING,
                "What ALTER TABLE changes is not followed, and it fails when it is run again at "
                "the job's next start.",
                "Change the CREATE TABLE, and alter the table once, outside of the script.",
            )

    def _drop(self, statement: Statement) -> None:
        self._keeps_in_setup = False
        self._problem(
            statement,
            Severity.WARNING,
            "DROP would run, and destroy, each time a job of this script starts; it is left out.",
            "Drop by hand what has to go, and take the statement out of the script.",
        )

    def _drop_temporary(self, statement: Statement) -> None:
        words = ("DROP", "TEMPORARY", "TABLE", "VIEW", "IF", "EXISTS")
        parts = parsing.written_name_after(statement.text, *words)
        if parts:
            self._session.relations.pop(self._session.resolve(parts), None)

    def _action(self, statement: Statement) -> None:
        self._keeps_in_setup = False
        self._problem(
            statement,
            Severity.WARNING,
            "The statement acts once, when it is run; it is no streaming job and is left out.",
            "Run it by hand or from an operation of its own.",
        )

    def _create_other(self, statement: Statement) -> None:
        reason = "The reader does not know what it creates."
        raise UnreadableStatementError(reason, statement.location)

    def _unknown(self, statement: Statement) -> None:
        raise UnreadableStatementError("It begins with no known keyword.", statement.location)

    # helpers

    def _created_name(self, tree: exp.Create, statement: Statement) -> TableName:
        name = self._session.resolve(parsing.name_parts(tables.created_table(tree)))
        if "${" in str(name):
            reason = f"The name {name} holds a variable."
            raise UnreadableStatementError(reason, statement.location)
        return name

    def _declare(self, table: TableDefinition) -> None:
        known = self._tables.get(table.name)
        if known is not None and known.shape != table.shape:
            self._error(
                table.location,
                f"The table {table.name.key} is declared differently at {known.location}.",
                "Declare it once, or both times alike.",
            )
        self._tables.setdefault(table.name, table)
        self._session.relations[table.name] = self._tables[table.name]

    def _declare_unreadable(self, statement: Statement) -> None:
        """Remember a table or view that exists, of which nothing but the name is known."""
        parts = parsing.written_name_after(statement.text, *_CREATE_WORDS)
        name = self._session.resolve(parts) if parts else None
        if name is None or "${" in str(name):
            return
        lasting = statement.kind in (StatementKind.CREATE_TABLE, StatementKind.CREATE_TABLE_AS)
        if lasting and name.catalog == self._session.lake:
            unknown = TableDefinition(
                name, (), (), (), {}, None, statement.location, columns_known=False
            )
            self._tables.setdefault(name, unknown)
            self._session.relations[name] = self._tables[name]
        else:
            self._session.relations[name] = UnknownRelation(name)

    def _sources_read(self, jobs: tuple[JobDefinition, ...]) -> tuple[SourceDefinition, ...]:
        """Leave out connector tables that are only written to."""
        read = {key for job in jobs for key in job.sources}
        read |= {key for view in self._views for key in view.sources}
        written = {flow.external_sink for job in jobs for flow in job.flows}
        kept = {
            source.name: source
            for source in self._sources
            if source.asset_key in read
            or not (is_sink_only(source.connector) or source.asset_key in written)
        }
        return tuple(kept.values())

    def _check_text(self) -> None:
        index = LineIndex(self._text, self._path)
        for token in scan(self._text):
            if token.is_unterminated:
                what, closing = _UNTERMINATED[token.kind]
                self._error(
                    index.locate(token.offset),
                    f"The {what} that begins here does not end.",
                    f"Close it with {closing}",
                )

    def _unreadable(self, statement: Statement, error: UnreadableStatementError) -> None:
        self._problem(
            statement,
            Severity.WARNING,
            f"The statement is not known to the reader: {error.reason}",
            "If Flink takes it, nothing need be done; what it declares is not known here.",
            location=error.location,
        )

    def _error(self, location: Location, message: str, remedy: str) -> None:
        self._problems.append(Problem(location, Severity.ERROR, message, remedy))

    def _problem(
        self,
        statement: Statement,
        severity: Severity,
        message: str,
        remedy: str,
        *,
        location: Location | None = None,
    ) -> None:
        self._problems.append(
            Problem(
                location=location or statement.location,
                severity=severity,
                message=message,
                remedy=remedy,
                statement_start=beginning(statement),
            )
        )


def _create(tree: exp.Expr, statement: Statement) -> exp.Create:
    if not isinstance(tree, exp.Create):
        raise UnreadableStatementError("It is no CREATE statement.", statement.location)
    return tree

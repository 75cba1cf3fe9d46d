"""From ``INSERT`` statements and statement sets to streaming jobs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from lakehouse_dagster.sql import columns, parsing, written
from lakehouse_dagster.sql.advice_queries import insert_advice
from lakehouse_dagster.sql.functions import unknown_functions
from lakehouse_dagster.sql.lineage import insert_lineage, query_lineage
from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Location,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableDefinition,
    TableName,
    ViewDefinition,
    unique,
)
from lakehouse_dagster.sql.names import JOB_NAME
from lakehouse_dagster.sql.parsing import READER_FAILED, UnreadableStatementError
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.scanner import scan
from lakehouse_dagster.sql.session import Reads, Session, UnknownRelation, base_table
from lakehouse_dagster.sql.statements import members
from lakehouse_dagster.sql.variables import Filled, placeholder_in

_RUNTIME_MODE = "execution.runtime-mode"
DIALECT = "table.sql-dialect"

_UNDECLARED = "Declare the missing tables in the script, or the job's dependencies by hand."
_UNREADABLE = (
    "Correct the statement; if Flink takes it as it is, declare the job's dependencies by hand."
)

IN_SET = frozenset({StatementKind.INSERT, StatementKind.CREATE_TABLE_AS})
"""What can stand in a statement set."""


class JobReader:
    """Makes a job of each ``INSERT`` and statement set, in the session it would run in."""

    def __init__(
        self, session: Session, report: Report, fill: Callable[[Statement], Filled]
    ) -> None:
        self._session = session
        self._report = report
        self._fill = fill
        self.found: list[JobDefinition] = []
        """Jobs in the order of the script; those without a name of their own have an empty one."""

    def read(
        self,
        statement: Statement,
        setup: tuple[Statement, ...],
        created: Callable[[Statement], Flow | None],
    ) -> None:
        """Read the job that a statement starts.

        Args:
            created: Reads a CREATE TABLE … AS of a statement set.
        """
        settings = dict(self._session.settings)
        if settings.get(_RUNTIME_MODE, "").lower() == "batch":
            self._report(
                statement,
                Severity.WARNING,
                "The INSERT runs in batch mode, so it is no streaming job and is left out.",
                f"RESET '{_RUNTIME_MODE}' before it if it is meant to stream.",
            )
            return
        if statement.kind is StatementKind.INSERT and _overwrites(statement):
            self._report(
                statement,
                Severity.WARNING,
                "INSERT OVERWRITE cannot run as a stream: it is a batch job, and is left out.",
                "Run it by hand or from an operation of its own, or write INSERT INTO.",
            )
            return
        found = [statement]
        if statement.kind is StatementKind.STATEMENT_SET:
            found = list(members(statement))
        read = (
            self.flow(member) if member.kind is StatementKind.INSERT else created(member)
            for member in found
        )
        flows = tuple(flow for flow in read if flow is not None)
        name = settings.get(JOB_NAME, "").strip()
        self.found.append(
            JobDefinition(
                name=name,
                name_is_explicit=bool(name),
                statement=statement,
                setup=setup,
                settings=settings,
                sinks=unique(flow.sink for flow in flows if flow.sink is not None),
                reads=unique(table for flow in flows for table in flow.reads),
                sources=unique(source for flow in flows for source in flow.sources),
                reads_itself=any(flow.reads_itself for flow in flows),
                dependencies_known=bool(flows) and all(f.dependencies_known for f in flows),
                location=statement.location,
                flows=flows,
            )
        )

    def flow(self, insert: Statement) -> Flow:
        """Read one INSERT."""
        filled = replace(insert, text=self._fill(insert).text)
        try:
            if self._session.settings.get(DIALECT, "default").lower() == "hive":
                raise UnreadableStatementError("It is in the Hive dialect.", insert.location)
            tree = parsing.parse(filled, written=insert)
            if not isinstance(tree, exp.Insert):
                raise UnreadableStatementError("It is no INSERT.", insert.location)
            target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
            query = tree.expression
            if not isinstance(target, exp.Table) or query is None:
                raise UnreadableStatementError("It has no target or no query.", insert.location)
            reads = self._session.reads_of(parsing.query_of(tree))
        except UnreadableStatementError as error:
            return self._unreadable_flow(insert, filled, error)
        except Exception as error:  # noqa: BLE001 - a script must not stop a project's loading
            reason = f"{READER_FAILED} ({type(error).__name__})"
            failed = UnreadableStatementError(reason, insert.location)
            return self._unreadable_flow(insert, filled, failed)
        self._remark(insert, tree)
        flow = self._complete(insert, parsing.name_parts(target), reads)
        return self._with_lineage(flow, insert, tree, parsing.name_parts(target))

    def created_flow(self, statement: Statement, query: exp.Expr, name: TableName) -> Flow:
        """What a CREATE TABLE … AS fills its table from."""
        reads = self._session.reads_of(query)
        flow = self._complete(statement, (name.catalog, name.database, name.table), reads)
        try:
            found = query_lineage(query, self._session.columns_of_name)
        except Exception as error:  # noqa: BLE001 - dependencies are known all the same
            self._report.failed(statement, error)
            return flow
        return replace(flow, columns=found.columns, row_filters=found.row_filters)

    def _remark(self, insert: Statement, tree: exp.Insert) -> None:
        """Say what is noteworthy about one readable INSERT."""
        try:
            self._warn_of_functions(insert, tree)
            self._warn_of_bounded(insert, tree)
            self._report.add(*insert_advice(insert, tree))
        except Exception as error:  # noqa: BLE001 - what it reads is known all the same
            self._report.failed(insert, error)

    def _warn_of_functions(self, statement: Statement, tree: exp.Expr) -> None:
        """Point out functions that nobody made; only where all who could make one are known."""
        if self._session.brings_functions:
            return
        for name in unknown_functions(tree, frozenset(self._session.functions)):
            if not self._session.elsewhere.has_function(name):
                self._report(
                    statement,
                    Severity.WARNING,
                    f"Flink has no function {name}, and no script creates it.",
                    "Look at its spelling, or CREATE TEMPORARY FUNCTION before the statement.",
                    location=written.place_of(name, statement),
                )

    def _with_lineage(
        self, flow: Flow, insert: Statement, tree: exp.Insert, target: tuple[str, ...]
    ) -> Flow:
        sink_columns = self._writable(self._session.resolve(target))
        try:
            found, filters = insert_lineage(tree, self._session.columns_of_name, sink_columns)
        except Exception as error:  # noqa: BLE001 - dependencies are known all the same
            self._report.failed(insert, error)
            return flow
        return replace(flow, columns=found, row_filters=filters)

    def _writable(self, name: TableName) -> tuple[str, ...] | None:
        relation = self._session.find(name)
        if isinstance(relation, TableDefinition):
            return columns.writable(relation.columns) if relation.columns_known else None
        return (
            columns.writable(relation.columns) if isinstance(relation, SourceDefinition) else None
        )

    def _unreadable_flow(
        self, insert: Statement, filled: Statement, error: UnreadableStatementError
    ) -> Flow:
        words = ("EXECUTE", "INSERT", "INTO", "OVERWRITE", "TABLE")
        parts = written.name_after(filled.text, *words)
        reads = Reads(unknown=(error.reason,))
        return self._complete(insert, parts, reads, location=error.location, remedy=_UNREADABLE)

    def _complete(
        self,
        insert: Statement,
        target: tuple[str, ...] | None,
        reads: Reads,
        *,
        location: Location | None = None,
        remedy: str = _UNDECLARED,
    ) -> Flow:
        sink, external_sink, unknown_sink = self._sink(target)
        unknown = (*reads.unknown, *unknown_sink)
        if unknown:
            self._report(
                insert,
                Severity.WARNING,
                f"What the job reads or writes is not all known: "
                f"{'; '.join(reason.rstrip('.') for reason in unknown)}.",
                remedy,
                location=location,
            )
        return Flow(
            sink=sink,
            external_sink=external_sink,
            reads=tuple(table for table in reads.tables if table != sink),
            sources=reads.sources,
            reads_itself=sink is not None and sink in reads.tables,
            dependencies_known=not unknown,
            location=insert.location,
        )

    def _sink(
        self, parts: tuple[str, ...] | None
    ) -> tuple[TableName | None, tuple[str, ...] | None, tuple[str, ...]]:
        """Return the lake's table, or the external sink, or why neither can be told."""
        if parts is None:
            return None, None, ("the table it writes cannot be told",)
        name = self._session.resolve(parts)
        stands_for = placeholder_in(str(name))
        if stands_for is not None:
            return None, None, (f"the name {name} depends on {stands_for}, which is not set",)
        relation = self._session.find(name)
        if isinstance(relation, SourceDefinition):
            return None, relation.asset_key, ()
        if isinstance(relation, ViewDefinition):
            return None, None, (f"{name} is a view",)
        if isinstance(relation, UnknownRelation):
            return None, None, (relation.reason,)
        if name.catalog == self._session.lake:
            if base_table(name) != name:
                return None, None, (f"{name} is a branch or a system table",)
            return name, None, ()
        key = self._session.outside_key(name)
        if key is not None:
            return None, key, ()
        return None, None, (f"no statement of the script declares {name}",)

    def _warn_of_bounded(self, insert: Statement, tree: exp.Insert) -> None:
        if tree.args.get("overwrite"):
            self._report(
                insert,
                Severity.WARNING,
                "INSERT OVERWRITE cannot run as a stream.",
                f"SET '{_RUNTIME_MODE}' = 'batch' before it, or write INSERT INTO.",
            )
        elif isinstance(tree.expression, exp.Values):
            self._report(
                insert,
                Severity.WARNING,
                "INSERT … VALUES ends by itself: as a streaming job it would be started again.",
                f"SET '{_RUNTIME_MODE}' = 'batch' before it, or insert the rows by hand.",
            )


def _overwrites(insert: Statement) -> bool:
    words = itertools.islice((t for t in scan(insert.text) if not t.is_trivia), 3)
    return any(token.is_word("OVERWRITE") for token in words)

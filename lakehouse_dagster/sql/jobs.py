"""From ``INSERT`` statements and statement sets to streaming jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from lakehouse_dagster.sql import parsing
from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Location,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableName,
    ViewDefinition,
    unique,
)
from lakehouse_dagster.sql.parsing import READER_FAILED, UnreadableStatementError
from lakehouse_dagster.sql.session import Reads, Session, UnknownRelation, base_table
from lakehouse_dagster.sql.statements import members

_JOB_NAME = "pipeline.name"
_RUNTIME_MODE = "execution.runtime-mode"
_DIALECT = "table.sql-dialect"


class Report(Protocol):
    """Takes note of a problem."""

    def __call__(
        self,
        statement: Statement,
        severity: Severity,
        message: str,
        remedy: str,
        *,
        location: Location | None = None,
    ) -> None: ...


class JobReader:
    """Makes a job of each ``INSERT`` and statement set, in the session it would run in."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session = session
        self._report = report
        self.found: list[JobDefinition] = []
        """Jobs in the order of the script; those without a name of their own have an empty one."""

    def read(self, statement: Statement, setup: tuple[Statement, ...]) -> None:
        """Read the job that a statement starts."""
        settings = dict(self._session.settings)
        if settings.get(_RUNTIME_MODE, "").lower() == "batch":
            self._report(
                statement,
                Severity.WARNING,
                "The INSERT runs in batch mode, so it is no streaming job and is left out.",
                f"RESET '{_RUNTIME_MODE}' before it if it is meant to stream.",
            )
            return
        inserts = [statement]
        if statement.kind is StatementKind.STATEMENT_SET:
            inserts = [m for m in members(statement) if self._is_insert(m)]
        flows = tuple(self._flow(insert) for insert in inserts)
        name = settings.get(_JOB_NAME, "").strip()
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

    def _is_insert(self, member: Statement) -> bool:
        if member.kind is StatementKind.INSERT:
            return True
        self._report(
            member,
            Severity.WARNING,
            "Only INSERT can stand in a statement set.",
            "Move the statement before the statement set.",
        )
        return False

    def _flow(self, insert: Statement) -> Flow:
        try:
            if self._session.settings.get(_DIALECT, "default").lower() == "hive":
                raise UnreadableStatementError("It is in the Hive dialect.", insert.location)
            tree = parsing.parse(insert)
            if not isinstance(tree, exp.Insert):
                raise UnreadableStatementError("It is no INSERT.", insert.location)
            target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
            query = tree.expression
            if not isinstance(target, exp.Table) or query is None:
                raise UnreadableStatementError("It has no target or no query.", insert.location)
            reads = self._session.reads_of(query)
        except UnreadableStatementError as error:
            return self._unreadable_flow(insert, error)
        except Exception as error:  # noqa: BLE001 - a script must not stop a project's loading
            reason = f"{READER_FAILED} ({type(error).__name__})"
            failed = UnreadableStatementError(reason, insert.location)
            return self._unreadable_flow(insert, failed)
        self._warn_of_bounded(insert, tree)
        return self._complete(insert, parsing.name_parts(target), reads)

    def _unreadable_flow(self, insert: Statement, error: UnreadableStatementError) -> Flow:
        words = ("EXECUTE", "INSERT", "INTO", "OVERWRITE", "TABLE")
        parts = parsing.written_name_after(insert.text, *words)
        return self._complete(insert, parts, Reads(unknown=(error.reason,)), error.location)

    def _complete(
        self,
        insert: Statement,
        target: tuple[str, ...] | None,
        reads: Reads,
        location: Location | None = None,
    ) -> Flow:
        sink, external_sink, unknown_sink = self._sink(target)
        unknown = (*reads.unknown, *unknown_sink)
        if unknown:
            self._report(
                insert,
                Severity.WARNING,
                f"What the job reads or writes is not all known: "
                f"{'; '.join(reason.rstrip('.') for reason in unknown)}.",
                "Declare the missing tables in the script, or the job's dependencies by hand.",
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
        if "${" in str(name):
            return None, None, (f"the name {name} holds a variable",)
        relation = self._session.relations.get(name)
        if isinstance(relation, SourceDefinition):
            return None, relation.asset_key, ()
        if isinstance(relation, ViewDefinition):
            return None, None, (f"{name} is a view",)
        if isinstance(relation, UnknownRelation):
            return None, None, (f"the CREATE statement of {name} is not readable",)
        if name.catalog == self._session.lake:
            if base_table(name) != name:
                return None, None, (f"{name} is a branch or a system table",)
            return name, None, ()
        if name.catalog in self._session.foreign_catalogs:
            return None, self._session.reads_of_name(parts).sources[0], ()
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


def name_jobs(
    jobs: Sequence[JobDefinition], stem: str, report: Report
) -> tuple[JobDefinition, ...]:
    """Give the jobs without a name one that further statements of the script do not change.

    One such job is named after the file; several, after the file and the first table that each
    writes. Of jobs with the same name only the first is kept, and the others are errors.
    """
    several = sum(not job.name_is_explicit for job in jobs) > 1
    named: dict[str, JobDefinition] = {}
    for job in jobs:
        name = job.name or (f"{stem}_{_sink_name(job)}" if several else stem)
        if "${" in name:
            report(
                job.statement,
                Severity.ERROR,
                f"The job's name, {name}, holds a variable, but it has to be known beforehand.",
                f"SET '{_JOB_NAME}' to a fixed text.",
            )
        elif name in named:
            report(
                job.statement,
                Severity.ERROR,
                f"Two jobs are named {name}; the other is at {named[name].location}.",
                f"SET '{_JOB_NAME}' to another name before this one, or put both into one "
                "statement set.",
            )
        else:
            named[name] = replace(job, name=name)
    return tuple(named.values())


def _sink_name(job: JobDefinition) -> str:
    for flow in job.flows:
        if flow.sink is not None:
            return flow.sink.table
        if flow.external_sink is not None:
            return flow.external_sink[-1]
    return "unknown"

"""Reads a unit, its session files first, into what each of its files says.

``read_declarations`` and ``read_jobs`` are the two passes over a unit (``unit.py``); they import
sqlglot and run in the reading process.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse_dagster.sql.model import (
    JobDefinition,
    Problem,
    Script,
    Severity,
    SourceDefinition,
    Statement,
    TableDefinition,
    ViewDefinition,
)
from lakehouse_dagster.sql.names import name_jobs
from lakehouse_dagster.sql.relations import Found
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.script_text import included_path, statements_of
from lakehouse_dagster.sql.secret_problems import literal_secrets
from lakehouse_dagster.sql.session import FLINK_CATALOG, Elsewhere, Session
from lakehouse_dagster.sql.sources import is_sink_only
from lakehouse_dagster.sql.start import begins_in_flinks_catalog, start_in_flinks_catalog
from lakehouse_dagster.sql.statement_reader import StatementReader
from lakehouse_dagster.sql.unit import (
    Deadline,
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    SourceText,
    Unit,
)
from lakehouse_dagster.sql.written import created_catalog

_File = tuple[SourceText, list[Statement], list[Problem]]


def read_declarations(
    unit: Unit,
    context: ReadingContext,
    externals: Externals | None = None,
    until: Deadline | None = None,
) -> Declarations:
    """Read what a unit declares for others: the first pass, which leaves jobs out.

    Args:
        externals: What other units declare, as far as that is known.
        until: When to stop; then it is ``is_over``.
    """
    reader = _UnitReader(unit, context, externals or Externals(), until, with_jobs=False)
    reader.read()
    return Declarations(reader.declared(), reader.elsewhere.asked)


def read_jobs(
    unit: Unit, context: ReadingContext, externals: Externals, until: Deadline | None = None
) -> Reading:
    """Read a unit with what others declare at hand: the second pass.

    Whatever the files hold, this returns: what cannot be used is a ``Problem`` with its place.

    Args:
        until: When to stop; then it is ``is_over``, and what comes after the last statement read
            is a problem.
    """
    reader = _UnitReader(unit, context, externals, until, with_jobs=True)
    return Reading(tuple(reader.read()), reader.elsewhere.asked)


class _UnitReader:
    """Reads one unit; use once."""

    def __init__(
        self,
        unit: Unit,
        context: ReadingContext,
        externals: Externals,
        until: Deadline | None,
        *,
        with_jobs: bool,
    ) -> None:
        self._until = until or Deadline()
        self._unit = unit
        self._context = context
        self._with_jobs = with_jobs
        self.elsewhere = Elsewhere(externals)
        self._session = Session(
            lake=context.catalog,
            elsewhere=self.elsewhere,
            other_catalogs={name: tuple(key) for name, key in context.other_catalogs.items()},
        )
        self._report = Report()
        self._statements = StatementReader(self._session, self._report, context, with_jobs)

    def read(self) -> list[Script]:
        """Read the prelude, then the files."""
        prelude = [
            (file, *self._expanded(file, self._context.prelude))
            for file in self._context.prelude.files
        ]
        files = [(file, *self._expanded(file, self._unit)) for file in self._unit.files]
        self._begin(prelude, files)
        self._statements.in_prelude = self._report.silent = True
        for _, found, _ in prelude:
            for statement in found:
                self._statements.read(statement)
        self._statements.in_prelude = self._report.silent = False
        return [self._read_file(file, found, problems) for file, found, problems in files]

    def _begin(self, prelude: list[_File], files: list[_File]) -> None:
        """Put the start of a session where the first file stands that makes the lake's catalog."""
        lake = self._context.catalog
        after = [s for _, found, _ in files for s in found]
        before = [s for _, found, _ in prelude for s in found]
        first = prelude if any(created_catalog(s) == lake for s in before) else files
        statements = [*before, *after] if first is prelude else after
        if begins_in_flinks_catalog(statements, lake):
            file, found, problems = first[0]
            first[0] = (file, [start_in_flinks_catalog(statements[0]), *found], problems)

    def declared(self) -> Externals:
        """What the unit declares lastingly."""
        lasting = [
            relation
            for name, relation in self._session.lasting.items()
            if name.catalog != FLINK_CATALOG
        ]
        return Externals(
            tables=tuple(r for r in lasting if isinstance(r, TableDefinition)),
            sources=tuple(r for r in lasting if isinstance(r, SourceDefinition)),
            views=tuple(r for r in lasting if isinstance(r, ViewDefinition)),
            catalogs=tuple(self._session.catalogs.values()),
            functions=tuple(sorted(self._session.functions)),
        )

    def _read_file(
        self, file: SourceText, statements: Sequence[Statement], problems: Sequence[Problem]
    ) -> Script:
        self._report.problems = list(problems)
        found = self._statements.begin_file()
        for statement in statements:
            if self._until.check():
                self._report(
                    statement,
                    Severity.ERROR,
                    "Reading takes too long: nothing is known of the file from here on.",
                    "Split the file, or leave it out of the scripts.",
                )
                break
            if self._with_jobs and statement.text:
                self._report.add(*literal_secrets(statement))
            self._statements.read(statement)
        for table in found.tables.values():
            if not (table.name.database and table.name.table):
                self._report.add(_without_name(table))
        jobs = name_jobs(self._statements.jobs, file.stem, self._context.variables, self._report)
        return Script(
            path=file.path,
            statements=tuple(statements),
            tables=tuple(found.tables.values()),
            sources=_sources_read(found, jobs),
            views=tuple(found.views),
            jobs=jobs,
            problems=_by_place(self._report.problems),
            setup=tuple(self._statements.setup) if found.tables else (),
        )

    def _expanded(
        self, file: SourceText, unit: Unit, within: tuple[str, ...] = ()
    ) -> tuple[list[Statement], list[Problem]]:
        """The statements of a file, with those of the files that it includes in their places."""
        text = statements_of(file.text, file.path)
        statements: list[Statement] = []
        problems = list(text.problems)
        for statement in text.statements:
            path = included_path(statement)
            if path is None:
                statements.append(statement)
                continue
            content = unit.text_of(path)
            chain = (*within, file.path)
            if path in chain:
                problems.append(_not_included(statement, f"{path} includes itself."))
            elif content is None:
                problems.append(_not_included(statement, f"{path} cannot be opened."))
            else:
                inner = self._expanded(SourceText(path, content), unit, chain)
                statements += inner[0]
                problems += inner[1]
        return statements, problems


def _by_place(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    files = {
        path: number
        for number, path in enumerate(dict.fromkeys(problem.location.path for problem in problems))
    }

    def place(problem: Problem) -> tuple[int, int, int]:
        at = problem.location
        return files[at.path], at.line, at.column

    return tuple(sorted(problems, key=place))


def _without_name(table: TableDefinition) -> Problem:
    return Problem(
        table.location,
        Severity.WARNING,
        "The table's name is empty: no catalog can hold such a table.",
        "Write a name between the backticks.",
    )


def _not_included(statement: Statement, what: str) -> Problem:
    return Problem(
        statement.location,
        Severity.ERROR,
        f"SOURCE: {what}",
        "Name a file by its path, relative to the folder of this one.",
        statement.text[:60],
    )


def _sources_read(found: Found, jobs: tuple[JobDefinition, ...]) -> tuple[SourceDefinition, ...]:
    """Leave out connector tables that are only written to."""
    read = {key for job in jobs for key in job.sources}
    read |= {key for view in found.views for key in view.sources}
    written = {flow.external_sink for job in jobs for flow in job.flows}
    kept = {
        source.name: source
        for source in found.sources
        if source.asset_key in read
        or not (is_sink_only(source.connector) or source.asset_key in written)
    }
    return tuple(kept.values())

"""Goes through the statements of a session in order, and gathers what they say.

``read_declarations`` and ``read_jobs`` are the two passes over a unit (``unit.py``); they import
sqlglot and run in the reading process.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakehouse_dagster.sql import parsing
from lakehouse_dagster.sql.boundaries import KNOWN_FIRST_WORDS
from lakehouse_dagster.sql.declare import DeclarationReader, Found
from lakehouse_dagster.sql.jobs import DIALECT, IN_SET, JobReader
from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Problem,
    Script,
    Severity,
    SourceDefinition,
    Statement,
    StatementKind,
    TableDefinition,
    ViewDefinition,
)
from lakehouse_dagster.sql.names import name_jobs
from lakehouse_dagster.sql.parsing import UnreadableStatementError
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.script_text import included_path, statements_of
from lakehouse_dagster.sql.secret_problems import literal_secrets
from lakehouse_dagster.sql.session import FLINK_CATALOG, Elsewhere, Session
from lakehouse_dagster.sql.settings import misspelt_option, parse_reset, parse_set
from lakehouse_dagster.sql.sources import is_sink_only
from lakehouse_dagster.sql.start import begins_in_flinks_catalog, start_in_flinks_catalog
from lakehouse_dagster.sql.statements import is_closed_set, members, without_members
from lakehouse_dagster.sql.unit import (
    Deadline,
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    SourceText,
    Unit,
)
from lakehouse_dagster.sql.variables import Filled, fill_for_reading
from lakehouse_dagster.sql.written import created_catalog

_File = tuple[SourceText, list[Statement], list[Problem]]
_JOBS = (StatementKind.INSERT, StatementKind.STATEMENT_SET)


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
        self._setup: list[Statement] = []
        self._report = Report()
        self._declare = DeclarationReader(self._session, self._report, self._fill)
        self._jobs = JobReader(self._session, self._report, self._fill)
        self._in_prelude = False
        self._views: list[ViewDefinition] = []
        self._handlers: dict[StatementKind, Callable[[Statement], object]] = {
            StatementKind.SET: self._set,
            StatementKind.RESET: self._reset,
            StatementKind.USE: self._use,
            StatementKind.CREATE_TABLE: self._declare.table,
            StatementKind.CREATE_TEMPORARY_TABLE: self._declare.table,
            StatementKind.CREATE_VIEW: self._declare.view,
            StatementKind.CREATE_TEMPORARY_VIEW: self._declare.view,
            StatementKind.CREATE_FUNCTION: self._declare.function,
            StatementKind.CREATE_DATABASE: self._check,
            StatementKind.CREATE_OTHER: self._create_other,
            StatementKind.ALTER: self._declare.alter,
            StatementKind.DROP_TEMPORARY: self._declare.drop_temporary,
            StatementKind.MODULE_OR_JAR: self._module_or_jar,
        }
        self._left_out: dict[StatementKind, Callable[[Statement], object]] = {
            StatementKind.CREATE_TABLE_AS: self._create_table_as,
            StatementKind.DROP: self._drop,
            StatementKind.ACTION: self._action,
            StatementKind.QUERY: lambda _: None,
            StatementKind.UNKNOWN: self._unknown,
        }

    def read(self) -> list[Script]:
        """Read the prelude, then the files."""
        prelude = [
            (file, *self._expanded(file, self._context.prelude))
            for file in self._context.prelude.files
        ]
        files = [(file, *self._expanded(file, self._unit)) for file in self._unit.files]
        self._begin(prelude, files)
        self._in_prelude = self._report.silent = True
        for _, found, _ in prelude:
            for statement in found:
                self._read_statement(statement)
        self._in_prelude = self._report.silent = False
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
        self._declare.found = found = Found()
        self._jobs.found = []
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
            self._read_statement(statement)
        for table in found.tables.values():
            if not (table.name.database and table.name.table):
                self._report.add(_without_name(table))
        jobs = name_jobs(self._jobs.found, file.stem, self._context.variables, self._report)
        return Script(
            path=file.path,
            statements=tuple(statements),
            tables=tuple(found.tables.values()),
            sources=_sources_read(found, jobs),
            views=tuple(found.views),
            jobs=jobs,
            problems=_by_place(self._report.problems),
            setup=tuple(self._setup) if found.tables else (),
        )

    # the text

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

    def _fill(self, statement: Statement) -> Filled:
        return fill_for_reading(statement.text, self._context.variables)

    # statements

    def _read_statement(self, statement: Statement) -> None:
        if statement.kind in _JOBS:
            self._read_job(statement)
            return
        keeps = statement.kind in self._handlers
        handler = self._handlers.get(statement.kind) or self._left_out.get(statement.kind)
        try:
            if statement.kind is StatementKind.CREATE_CATALOG:
                keeps = self._declare.catalog(statement)
            elif self._in_hive_dialect and statement.kind not in _IN_ANY_DIALECT:
                self._declare_in_hive_dialect(statement)
            elif handler is not None:
                keeps = handler(statement) is not _LEAVE_OUT and keeps
        except UnreadableStatementError as error:
            keeps = keeps or statement.kind is StatementKind.CREATE_CATALOG
            self._report.unreadable(statement, error)
        except Exception as error:  # noqa: BLE001 - a script must not stop a project's loading
            self._report.failed(statement, error)
        if keeps:
            self._setup.append(statement)

    def _read_job(self, statement: Statement) -> None:
        if self._in_prelude or self._context.only_session:
            self._report(
                statement,
                Severity.WARNING,
                "A job in a session file would start with every script; it is left out.",
                "Move the INSERT to a script.",
            )
            return
        if statement.kind is StatementKind.STATEMENT_SET:
            if not is_closed_set(statement):
                message = "The statement set is not closed by END."
                self._report(
                    statement, Severity.ERROR, message, "Write END; after its last INSERT."
                )
            statement = self._without_other_members(statement)
        if self._with_jobs:
            self._jobs.read(statement, tuple(self._setup), self._created_in_set)
        elif statement.kind is StatementKind.STATEMENT_SET:
            for member in members(statement):
                if member.kind is StatementKind.CREATE_TABLE_AS:
                    self._created_in_set(member)

    def _without_other_members(self, statement: Statement) -> Statement:
        """Run what cannot stand in a statement set before it."""
        others = [member for member in members(statement) if member.kind not in IN_SET]
        for member in others:
            self._report(
                member,
                Severity.WARNING,
                "Only INSERT and CREATE TABLE … AS can stand in a statement set: this is taken out "
                "of it and runs before it.",
                "Move it before the statement set.",
            )
            self._read_statement(member)
        return without_members(statement, IN_SET) if others else statement

    def _created_in_set(self, statement: Statement) -> Flow | None:
        self._report(
            statement,
            Severity.WARNING,
            "CREATE TABLE … AS in a statement set: the job can be started once only, as the table "
            "is there the second time.",
            "Write CREATE TABLE before the set and INSERT INTO in it.",
        )
        try:
            return self._table_as(statement)
        except UnreadableStatementError as error:
            self._report.unreadable(statement, error)
        except Exception as error:  # noqa: BLE001 - a script must not stop a project's loading
            self._report.failed(statement, error)
        return None

    def _table_as(self, statement: Statement) -> Flow:
        return self._declare.table_as(
            statement, lambda query, name: self._jobs.created_flow(statement, query, name)
        )

    @property
    def _in_hive_dialect(self) -> bool:
        return self._session.settings.get(DIALECT, "default").lower() == "hive"

    def _declare_in_hive_dialect(self, statement: Statement) -> None:
        if statement.kind is StatementKind.ALTER or statement.kind in _CREATES_RELATION:
            self._declare.declare_unreadable(statement)
        raise UnreadableStatementError("It is in the Hive dialect.", statement.location)

    # what single statements do

    def _set(self, statement: Statement) -> object:
        option = parse_set(statement.text)
        if option is None:
            if statement.text.strip().upper() == "SET":
                return _LEAVE_OUT
            reason = "It is not of the form SET 'key' = 'value'."
            raise UnreadableStatementError(reason, statement.location)
        key, value = option
        self._session.settings[key] = value
        meant = misspelt_option(key)
        if meant is not None:
            self._report(
                statement,
                Severity.ADVICE,
                f"Flink has no option {key}; what it does not know it ignores.",
                f"Write {meant}, if that is meant.",
            )
        # Settings travel with each job; only the dialect decides how the setup itself is read.
        return None if key == DIALECT else _LEAVE_OUT

    def _reset(self, statement: Statement) -> object:
        key = parse_reset(statement.text)
        if key is None:
            self._session.settings.clear()
        else:
            self._session.settings.pop(key, None)
        return None if key in (None, DIALECT) and self._changed_dialect() else _LEAVE_OUT

    def _changed_dialect(self) -> bool:
        return any(
            s.kind is StatementKind.SET and (parse_set(s.text) or ("",))[0] == DIALECT
            for s in self._setup
        )

    def _use(self, statement: Statement) -> None:
        tree = parsing.parse(replace(statement, text=self._fill(statement).text), written=statement)
        kind = tree.args.get("kind")
        if kind is not None and kind.name == "CATALOG":
            self._session.use_catalog(tree.this.name)
        elif kind is None:
            self._session.use_database(parsing.name_parts(tree.this))

    def _check(self, statement: Statement) -> None:
        parsing.parse(replace(statement, text=self._fill(statement).text), written=statement)

    def _module_or_jar(self, statement: Statement) -> None:
        if statement.text.split(None, 1)[0].upper() in ("LOAD", "UNLOAD"):
            self._session.brings_functions = True

    def _create_table_as(self, statement: Statement) -> None:
        self._warn_of_create_as(statement)
        self._table_as(statement)

    def _warn_of_create_as(self, statement: Statement) -> None:
        self._report(
            statement,
            Severity.WARNING,
            "CREATE TABLE … AS runs a job of its own each time; it is not supervised.",
            "Write CREATE TABLE and INSERT INTO instead.",
        )

    def _drop(self, statement: Statement) -> None:
        self._report(
            statement,
            Severity.WARNING,
            "DROP would run, and destroy, each time a job of this script starts; it is left out.",
            "Drop by hand what has to go, and take the statement out of the script.",
        )

    def _action(self, statement: Statement) -> None:
        self._report(
            statement,
            Severity.WARNING,
            "The statement acts once, when it is run; it is no streaming job and is left out.",
            "Run it by hand or from an operation of its own.",
        )

    def _create_other(self, statement: Statement) -> None:
        reason = "The reader does not know what it creates."
        raise UnreadableStatementError(reason, statement.location)

    def _unknown(self, statement: Statement) -> None:
        word = statement.text.split(None, 1)[0].upper() if statement.text else ""
        # Only a word that is nearly one is shown: others may be anything, secrets too.
        meant = difflib.get_close_matches(word, KNOWN_FIRST_WORDS, n=1, cutoff=0.8)
        question = f" (did you mean {meant[0]}?)" if meant else ""
        reason = f"It begins with no known keyword{question}, and is left out."
        raise UnreadableStatementError(reason, statement.location)


_LEAVE_OUT = object()
"""Said by a handler of a statement that the session of a job does not need."""
_CREATES_RELATION = (
    StatementKind.CREATE_TABLE,
    StatementKind.CREATE_TEMPORARY_TABLE,
    StatementKind.CREATE_TABLE_AS,
    StatementKind.CREATE_VIEW,
    StatementKind.CREATE_TEMPORARY_VIEW,
)
_IN_ANY_DIALECT = (
    StatementKind.SET,
    StatementKind.RESET,
    StatementKind.USE,
    StatementKind.QUERY,
    StatementKind.DROP,
    StatementKind.UNKNOWN,
    StatementKind.ACTION,
)


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

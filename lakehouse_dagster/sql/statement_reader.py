"""Reads the statements of a session one by one, in order.

Each says what a session is from then on, declares something, makes a job, or is left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace

from lakehouse_dagster.sql import parsing
from lakehouse_dagster.sql.boundaries import KNOWN_FIRST_WORDS
from lakehouse_dagster.sql.declare import DeclarationReader
from lakehouse_dagster.sql.jobs import DIALECT, IN_SET, JobReader
from lakehouse_dagster.sql.model import Flow, JobDefinition, Severity, Statement, StatementKind
from lakehouse_dagster.sql.parsing import UnreadableStatementError
from lakehouse_dagster.sql.relations import Found
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.session import Session
from lakehouse_dagster.sql.settings import misspelt_option, parse_reset, parse_set
from lakehouse_dagster.sql.statements import is_closed_set, members, without_members
from lakehouse_dagster.sql.unit import ReadingContext
from lakehouse_dagster.sql.variables import Filled, fill_for_reading

_JOBS = (StatementKind.INSERT, StatementKind.STATEMENT_SET)
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


class StatementReader:
    """Reads the statements of one session.

    ``in_prelude`` says that they are those of session files, which start no jobs.
    """

    def __init__(
        self, session: Session, report: Report, context: ReadingContext, with_jobs: bool
    ) -> None:
        self._session = session
        self._report = report
        self._variables = context.variables
        self._only_session = context.only_session
        self._with_jobs = with_jobs
        self._declare = DeclarationReader(session, report, self._fill)
        self._jobs = JobReader(session, report, self._fill)
        self.in_prelude = False
        self.setup: list[Statement] = []
        """What makes the session as it is now."""
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

    def begin_file(self) -> Found:
        """Gather the jobs and declarations of another file; where the declarations will be."""
        self._jobs.found = []
        return self._declare.begin_file()

    @property
    def jobs(self) -> list[JobDefinition]:
        """The jobs of the file, so far."""
        return self._jobs.found

    def read(self, statement: Statement) -> None:
        """Read a statement; whatever it holds, this returns."""
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
            self.setup.append(statement)

    def _read_job(self, statement: Statement) -> None:
        if self.in_prelude or self._only_session:
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
            self._jobs.read(statement, tuple(self.setup), self._created_in_set)
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
            self.read(member)
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
            for s in self.setup
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
        self._report(
            statement,
            Severity.WARNING,
            "CREATE TABLE … AS runs a job of its own each time; it is not supervised.",
            "Write CREATE TABLE and INSERT INTO instead.",
        )
        self._table_as(statement)

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

    def _fill(self, statement: Statement) -> Filled:
        return fill_for_reading(statement.text, self._variables)

"""Takes note of what is wrong with a script, each with its place."""

from __future__ import annotations

from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import (
    Location,
    Problem,
    Severity,
    Statement,
)
from lakehouse_dagster.sql.parsing import READER_FAILED, UnreadableStatementError


class Report:
    """The problems of one script; silent while what is read was reported elsewhere."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.silent = False

    def add(self, *problems: Problem) -> None:
        """Take note of problems."""
        if not self.silent:
            self.problems.extend(problems)

    def __call__(
        self,
        statement: Statement,
        severity: Severity,
        message: str,
        remedy: str,
        *,
        location: Location | None = None,
    ) -> None:
        """Take note of a problem with a statement."""
        self.add(
            Problem(
                location=location or statement.location,
                severity=severity,
                message=message,
                remedy=remedy,
                statement_start=beginning(statement),
            )
        )

    def unreadable(self, statement: Statement, error: UnreadableStatementError) -> None:
        """Take note of a statement that the dialect does not know."""
        self(
            statement,
            Severity.WARNING,
            f"The statement is not known to the reader: {error.reason}",
            "Correct it. If Flink takes it as it is, nothing need be done; what it declares is not "
            "known here.",
            location=error.location,
        )

    def failed(self, statement: Statement, error: Exception) -> None:
        """Take note of a mistake of the reader's own, without its text, which may hold secrets."""
        reason = f"{READER_FAILED} ({type(error).__name__})."
        self.unreadable(statement, UnreadableStatementError(reason, statement.location))

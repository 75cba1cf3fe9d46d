"""What the reading process does when it is asked: plain data in, plain data out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lakehouse_dagster.sql.model import Script, Statement
from lakehouse_dagster.sql.packing import pack
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.script_reader import read_declarations, read_jobs
from lakehouse_dagster.sql.secret_problems import literal_secrets, may_hold_secret
from lakehouse_dagster.sql.transport import from_data, to_data
from lakehouse_dagster.sql.unit import Externals, ReadingContext, Unit

_DEFAULT = re.compile(r"\$\{[^}:]+:-([^}]*)\}")
_COMMENTS = (TokenKind.COMMENT, TokenKind.OPEN_COMMENT)


class Tasks:
    """The tasks, in a setting that is the same for many of them."""

    def __init__(self, setting: dict[str, Any]) -> None:
        """Args:
        setting: The data of a ``ReadingContext`` (``context``) and of ``Externals``.
        """
        self._context = from_data(ReadingContext, setting["context"])
        self._externals = from_data(Externals, setting["externals"])

    def run(self, task: str, unit: Any) -> Any:
        """Do the named task with a unit.

        Returns:
            What was read (``read``, packed), what for that was asked of others (``asked``), and
            whether it holds a secret (``holds_secret``).
        """
        return {"declarations": self._declarations, "jobs": self._jobs}[task](from_data(Unit, unit))

    def _declarations(self, unit: Unit) -> Any:
        found = read_declarations(unit, self._context, self._externals)
        # Of options only masked ones are in it, and no statement.
        return {"read": pack(found), "asked": to_data(found.asked), "holds_secret": False}

    def _jobs(self, unit: Unit) -> Any:
        found = read_jobs(unit, self._context, self._externals)
        holds_secret = _hold_secret(found.scripts)
        return {"read": pack(found), "asked": to_data(found.asked), "holds_secret": holds_secret}


def _hold_secret(scripts: Iterable[Script]) -> bool:
    """Whether the value of a secret option stands in a statement, in one of its comments too."""
    statements = {
        statement
        for script in scripts
        for statement in (*script.statements, *(s for job in script.jobs for s in job.setup))
    }
    return any(
        next(literal_secrets(part), None) is not None
        for statement in statements
        if ":-" in statement.text or may_hold_secret(statement.text)
        for part in _parts(statement)
    )


def _parts(statement: Statement) -> Iterable[Statement]:
    """The statement as it runs where no variable is set, and its comments."""
    text = _DEFAULT.sub(r"\1", statement.text)
    yield Statement(text, statement.location, statement.kind)
    for token in scan(text):
        if token.kind in _COMMENTS:
            yield Statement(token.text.lstrip("-/*"), statement.location, statement.kind)

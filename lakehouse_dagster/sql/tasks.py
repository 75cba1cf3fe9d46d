"""What the reading process does when it is asked: plain data in, plain data out."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from lakehouse_dagster.sql.model import Script, Statement
from lakehouse_dagster.sql.packing import pack
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.script_reader import read_declarations, read_jobs
from lakehouse_dagster.sql.secret_problems import literal_secrets, may_hold_secret
from lakehouse_dagster.sql.transport import from_data, to_data
from lakehouse_dagster.sql.unit import Deadline, Externals, ReadingContext, Unit

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
        self.cpu_seconds = math.inf
        """What a task may take of a processor's time; whoever asks may change it."""

    def run(self, task: str, unit: Any) -> Any:
        """Do the named task with a unit.

        Returns:
            What was read (``read``, packed), what for that was asked of others (``asked``), and
            whether that may be kept (``may_be_kept``): it holds no secret and is all.
        """
        return {"declarations": self._declarations, "jobs": self._jobs}[task](from_data(Unit, unit))

    def _declarations(self, unit: Unit) -> Any:
        until = self._until()
        found = read_declarations(unit, self._context, self._externals, until)
        # Of options only masked ones are in it, and no statement: no secret.
        kept = not until.is_over
        return {"read": pack(found), "asked": to_data(found.asked), "may_be_kept": kept}

    def _jobs(self, unit: Unit) -> Any:
        until = self._until()
        found = read_jobs(unit, self._context, self._externals, until)
        kept = not until.is_over and not _hold_secret(found.scripts)
        return {"read": pack(found), "asked": to_data(found.asked), "may_be_kept": kept}

    def _until(self) -> Deadline:
        # The rest of the time is for packing what was read.
        return Deadline(time.process_time() + 0.7 * self.cpu_seconds)


def _hold_secret(scripts: Sequence[Script]) -> bool:
    """Whether the value of a secret option stands in a statement, in one of its comments too."""
    # What runs before a script's jobs only grows: the longest setup holds those of all.
    setups = [max((job.setup for job in script.jobs), key=len, default=()) for script in scripts]
    statements = {
        statement
        for script, setup in zip(scripts, setups, strict=True)
        for statement in (*script.statements, *setup)
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

"""``${NAME}`` and ``${NAME:-default}`` in scripts: found when read, filled in at submission only.

A value takes the place of the variable as data: inside a string literal its quotes are doubled,
inside a backticked name its backticks, so that a password with a quote in it cannot end the
literal. Outside of quotes the value is put in as it is. Variables in comments do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakehouse_dagster.errors import MissingVariableError
from lakehouse_dagster.sql.scanner import TokenKind, scan

_VARIABLE = re.compile(r"\$\{(?P<name>[^}{\s'`:]+)(?::-(?P<default>[^}{\n'`]*))?\}")
_QUOTES = {
    TokenKind.STRING: "'",
    TokenKind.OPEN_STRING: "'",
    TokenKind.NAME: "`",
    TokenKind.OPEN_NAME: "`",
}


def variables_in(text: str) -> frozenset[str]:
    """Return the names of the variables that the text needs, those with a default included."""
    return frozenset(
        match["name"]
        for token in scan(text)
        if not token.is_trivia
        for match in _VARIABLE.finditer(token.text)
    )


def substitute(text: str, environ: Mapping[str, str], *, path: str = "the script") -> str:
    """Fill in the variables of a text.

    Args:
        text: SQL text, or the value of a setting.
        environ: Values by name; a variable set to the empty text counts as set.
        path: Where the text comes from, for the message.

    Raises:
        MissingVariableError: A variable has neither a value nor a default; names all of them.
    """
    missing = sorted(
        match["name"]
        for token in scan(text)
        if not token.is_trivia
        for match in _VARIABLE.finditer(token.text)
        if match["default"] is None and match["name"] not in environ
    )
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise MissingVariableError(
            f"{path} needs the environment variable{'s' if len(set(missing)) > 1 else ''} "
            f"{names}, which {'are' if len(set(missing)) > 1 else 'is'} not set.",
            remedy="Set it where Dagster runs, or give a default in the script: ${NAME:-value}.",
        )

    def fill(token_text: str, quote: str | None) -> str:
        def value(match: re.Match[str]) -> str:
            filled = environ.get(match["name"], match["default"] or "")
            return filled.replace(quote, quote * 2) if quote else filled

        return _VARIABLE.sub(value, token_text)

    return "".join(
        token.text if token.is_trivia else fill(token.text, _QUOTES.get(token.kind))
        for token in scan(text)
    )

"""Variables in scripts: ``${NAME}``, ``${NAME:-default}`` and ``{{ name }}``.

A value takes the place of the variable as data: inside a string literal its quotes are doubled,
inside a backticked name its backticks, so that a password with a quote in it cannot end the
literal. Outside of quotes the value is put in as it is. Variables in comments do not count.

Statements keep their variables; they are filled in twice. For *reading*, with the project's own
variables and with defaults, because names of tables may depend on them; for *submission*, with the
project's variables and the environment, where secrets are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakehouse_dagster.errors import MissingVariableError
from lakehouse_dagster.secret_names import MASK
from lakehouse_dagster.sql.scanner import VARIABLE, Token, TokenKind, scan

_VARIABLE = re.compile(
    r"\$\{(?P<name>[^}{\s'`:]+)(?::-(?P<default>[^}{\n'`]*))?\}"
    r"|\{\{[^\S\n]*(?P<braced>[^}{\s'`:]+)[^\S\n]*\}\}"
)
_MAY_HOLD_VARIABLE = re.compile(VARIABLE)
_PLACEHOLDER = re.compile(rf"{VARIABLE}|\{{\{{.*?\}}\}}|(?<![\w$])\$[A-Za-z_]\w*|%s|%\(\w+\)s")
_QUOTES = {
    TokenKind.STRING: "'",
    TokenKind.OPEN_STRING: "'",
    TokenKind.NAME: "`",
    TokenKind.OPEN_NAME: "`",
}


@dataclass(frozen=True)
class Filled:
    """A text with variables filled in for reading.

    ``written`` says of each literal that came about so how the script has it, which is what may be
    shown: a variable may hold a secret.
    """

    text: str = field(repr=False)
    written: Mapping[str, str] = field(default_factory=dict, repr=False)

    def shown(self, literal: str) -> str:
        """The content of a literal as it may be shown."""
        return self.written.get(literal, literal)


def placeholder_in(name: str) -> str | None:
    """Return the first thing in a name that stands for something else: ``${X}``, ``$X``, ``%s``."""
    match = _PLACEHOLDER.search(name)
    return match.group() if match else None


def missing_in(text: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names, sorted, of variables that have neither a value nor a default."""
    missing = {
        _name(match)
        for match in _matches(text)
        if match["default"] is None and _name(match) not in values
    }
    return tuple(sorted(missing))


def fill_for_reading(text: str, values: Mapping[str, str]) -> Filled:
    """Fill in what is known when a script is read; other variables become ``${name}``.

    Args:
        text: A statement.
        values: The project's variables.
    """
    if not _MAY_HOLD_VARIABLE.search(text):
        return Filled(text)
    parts: list[str] = []
    written: dict[str, str] = {}
    for token in scan(text):
        if token.is_trivia:
            parts.append(token.text)
            continue
        filled = _filled(token, values, keeps_unknown=True)
        if filled != token.text:
            written.update(_literals_of(token, filled))
        parts.append(filled)
    return Filled("".join(parts), written)


def substitute(text: str, environ: Mapping[str, str], *, path: str = "the script") -> str:
    """Fill in the variables of a text.

    Args:
        text: SQL text, or the value of a setting.
        environ: Values by name; a variable set to the empty text counts as set.
        path: Where the text comes from, for the message.

    Raises:
        MissingVariableError: A variable has neither a value nor a default; names all of them.
    """
    if not _MAY_HOLD_VARIABLE.search(text):
        return text
    missing = missing_in(text, environ)
    if missing:
        several = len(missing) > 1
        raise MissingVariableError(
            f"{path} needs the variable{'s' if several else ''} {', '.join(missing)}, which "
            f"{'are' if several else 'is'} neither set in the environment nor in the project.",
            remedy="Set it where Dagster runs or among the project's variables, or give a default "
            "in the script: ${NAME:-value}.",
        )
    return "".join(
        token.text if token.is_trivia else _filled(token, environ, keeps_unknown=False)
        for token in scan(text)
    )


def _matches(text: str) -> Iterator[re.Match[str]]:
    if "{" not in text or not _MAY_HOLD_VARIABLE.search(text):
        return
    for token in scan(text):
        if "{" in token.text and not token.is_trivia:
            yield from _VARIABLE.finditer(token.text)


def _name(match: re.Match[str]) -> str:
    return match["name"] or match["braced"]


def _filled(token: Token, values: Mapping[str, str], *, keeps_unknown: bool) -> str:
    quote = _QUOTES.get(token.kind)

    def value(match: re.Match[str]) -> str:
        name = _name(match)
        known = values.get(name, match["default"])
        if known is None:
            return f"${{{name}}}" if keeps_unknown else ""
        return known.replace(quote, quote * 2) if quote else known

    return _VARIABLE.sub(value, token.text)


def _literals_of(token: Token, filled: str) -> dict[str, str]:
    """The literals in what a token became: how the script has each, or that a value holds it."""
    if token.kind is TokenKind.STRING:
        return {token._replace(text=filled).content: token.content}
    return {inner.content: MASK for inner in scan(filled) if inner.kind is TokenKind.STRING}

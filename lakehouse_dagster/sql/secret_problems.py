"""Passwords and keys that stand in a script: pointed at, never repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakehouse_dagster.sql.model import (
    Location,
    Problem,
    Severity,
    Statement,
    StatementKind,
    beginning,
)
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan
from lakehouse_dagster.sql.settings import parse_set
from lakehouse_dagster.sql.sources import MASK, mask_secrets
from lakehouse_dagster.sql.statements import LineIndex, shifted
from lakehouse_dagster.sql.variables import placeholder_in

_MAY_HOLD_SECRET = re.compile(
    r"passw|secret|token|credential|(?:access|api|private)[-_.]?key|jaas|authorization|passphrase"
    r"|://[^/\s']*@",
    re.I,
)
_FIRST_LOOK = (
    "passw",
    "secret",
    "token",
    "credential",
    "access",
    "api",
    "private",
    "jaas",
    "authorization",
    "://",
)
"""In whatever the pattern finds: looking for them takes a tenth of its time."""
_IN_JAAS = re.compile(r"(?:password|secret\w*)\s*=\s*[\"']*([^\"';\s]+)", re.I)
_HARMLESS = re.compile(r"|true|false|\d|\*+", re.I)


def may_hold_secret(text: str) -> bool:
    """Whether a text, or any part of it, is worth looking through for secrets."""
    folded = text.casefold()
    return any(map(folded.__contains__, _FIRST_LOOK)) and bool(_MAY_HOLD_SECRET.search(text))


def literal_secrets(statement: Statement) -> Iterator[Problem]:
    """Yield a warning for each option of a statement whose value is a secret in clear text."""
    if not may_hold_secret(statement.text):
        return
    index = LineIndex(statement.text, statement.location.path)
    for key, value, offset in _options(statement):
        if _is_secret(key, value):
            yield _problem(statement, key, shifted(statement.location, index.locate(offset)))


def _is_secret(key: str, value: str) -> bool:
    masked = mask_secrets({key: value})[key]
    if masked == value or _HARMLESS.fullmatch(value.strip()):
        return False
    if "jaas" in key.lower():
        found = _IN_JAAS.search(value)
        return found is not None and placeholder_in(found[1]) is None
    if masked == MASK:
        return placeholder_in(value) is None
    # Part of an address: what stands before and after it is the same in both.
    start = masked.index(MASK)
    end = len(value) - (len(masked) - start - len(MASK))
    return placeholder_in(value[start:end]) is None


def _problem(statement: Statement, key: str, location: Location) -> Problem:
    return Problem(
        location,
        Severity.WARNING,
        f"A secret stands in the script: the value of {key}.",
        "Write ${NAME}, and set NAME in the environment where Dagster runs.",
        beginning(statement),
    )


def _options(statement: Statement) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and the value's offset of every ``'key' = 'value'`` and of SET."""
    before: tuple[Token | None, Token | None] = (None, None)
    quoted = False
    for token in scan(statement.text):
        if token.is_trivia:
            continue
        key, sign = before
        if (
            token.kind is TokenKind.STRING
            and sign is not None
            and sign.text == "="
            and key is not None
            and key.kind is TokenKind.STRING
        ):
            quoted = True
            yield _content(key), _content(token), token.offset
        before = (sign, token)
    if not quoted and statement.kind is StatementKind.SET:
        option = parse_set(statement.text)
        if option is not None:
            yield (*option, 0)


def _content(literal: Token) -> str:
    return literal.text[1:-1].replace("''", "'")

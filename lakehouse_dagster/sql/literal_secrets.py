"""Whether statements hold a password or key themselves, and no variable that stands for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lakehouse_dagster.sql.model import Statement, StatementKind
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan
from lakehouse_dagster.sql.settings import parse_set
from lakehouse_dagster.sql.sources import mask_secrets

_VARIABLE = re.compile(r"\s*(?:\$\{\w[\w.]*\}|\{\{[^{}]*\}\})\s*")


def hold_secret(statements: Iterable[Statement]) -> bool:
    """Whether the value of a secret option stands in one of the statements, in a comment too."""
    return any(
        value.strip()
        and not _VARIABLE.fullmatch(value)
        and mask_secrets({key: value})[key] != value
        for statement in statements
        for key, value in _options(statement)
    )


def _options(statement: Statement) -> Iterator[tuple[str, str]]:
    if statement.kind is StatementKind.SET and (option := parse_set(statement.text)):
        yield option
    yield from _pairs(scan(statement.text))


def _pairs(tokens: Iterable[Token]) -> Iterator[tuple[str, str]]:
    """All ``'key' = 'value'``."""
    before: tuple[str, ...] = ("", "")
    for token in tokens:
        if token.kind in (TokenKind.COMMENT, TokenKind.OPEN_COMMENT):
            yield from _pairs(scan(token.text.lstrip("-/*")))
        if token.is_trivia:
            continue
        key, sign = before[-2:]
        if token.kind is TokenKind.STRING and sign == "=" and key.startswith("'"):
            yield _unquoted(key), _unquoted(token.text)
        before = (sign, token.text)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")

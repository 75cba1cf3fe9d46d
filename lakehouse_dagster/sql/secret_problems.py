"""Passwords and keys that stand in a script: pointed at, never repeated."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from lakehouse_dagster.secret_names import MASK, SECRETS
from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import (
    Location,
    Problem,
    Severity,
    Statement,
    StatementKind,
)
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan
from lakehouse_dagster.sql.settings import parse_set
from lakehouse_dagster.sql.sources import mask_secrets
from lakehouse_dagster.sql.statements import LineIndex, shifted
from lakehouse_dagster.sql.variables import placeholder_in

_MAY_HOLD_SECRET = re.compile(rf"{SECRETS}|authorization|://[^/\s']*@", re.I)
_FIRST_LOOK = (
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "jaas",
    "auth",
    "http-headers",
    "access",
    "account",
    "api",
    "private",
    "service",
    "://",
)
"""In whatever the pattern finds: looking for them takes a tenth of its time."""
_IN_JAAS = re.compile(r"(?:password|secret\w*)\s*=\s*[\"']*([^\"';\s]+)", re.I)
_ASSIGNED = re.compile(
    rf"(?P<key>(?:{SECRETS})[\w.-]*)(?=[\"'`]?\s*(?P<sign>[:=])\s*(?P<value>[^\s;,)]+))",
    re.I,
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/@\s':]*:([^/@\s']+)@")
_HARMLESS = re.compile(r"|true|false|\d|\*+", re.I)


def may_hold_secret(text: str) -> bool:
    """Whether a text, or any part of it, is worth looking through for secrets."""
    folded = text.casefold()
    return any(map(folded.__contains__, _FIRST_LOOK)) and bool(_MAY_HOLD_SECRET.search(text))


def literal_secrets(statement: Statement) -> Iterator[Problem]:
    """Yield a warning for each value of a statement that is a secret in clear text."""
    if not may_hold_secret(statement.text):
        return
    index = LineIndex(statement.text, statement.location.path)
    told = set()
    for key, value, offset in _options(statement):
        told.add(offset)
        if _is_secret(key, value):
            yield _problem(statement, key, shifted(statement.location, index.locate(offset)))
    if statement.kind is StatementKind.UNKNOWN:
        for match in _ASSIGNED.finditer(statement.text):
            if not _is_told(match["value"]):
                place = shifted(statement.location, index.locate(match.start("value")))
                yield _problem(statement, match["key"], place)
        return
    for token in scan(statement.text):
        if token.kind is not TokenKind.STRING or token.offset in told:
            continue
        if any(not _is_told(match[1]) for match in _PASSWORD_IN_ADDRESS.finditer(token.text)):
            place = shifted(statement.location, index.locate(token.offset))
            yield _problem(statement, "an address", place)


def secrets_outside(text: str, kept: str, path: str) -> Iterator[Problem]:
    """Yield a warning for each secret in a comment, or in what is no SQL.

    Args:
        text: A whole file.
        kept: The same with what is no SQL blanked out.
    """
    if not may_hold_secret(text):
        return
    found = {match.start("value"): match for match in _ASSIGNED.finditer(text)}
    found |= {match.start(1): match for match in _PASSWORD_IN_ADDRESS.finditer(text)}
    if not found:
        return
    comments = [
        (token.offset, token.offset + len(token.text)) for token in scan(kept) if token.is_trivia
    ]
    starts = [start for start, _ in comments]
    index = LineIndex(text, path)
    for offset, match in sorted(found.items()):
        number = bisect_right(starts, offset) - 1
        if number < 0 or offset >= comments[number][1]:
            continue
        is_comment = kept[offset] == text[offset]
        if is_comment and ":" in match.groupdict().get("sign", ""):
            continue  # prose, most of the time
        if not _is_told(match.groupdict().get("value") or match[1]):
            key = match.groupdict().get("key", "an address")
            yield _told(key, index.locate(offset))


def _is_told(value: str) -> bool:
    """Whether a value is nothing that must be hidden."""
    value = value.strip("'\"` ")
    return bool(_HARMLESS.fullmatch(value)) or placeholder_in(value) is not None


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
    return _told(key, location, beginning(statement))


def _told(key: str, location: Location, start: str = "") -> Problem:
    return Problem(
        location,
        Severity.WARNING,
        f"A secret stands in the script: the value of {key}.",
        "Write ${NAME}, and set NAME in the environment where Dagster runs.",
        start,
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
            yield key.content, token.content, token.offset
        before = (sign, token)
    if not quoted and statement.kind is StatementKind.SET:
        option = parse_set(statement.text)
        if option is not None:
            yield (*option, 0)

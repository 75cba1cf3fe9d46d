"""From a file's text to its statements, with what is wrong with the text itself."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import lru_cache

from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import (
    Location,
    Problem,
    Severity,
    Statement,
    StatementKind,
)
from lakehouse_dagster.sql.noise import Noise, without_noise
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.secret_problems import secrets_outside
from lakehouse_dagster.sql.statements import (
    Chunk,
    LineIndex,
    chunks,
    group_chunks,
    lacking_semicolon,
    parted,
    statement_of,
)

_LONG = 200_000
_UNTERMINATED = {
    TokenKind.OPEN_STRING: ("string", "'"),
    TokenKind.OPEN_NAME: ("quoted name", "`"),
    TokenKind.OPEN_COMMENT: ("comment", "*/"),
}
_CONTINUES_QUERY = {
    "UNION": {"ALL", "SELECT", "DISTINCT"},
    "EXCEPT": {"ALL", "SELECT", "DISTINCT"},
    "MINUS": {"ALL", "SELECT", "DISTINCT"},
    "INTERSECT": {"ALL", "SELECT", "DISTINCT"},
    "GROUP": {"BY"},
    "ORDER": {"BY"},
    "LEFT": {"JOIN", "OUTER"},
    "INNER": {"JOIN"},
}
_HOLDS_QUERY = {
    StatementKind.INSERT,
    StatementKind.QUERY,
    StatementKind.CREATE_VIEW,
    StatementKind.CREATE_TEMPORARY_VIEW,
    StatementKind.CREATE_TABLE_AS,
}


@dataclass(frozen=True)
class ScriptText:
    """The statements of a text, and the problems of the text."""

    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...] = ()


def statements_of(text: str, path: str) -> ScriptText:
    """Split a file's text into statements; what is no SQL is left out of them, and told."""
    return _kept(text, path) if len(text) < _LONG else _split(text, path)


@lru_cache(maxsize=1_000)
def _kept(text: str, path: str) -> ScriptText:
    """Kept for a while: each file is split once for each of the two passes, a prelude for all."""
    return _split(text, path)


def _split(text: str, path: str) -> ScriptText:
    kept, noise = without_noise(text)
    index = LineIndex(kept, path)
    problems = [_of_noise(found, index) for found in noise]
    problems += secrets_outside(text, kept, path)
    statements: list[Statement] = []
    ended = True
    pieces = list(chunks(kept))
    problems += _unterminated(pieces, index)
    for group in group_chunks(part for piece in pieces for part in parted(piece, kept)):
        statement = statement_of(kept, group, index)
        if not ended:
            problems.append(_missing_semicolon(statement))
        if statement.kind is StatementKind.STATEMENT_SET:
            problems += [
                _missing_semicolon(statement, place) for place in lacking_semicolon(statement)
            ]
        if ended and statements and _continues(statement, statements[-1]):
            problems.append(_stray_semicolon(statement))
        ended = group[-1].tokens[-1].kind is TokenKind.SEMICOLON
        statements.append(statement)
    if not statements:
        problems.append(
            Problem(
                Location(path, 1, 1),
                Severity.WARNING,
                "The script holds no statement.",
                "Leave it out of the scripts.",
            )
        )
    return ScriptText(tuple(statements), tuple(problems))


def included_path(statement: Statement) -> str | None:
    """Return the path of the file that a ``SOURCE`` statement names, completed from its folder."""
    if statement.kind is not StatementKind.ACTION or statement.text[:6].upper() != "SOURCE":
        return None
    tokens = [token for token in scan(statement.text) if not token.is_trivia]
    if len(tokens) < 2 or not tokens[0].is_word("SOURCE"):
        return None
    written = statement.text[tokens[1].offset :].strip()
    if tokens[1].kind is TokenKind.STRING and len(tokens) == 2:
        written = tokens[1].content
    elif any(sign.isspace() or sign == "'" for sign in written):
        return None
    folder = posixpath.dirname(statement.location.path)
    return posixpath.normpath(posixpath.join(folder, written))


def _of_noise(noise: Noise, index: LineIndex) -> Problem:
    return Problem(
        index.locate(noise.offset),
        Severity.WARNING,
        f"{noise.what} is no SQL; it is left out.",
        "Take it out of the script: Flink does not take it.",
    )


def _unterminated(pieces: list[Chunk], index: LineIndex) -> list[Problem]:
    """What does not end takes all of the text after it: only a text's last token can be it."""
    last = pieces[-1].tokens[-1] if pieces else None
    if last is None or not last.is_unterminated:
        return []
    what, closing = _UNTERMINATED[last.kind]
    return [
        Problem(
            index.locate(last.offset),
            Severity.ERROR,
            f"The {what} that begins here does not end.",
            f"Close it with {closing}",
        )
    ]


def _missing_semicolon(statement: Statement, place: Location | None = None) -> Problem:
    return Problem(
        place or statement.location,
        Severity.WARNING,
        "A semicolon is missing before this.",
        "Write one: Flink takes both statements for one, and refuses it.",
        beginning(statement),
    )


def _continues(statement: Statement, before: Statement) -> bool:
    if statement.kind is not StatementKind.UNKNOWN or before.kind not in _HOLDS_QUERY:
        return False
    tokens = [token for token in scan(statement.text) if not token.is_trivia][:2]
    words = [token.text.upper() for token in tokens]
    if len(words) < 2 or words[0] not in _CONTINUES_QUERY:
        return False
    return words[1] in _CONTINUES_QUERY[words[0]]


def _stray_semicolon(statement: Statement) -> Problem:
    return Problem(
        statement.location,
        Severity.ERROR,
        "The semicolon before this ends the statement above: it would run without what follows.",
        "Take the semicolon away, or this part.",
        beginning(statement),
    )

"""Splits a script into statements, the way Flink's SQL client does, and tells what each does."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from lakehouse_dagster.sql.boundaries import MAY_BE_CUT, cuts
from lakehouse_dagster.sql.model import Location, Statement, StatementKind
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan

_QUERY_WORDS = {
    "SELECT",
    "WITH",
    "VALUES",
    "TABLE",
    "SHOW",
    "DESC",
    "DESCRIBE",
    "EXPLAIN",
    "HELP",
    "CLEAR",
    "QUIT",
    "EXIT",
    "LIST",
}
_ACTION_WORDS = {
    "CALL",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "ANALYZE",
    "STOP",
    "COMPILE",
    "EXECUTE",
    "MERGE",
    "REPLACE",
    "SOURCE",
}
_SIMPLE_KINDS = {
    "USE": StatementKind.USE,
    "SET": StatementKind.SET,
    "RESET": StatementKind.RESET,
    "INSERT": StatementKind.INSERT,
    "ALTER": StatementKind.ALTER,
    "LOAD": StatementKind.MODULE_OR_JAR,
    "UNLOAD": StatementKind.MODULE_OR_JAR,
    "ADD": StatementKind.MODULE_OR_JAR,
    "REMOVE": StatementKind.MODULE_OR_JAR,
}
_ENDS_BROKEN_SET = {"SET", "RESET", "USE", "EXECUTE", "BEGIN"}


@dataclass
class Chunk:
    """The tokens up to and including one semicolon, or up to the end of the text."""

    tokens: list[Token] = field(default_factory=list)

    @cached_property
    def significant(self) -> list[Token]:
        """The tokens that are neither white space, comment nor the closing semicolon."""
        return [t for t in self.tokens if not t.is_trivia and t.kind is not TokenKind.SEMICOLON]

    def words(self, count: int) -> tuple[str, ...]:
        """The leading words in capitals; an empty text stands for what is not a bare word."""
        return tuple(
            t.text.upper() if t.kind is TokenKind.WORD else "" for t in self.significant[:count]
        )


class LineIndex:
    """Finds line and column of an offset in a text."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._starts = [0, *(end.end() for end in re.finditer("\n", text))]

    def locate(self, offset: int) -> Location:
        """Return the 1-based place of a 0-based offset."""
        line = bisect_right(self._starts, offset)
        return Location(self._path, line, offset - self._starts[line - 1] + 1)


def split(text: str, path: str = "<text>") -> tuple[Statement, ...]:
    """Split a script into its statements; a statement set, in either form, is one statement.

    Where a semicolon between two statements was clearly forgotten they are told apart all the same.

    Args:
        text: The script. Text that is not SQL is kept as statements of kind UNKNOWN.
        path: Where the text comes from, for the locations.
    """
    index = LineIndex(text, path)
    return tuple(statement_of(text, group, index) for group in groups(text))


def groups(text: str) -> Iterator[list[Chunk]]:
    """The chunks of each statement of a text."""
    return group_chunks(part for chunk in chunks(text) for part in parted(chunk, text))


def parted(chunk: Chunk, text: str) -> Iterator[Chunk]:
    """Cut a chunk of a text where a semicolon was forgotten."""
    first, last = chunk.tokens[0], chunk.tokens[-1]
    if not MAY_BE_CUT.search(text, first.offset + 1, last.offset):
        yield chunk
        return
    start = 0
    for position in cuts(chunk.tokens):
        yield Chunk(chunk.tokens[start:position])
        start = position
    yield Chunk(chunk.tokens[start:]) if start else chunk


def chunks(text: str, start: int = 0) -> Iterator[Chunk]:
    """Cut a text after every semicolon that is not in a string, name, comment or variable."""
    chunk = Chunk()
    for token in scan(text, start):
        chunk.tokens.append(token)
        if token.kind is TokenKind.SEMICOLON:
            yield chunk
            chunk = Chunk()
    if chunk.tokens:
        yield chunk


def group_chunks(pieces: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Put the chunks of a statement set together and leave empty chunks out."""
    waiting = [chunk for chunk in pieces if chunk.significant]
    position = 0
    while position < len(waiting):
        length = 1
        if opens_statement_set(waiting[position]):
            length = _length_of_set(waiting[position:])
        yield waiting[position : position + length]
        position += length


def _length_of_set(waiting: list[Chunk]) -> int:
    """How many chunks the statement set has that the first of them opens."""
    broken_at = None
    for number, chunk in enumerate(waiting[1:], 1):
        word = chunk.words(1)[0]
        if word == "END":
            return number + 1
        if opens_statement_set(chunk):
            return broken_at or number
        if broken_at is None and word in _ENDS_BROKEN_SET:
            broken_at = number
    return broken_at or len(waiting)


def opens_statement_set(chunk: Chunk) -> bool:
    """Whether the chunk begins a statement set that a later chunk has to end."""
    words = chunk.words(12)
    if words[:3] == ("BEGIN", "STATEMENT", "SET"):
        return True
    for start in range(len(words) - 2):
        if words[start : start + 3] == ("STATEMENT", "SET", "BEGIN"):
            return words[0] in ("EXECUTE", "EXPLAIN", "COMPILE")
    return False


def is_closed_set(statement: Statement) -> bool:
    """Whether a statement set ends with END."""
    last = [t for t in scan(statement.text) if not t.is_trivia and t.text != ";"][-1]
    return last.is_word("END")


def as_one_statement(statement: Statement) -> str:
    """Return the text in the form that the SQL Gateway takes as one statement.

    ``BEGIN STATEMENT SET; …; END`` is three or more statements to the gateway, which keeps the
    set in its session; ``EXECUTE STATEMENT SET BEGIN …; END`` is one. Semicolons that were
    forgotten in a set are added. Other texts are unchanged.
    """
    if statement.kind is StatementKind.STATEMENT_SET and lacking_semicolon(statement):
        inner = "".join(f"\n{member.text};" for member in members(statement))
        return f"EXECUTE STATEMENT SET BEGIN{inner}\nEND"
    head = [token for token in scan(statement.text) if not token.is_trivia][:4]
    if len(head) < 4 or not head[0].is_word("BEGIN") or head[3].kind is not TokenKind.SEMICOLON:
        return statement.text
    return "EXECUTE STATEMENT SET BEGIN" + statement.text[head[3].offset + 1 :]


def members(statement: Statement) -> tuple[Statement, ...]:
    """Return the statements of a statement set, each at its own place in the script."""
    index = LineIndex(statement.text, statement.location.path)
    found = (statement_of(statement.text, [chunk], index) for chunk in _member_chunks(statement))
    return tuple(
        Statement(member.text, shifted(statement.location, member.location), member.kind)
        for member in found
    )


def lacking_semicolon(statement: Statement) -> tuple[Location, ...]:
    """The places in a statement set before which a semicolon was forgotten."""
    index = LineIndex(statement.text, statement.location.path)
    found = []
    parts = [
        part
        for chunk in chunks(statement.text, _offset_of_body(list(scan(statement.text))))
        for part in parted(chunk, statement.text)
        if part.significant
    ]
    for before, part in pairwise(parts):
        if before.tokens[-1].kind is not TokenKind.SEMICOLON:
            place = index.locate(part.significant[0].offset)
            found.append(shifted(statement.location, place))
    return tuple(found)


def _member_chunks(statement: Statement) -> Iterator[Chunk]:
    body = _offset_of_body(list(scan(statement.text)))
    for chunk in chunks(statement.text, body):
        for part in parted(chunk, statement.text):
            if part.significant and part.words(2) != ("END",):
                yield part


def without_members(statement: Statement, kinds: frozenset[StatementKind]) -> Statement:
    """Return a statement set in which only members of these kinds are left, the rest blank."""
    text = statement.text
    for chunk in _member_chunks(statement):
        if _kind(chunk) not in kinds:
            start = chunk.significant[0].offset
            end = chunk.tokens[-1].offset + len(chunk.tokens[-1].text)
            blank = "".join("\n" if sign == "\n" else " " for sign in text[start:end])
            text = text[:start] + blank + text[end:]
    return replace(statement, text=text)


def shifted(start: Location, inner: Location) -> Location:
    """Return the place in the script of a place in a text that begins at ``start``."""
    column = inner.column + (start.column - 1 if inner.line == 1 else 0)
    return Location(start.path, start.line + inner.line - 1, column)


def place_in(statement: Statement, offset: int) -> Location:
    """Return the place in the script of a 0-based offset in a statement's text."""
    index = LineIndex(statement.text, statement.location.path)
    return shifted(statement.location, index.locate(offset))


def _offset_of_body(tokens: list[Token]) -> int:
    words = [token for token in tokens if not token.is_trivia]
    if words[0].is_word("BEGIN"):
        last = words[3] if len(words) > 3 and words[3].kind is TokenKind.SEMICOLON else words[2]
        return last.offset + len(last.text)
    begin = next(token for token in words if token.is_word("BEGIN"))
    return begin.offset + len(begin.text)


def statement_of(text: str, group: list[Chunk], index: LineIndex) -> Statement:
    """Make a statement of the chunks of a text that belong together."""
    first, last = group[0].significant[0], group[-1].significant[-1]
    return Statement(
        text=text[first.offset : last.offset + len(last.text)],
        location=index.locate(first.offset),
        kind=_kind(group[0]),
    )


def _kind(chunk: Chunk) -> StatementKind:
    if opens_statement_set(chunk):
        return {
            "EXPLAIN": StatementKind.QUERY,
            "COMPILE": StatementKind.ACTION,
        }.get(chunk.words(1)[0], StatementKind.STATEMENT_SET)
    words = chunk.words(4)
    first = words[0]
    if first == "EXECUTE" and words[1:2] == ("INSERT",):
        return StatementKind.INSERT
    if first == "CREATE" or words[:2] == ("REPLACE", "TABLE"):
        return _create_kind(chunk)
    if first == "DROP":
        temporary = words[1:2] == ("TEMPORARY",)
        return StatementKind.DROP_TEMPORARY if temporary else StatementKind.DROP
    if first in _SIMPLE_KINDS:
        return _SIMPLE_KINDS[first]
    if first in _ACTION_WORDS:
        return StatementKind.ACTION
    return StatementKind.QUERY if first in _QUERY_WORDS else StatementKind.UNKNOWN


def _create_kind(chunk: Chunk) -> StatementKind:
    fillers = ("CREATE", "OR", "REPLACE", "SYSTEM")
    words = [w for w in chunk.words(7) if w not in fillers]
    temporary = words[:1] == ["TEMPORARY"]
    subject = words[1] if temporary and len(words) > 1 else (words[0] if words else "")
    if subject == "TABLE":
        if _has_query(chunk):
            return StatementKind.CREATE_TABLE_AS
        return StatementKind.CREATE_TEMPORARY_TABLE if temporary else StatementKind.CREATE_TABLE
    if subject == "VIEW":
        return StatementKind.CREATE_TEMPORARY_VIEW if temporary else StatementKind.CREATE_VIEW
    return {
        "CATALOG": StatementKind.CREATE_CATALOG,
        "DATABASE": StatementKind.CREATE_DATABASE,
        "FUNCTION": StatementKind.CREATE_FUNCTION,
    }.get(subject, StatementKind.CREATE_OTHER)


def _has_query(chunk: Chunk) -> bool:
    """Whether ``AS SELECT`` or ``AS WITH`` stands outside of all brackets."""
    depth, after_as = 0, False
    for token in chunk.significant:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if after_as and token.is_word("SELECT", "WITH", "VALUES"):
            return True
        after_as = (depth == 0 and token.is_word("AS")) or (after_as and token.text == "(")
    return False

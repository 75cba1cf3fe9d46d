"""What a statement's tokens alone tell, without sqlglot: also of one that cannot be parsed."""

from __future__ import annotations

from lakehouse_dagster.sql.model import Location, Statement, StatementKind
from lakehouse_dagster.sql.scanner import Token, TokenKind, scan
from lakehouse_dagster.sql.statements import place_in


def place_of(name: str, statement: Statement) -> Location:
    """Return where a name first stands in a statement, or where the statement begins."""
    for token in scan(statement.text):
        if _is_name(token) and token.content == name:
            return place_in(statement, token.offset)
    return statement.location


def created_catalog(statement: Statement) -> str | None:
    """Return the name of the catalog that a statement creates, if it is CREATE CATALOG."""
    if statement.kind is not StatementKind.CREATE_CATALOG:
        return None
    parts = name_after(statement.text, "CREATE", "CATALOG", "IF", "NOT", "EXISTS")
    return parts[0] if parts is not None and len(parts) == 1 else None


def name_after(text: str, *words: str) -> tuple[str, ...] | None:
    """Find the name that follows keywords at the beginning of a statement, without parsing it.

    Args:
        words: Keywords of which any number may stand before the name, the first of them first.
    """
    tokens = [token for token in scan(text) if not token.is_trivia]
    position = 0
    while position < len(tokens) and tokens[position].is_word(*words):
        position += 1
    if position == 0:
        return None
    parts: list[str] = []
    while position < len(tokens) and len(parts) < 3 and _is_name(tokens[position]):
        parts.append(tokens[position].content)
        if position + 1 < len(tokens) and _touches(tokens[position], tokens[position + 1]):
            return None
        if position + 1 >= len(tokens) or tokens[position + 1].text != ".":
            return tuple(parts)
        position += 2
    return None


def option(text: str, key: str) -> str | None:
    """Return the value of an option such as ``'connector' = 'kafka'``, without parsing the text."""
    tokens = [token for token in scan(text) if not token.is_trivia]
    for name, sign, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_option = (name.text, sign.text, value.kind) == (f"'{key}'", "=", TokenKind.STRING)
        if is_option:
            return value.content
    return None


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.NAME, TokenKind.VARIABLE)


def _touches(name: Token, following: Token) -> bool:
    """Whether a variable stands directly at a name, so that the name is not all of it."""
    return _is_name(following) and name.offset + len(name.text) == following.offset

"""Where a session begins: in the lake's catalog, or where plain Flink does.

A script for this project may take the lake's catalog for granted, and finds it current. One that
was written for the SQL client creates the catalog itself, and then changes to it or names its
tables in three parts: what it says before that belongs to Flink's own catalog.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_dagster.sql.model import Statement, StatementKind
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.written import created_catalog

_START = "USE CATALOG `default_catalog`"


def begins_in_flinks_catalog(statements: Iterable[Statement], lake: str) -> bool:
    """Whether the statements create the lake's catalog and name it afterwards."""
    created = False
    for statement in statements:
        if created_catalog(statement) == lake:
            created = True
        elif created and lake in statement.text and _names_catalog(statement, lake):
            return True
    return False


def start_in_flinks_catalog(first: Statement) -> Statement:
    """The statement that brings a session there; it stands where the script's first one does."""
    return Statement(_START, first.location, StatementKind.USE)


def _names_catalog(statement: Statement, lake: str) -> bool:
    tokens = [token for token in scan(statement.text) if not token.is_trivia]
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.content != lake or token.kind is TokenKind.STRING:
            continue
        if before is not None and before.is_word("CATALOG"):
            return statement.kind is StatementKind.USE
        if after is not None and after.text == "." and (before is None or before.text != "."):
            return True
    return False

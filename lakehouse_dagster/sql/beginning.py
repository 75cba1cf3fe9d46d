"""What messages show of a statement, by which its author knows it again."""

from __future__ import annotations

from lakehouse_dagster.secret_names import is_secret
from lakehouse_dagster.sql.model import Statement, StatementKind
from lakehouse_dagster.sql.scanner import TokenKind, scan

_WORDS = """
ADD ALL ALTER ANALYZE AS BEGIN BY CALL CATALOG COMPILE CREATE DATABASE DELETE DESCRIBE DISTINCT
DROP END EXCEPT EXECUTE EXISTS EXPLAIN FROM FUNCTION GROUP HAVING IF INNER INSERT INTERSECT INTO
JOIN LEFT LIMIT LOAD MERGE MINUS NOT ON OR ORDER OVERWRITE REPLACE RESET RIGHT SELECT SET SHOW
STATEMENT TABLE TEMPORARY TRUNCATE UNION UNLOAD UPDATE USE VALUES VIEW WHERE WITH
"""
_KEYWORDS = frozenset(_WORDS.split())
"""With these statements and their clauses begin."""


def beginning(statement: Statement) -> str:
    """Return the first words of a statement, without values, which may be secrets.

    Of what is no SQL only keywords are shown: a pasted line may hold anything.
    """
    words: list[str] = []
    name = ""
    for token in scan(statement.text):
        if len(words) == 60:
            break
        if token.is_trivia:
            words.append(" ")
            continue
        is_sign = token.kind is TokenKind.OTHER
        assigns = token.text in ("=", ":") and is_sign
        if assigns and (statement.kind is StatementKind.SET or is_secret(name)):
            words.append(f"{token.text} …")
            break
        if statement.kind is StatementKind.UNKNOWN and token.text.upper() not in _KEYWORDS:
            words.append("…")
            break
        if token.kind in (TokenKind.STRING, TokenKind.OPEN_STRING):
            words.append("'…'")
        else:
            words.append(token.text)
        name = name if is_sign and token.text != "," else token.text
    return " ".join("".join(words).split())[:60]

"""Columns named in the keyword clauses of a function, which the tree holds as text.

``JSON_OBJECT(KEY 'a' VALUE b.c)`` and ``SUBSTRING(a FROM b FOR c)`` name columns there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakehouse_dagster.sql.scanner import Token, TokenKind, scan

_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        ABSENT ARRAY CONDITIONAL DEFAULT EMPTY ERROR FOR FORMAT FROM JSON KEY NULL OBJECT ON PLACING
        RETURNING UNCONDITIONAL VALUE WITH WITHOUT WRAPPER
        AND AS BETWEEN CASE DISTINCT ELSE END FALSE IN IS LIKE NOT OR THEN TRUE UNKNOWN WHEN
        BIGINT BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT INTEGER MAP SMALLINT STRING TIME
        TIMESTAMP TIMESTAMP_LTZ TINYINT VARCHAR
        """,
    )
)
"""Keywords of the clauses, of expressions in them and of types."""


def is_clause_word(name: str) -> bool:
    """Whether an unquoted name is a keyword there and no column."""
    return name.upper() in _WORDS


def names_in(clauses: str) -> Iterator[tuple[str, ...]]:
    """The dotted names in the text of clauses, functions and keywords left out."""
    tokens = [token for token in scan(clauses) if not token.is_trivia]
    position = 0
    while position < len(tokens):
        parts = [tokens[position]]
        position += 1
        while _is_name(parts[-1]) and _is_dot_and_name(tokens[position : position + 2]):
            parts.append(tokens[position + 1])
            position += 2
        called = position < len(tokens) and tokens[position].text == "("
        keyword = len(parts) == 1 and parts[0].kind is TokenKind.WORD
        keyword = keyword and is_clause_word(parts[0].text)
        if _is_name(parts[0]) and not called and not keyword:
            yield tuple(part.content for part in parts)


def _is_name(token: Token) -> bool:
    is_number = token.text[0].isdigit()
    return token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and not is_number)


def _is_dot_and_name(tokens: list[Token]) -> bool:
    return len(tokens) == 2 and tokens[0].text == "." and _is_name(tokens[1])

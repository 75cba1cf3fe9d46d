"""``SET`` and ``RESET``: read as text, because a bare value is no SQL expression.

The SQL Client takes ``SET 'key' = 'value'`` and, from older versions, ``SET key = value``
(Flink's ``SetOperationParseStrategy``).
"""

from __future__ import annotations

import re

from lakehouse_dagster.sql.scanner import scan

_QUOTED = r"'(?:[^']|'')*'"
_SET = re.compile(rf"SET\s+({_QUOTED}|[^\s='`]+)\s*=\s*({_QUOTED}|[^\s'][^']*)?\s*", re.I)
_RESET = re.compile(rf"RESET(?:\s+({_QUOTED}|[^\s'`]+))?\s*", re.I)


def parse_set(statement: str) -> tuple[str, str] | None:
    """Return key and value of a SET statement, or None if it has another form."""
    match = _SET.fullmatch(_without_comments(statement))
    return (_unquoted(match[1]), _unquoted(match[2] or "")) if match else None


def parse_reset(statement: str) -> str | None:
    """Return the key of a RESET statement, or None if it resets all (or has another form)."""
    match = _RESET.fullmatch(_without_comments(statement))
    return _unquoted(match[1]) if match and match[1] else None


def _without_comments(text: str) -> str:
    return "".join(" " if t.is_trivia else t.text for t in scan(text)).strip()


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text

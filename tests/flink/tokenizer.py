"""A small tokenizer of Flink SQL, written apart from the code that it checks.

It knows what Calcite's lexer (``Lex.JAVA``) knows of quotes and comments, so that it shows where a
quoted name or value would end for Flink.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Token(NamedTuple):
    kind: str
    """name (in backticks), string, word or sign"""
    value: str
    """without its quotes"""


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>--[^\r\n]*|/\*.*?\*/)
  | `(?P<name>(?:[^`\r\n]|``)+)`
  | '(?P<string>(?:[^']|'')*)'
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        if kind in ("space", "comment"):
            continue
        value = match[kind]
        if kind in ("name", "string"):
            quote = "`" if kind == "name" else "'"
            value = value.replace(quote * 2, quote)
        found.append(Token(kind, value))
    return found

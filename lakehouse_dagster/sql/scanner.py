"""Cuts Flink SQL text into lexical tokens without losing a character.

Follows the lexer of Flink's own parser (Calcite's ``Parser.jj`` with ``Lex.JAVA``): strings in
single quotes with ``''`` as the only escape (a backslash is an ordinary character), names in
backticks, comments from ``--`` or ``//`` to the end of the line and between ``/*`` and ``*/``
(not nested), and hints that open with ``/*+`` and hold ordinary tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class TokenKind(str, Enum):
    """What a token is; the values are the group names of the pattern below."""

    SPACE = "space"
    COMMENT = "comment"
    OPEN_COMMENT = "open_comment"
    HINT = "hint"
    STRING = "string"
    OPEN_STRING = "open_string"
    NAME = "name"
    OPEN_NAME = "open_name"
    VARIABLE = "variable"
    WORD = "word"
    SEMICOLON = "semicolon"
    OTHER = "other"


class Token(NamedTuple):
    """A piece of the text; ``offset`` is 0-based in characters."""

    kind: TokenKind
    text: str
    offset: int

    @property
    def is_trivia(self) -> bool:
        """Whether it is white space or a comment."""
        kind = self.kind
        return kind is _SPACE or kind is _COMMENT or kind is _OPEN_COMMENT

    @property
    def is_unterminated(self) -> bool:
        """Whether the text ends before the string, name or comment does."""
        kind = self.kind
        return kind is _OPEN_STRING or kind is _OPEN_COMMENT or kind is _OPEN_NAME

    @property
    def content(self) -> str:
        """What stands within the quotes of a string or name; of others, the text."""
        if self.kind is TokenKind.STRING:
            return self.text[1:-1].replace("''", "'")
        if self.kind is TokenKind.NAME:
            return self.text[1:-1].replace("``", "`")
        return self.text

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords (given in capitals), not a quoted name."""
        return self.kind is TokenKind.WORD and self.text.upper() in words


# Asked for every token of every script: identity is far quicker than the hash of an Enum.
_SPACE, _COMMENT, _OPEN_COMMENT = TokenKind.SPACE, TokenKind.COMMENT, TokenKind.OPEN_COMMENT
_OPEN_STRING, _OPEN_NAME = TokenKind.OPEN_STRING, TokenKind.OPEN_NAME
_KINDS: dict[str | None, TokenKind] = {kind.value: kind for kind in TokenKind}

VARIABLE = r"\$\{[^}{\s'`:]+(?::-[^}{\n'`]*)?\}|\{\{[^\S\n]*[^}{\s'`:]+[^\S\n]*\}\}"
"""``${NAME}``, ``${NAME:-default}`` and ``{{ name }}``."""

# `(?<![:/])//` keeps the address in an unquoted `SET state.dir = file:///x` from being a comment.
_TOKEN = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<word> (?:\w+|\$(?!\{{))+ )
    | (?P<comment> (?:--|(?<![:/])//)[^\n\r]* | /\*(?!\+).*?\*/ )
    | (?P<open_comment> /\*(?!\+).* )
    | (?P<hint> /\*\+ | \*/ )
    | (?P<string> '[^']*(?:''[^']*)*'(?!') )
    | (?P<open_string> '.* )
    | (?P<name> `[^`]*(?:``[^`]*)*`(?!`) )
    | (?P<open_name> `.* )
    | (?P<variable> {VARIABLE} )
    | (?P<semicolon> ; )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def scan(text: str, start: int = 0) -> Iterator[Token]:
    """Yield the tokens of a text from an offset on; joined together they are the text itself."""
    make = tuple.__new__  # half of the time that the class itself takes, for every token
    for match in _TOKEN.finditer(text, start):
        yield make(Token, (_KINDS[match.lastgroup], match[0], match.start()))


def significant_text(text: str) -> str:
    """Return the text without comments, with one space between tokens: for comparing texts."""
    return " ".join(token.text for token in scan(text) if not token.is_trivia)

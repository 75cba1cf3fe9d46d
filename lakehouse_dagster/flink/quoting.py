"""The only place that writes names and values into Flink SQL text.

What Flink's parser can hold is quoted; everything else is refused, so that no name or value that a
user (or a table in a foreign database) chose is ever read as SQL. The rules are those of Calcite's
``Lex.JAVA``, which Flink uses: names in backticks, strings in single quotes, both doubled inside;
a backslash and ``\\uXXXX`` mean nothing in either.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from lakehouse_dagster.errors import UnsafeIdentifierError

MAX_IDENTIFIER_CHARACTERS = 256
"""Flink's parser refuses longer names (``FlinkSqlParserImpl``, counted as UTF-16 code units)."""

# A name cannot hold line ends (a lexical error in Flink) and we see no use for other control signs.
_LINE_SEPARATORS = ("Zl", "Zp")
_CONTROL_AND_SURROGATES = ("Cc", "Cs")
_ALLOWED_IN_STRINGS = "\t\n\r"


def identifier(name: str) -> str:
    """The name in backticks.

    Raises:
        UnsafeIdentifierError: the name is blank, too long for Flink, or holds line ends, control
            characters or lone surrogates.
    """
    shown = _shown(name)
    if not name.strip():
        raise UnsafeIdentifierError(
            f"The name {shown} is blank, which Flink does not accept.", remedy="Give it a name."
        )
    for position, character in enumerate(name, start=1):
        if unicodedata.category(character) in _CONTROL_AND_SURROGATES + _LINE_SEPARATORS:
            raise UnsafeIdentifierError(
                f"The name {shown} holds U+{ord(character):04X} at position {position}, which "
                "cannot stand in a SQL name.",
                remedy="Rename it without control characters and line ends.",
            )
    if len(name.encode("utf-16-le")) // 2 > MAX_IDENTIFIER_CHARACTERS:
        raise UnsafeIdentifierError(
            f"The name {shown} is longer than the {MAX_IDENTIFIER_CHARACTERS} characters that "
            "Flink accepts.",
            remedy="Shorten it.",
        )
    return "`" + name.replace("`", "``") + "`"


def qualified(*parts: str) -> str:
    """The parts of a name, each quoted, joined by dots: catalog, database and table, for example.

    Raises:
        UnsafeIdentifierError: there is no part, or one cannot be quoted.
    """
    if not parts:
        raise UnsafeIdentifierError("A name has no parts.", remedy="Give at least one.")
    return ".".join(identifier(part) for part in parts)


def string_literal(value: str) -> str:
    """The value in single quotes; tabs and line ends stay as they are.

    Raises:
        UnsafeIdentifierError: the value holds NUL, other control characters or lone surrogates.
            The value itself, which may be a secret, is not repeated in the message.
    """
    for position, character in enumerate(value, start=1):
        if character in _ALLOWED_IN_STRINGS:
            continue
        if unicodedata.category(character) in _CONTROL_AND_SURROGATES:
            raise UnsafeIdentifierError(
                f"A value holds U+{ord(character):04X} at position {position}, which cannot stand "
                "in a SQL string.",
                remedy="Remove control characters from it.",
            )
    return "'" + value.replace("'", "''") + "'"


def options_clause(options: Mapping[str, str]) -> str:
    """The options as ``('key'='value', …)``, in their own order, for WITH and similar clauses.

    Raises:
        UnsafeIdentifierError: a key is blank, or a key or value cannot be quoted.
    """
    pairs = []
    for key, value in options.items():
        if not key.strip():
            raise UnsafeIdentifierError("An option has a blank name.", remedy="Name it.")
        try:
            pairs.append(f"{string_literal(key)}={string_literal(value)}")
        except UnsafeIdentifierError as error:
            raise UnsafeIdentifierError(
                f"Option {_shown(key)}: {error.message}", remedy=error.remedy
            ) from None
    return f"({', '.join(pairs)})"


def create_catalog(name: str, options: Mapping[str, str]) -> str:
    """A CREATE CATALOG statement."""
    return f"CREATE CATALOG {identifier(name)} WITH {options_clause(options)}"


def use_catalog(name: str) -> str:
    """A USE CATALOG statement."""
    return f"USE CATALOG {identifier(name)}"


def _shown(name: str) -> str:
    """A name for a message: escaped and bounded."""
    text = ascii(name) if any(unicodedata.category(c) in ("Cc", "Cs") for c in name) else repr(name)
    return text if len(text) <= 80 else f"{text[:77]}…"

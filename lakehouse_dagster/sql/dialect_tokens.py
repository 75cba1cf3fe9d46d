# ruff: noqa: RUF012
"""The lexical part of the Flink dialect."""

from __future__ import annotations

import re

from sqlglot import Token, TokenType, tokens

from lakehouse_dagster.sql.dialect_nodes import SEPARATOR_IN_SET
from lakehouse_dagster.sql.scanner import TokenKind, scan

# sqlglot's keywords are those of all its dialects together. Only what Flink's grammar knows, or
# what sqlglot's parser needs in order to work, may be more than a name here: `text`, `list`,
# `uuid`, `keep`, `format` or `percent` are ordinary column names.
_KEPT_KEYWORDS = frozenset(
    {
        "ALL",
        "AND",
        "ANY",
        "ARRAY",
        "AS",
        "ASC",
        "BEGIN",
        "BETWEEN",
        "CASE",
        "COLLATE",
        "COMMENT",
        "CONSTRAINT",
        "CREATE",
        "CROSS",
        "CUBE",
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "DATABASE",
        "DATE",
        "DELETE",
        "DESC",
        "DISTINCT",
        "DROP",
        "ELSE",
        "END",
        "ESCAPE",
        "EXCEPT",
        "EXECUTE",
        "EXISTS",
        "FALSE",
        "FETCH",
        "FILTER",
        "FIRST",
        "FOR",
        "FROM",
        "FULL",
        "FUNCTION",
        "HAVING",
        "IN",
        "INNER",
        "INSERT",
        "INTERSECT",
        "INTERVAL",
        "INTO",
        "IS",
        "JOIN",
        "LATERAL",
        "LEFT",
        "LIKE",
        "LIMIT",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "MAP",
        "NATURAL",
        "NOT",
        "NULL",
        "OFFSET",
        "ON",
        "OR",
        "ORDINALITY",
        "OUTER",
        "OVER",
        "OVERLAPS",
        "OVERWRITE",
        "PARTITION",
        "RANGE",
        "REPLACE",
        "RIGHT",
        "ROLLUP",
        "ROW",
        "ROWS",
        "SELECT",
        "SET",
        "SOME",
        "TABLE",
        "TEMPORARY",
        "THEN",
        "TIME",
        "TIMESTAMP",
        "TRUE",
        "UNION",
        "UNNEST",
        "UPDATE",
        "USE",
        "USING",
        "VALUES",
        "VIEW",
        "WHEN",
        "WHERE",
        "WINDOW",
        "WITH",
    }
)
_KEPT_PHRASES = frozenset(
    {
        "GROUP BY",
        "GROUPING SETS",
        "ORDER BY",
        "PARTITION BY",
        "PARTITIONED BY",
        "PRIMARY KEY",
        "SIMILAR TO",
    }
)
_KEPT_OPERATORS = frozenset({"/*+", "||", ">=", "<=", "<>", "!=", "=>"})


class FlinkTokenizer(tokens.Tokenizer):
    """Tokens of Flink SQL: backticked names, no backslash escapes, hints after any word."""

    IDENTIFIERS = ["`"]
    QUOTES = ["'"]
    STRING_ESCAPES = ["'"]
    HEX_STRINGS = [("X'", "'"), ("x'", "'")]
    UNICODE_STRINGS = [("U&'", "'"), ("u&'", "'")]
    NESTED_COMMENTS = False
    COMMANDS = set()
    TOKENS_PRECEDING_HINT = set(TokenType)
    SINGLE_TOKENS = {
        # `${NAME}` is one word, not a struct.
        sign: kind
        for sign, kind in tokens.Tokenizer.SINGLE_TOKENS.items()
        if sign not in "{}#@~"
    }
    KEYWORDS = {
        word: kind
        for word, kind in tokens.Tokenizer.KEYWORDS.items()
        if word in _KEPT_KEYWORDS | _KEPT_PHRASES | _KEPT_OPERATORS
    } | {
        "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        "MINUS": TokenType.EXCEPT,
        "NEXT": TokenType.NEXT,
    }

    def tokenize(self, sql: str) -> list[Token]:
        """Return the tokens; offsets are those of the text given."""
        found = super().tokenize(_prepared(sql) if _UNKNOWN_TO_SQLGLOT.search(sql) else sql)
        return _join_statement_sets(found) if _STATEMENT_SET.search(sql) else found


_UNKNOWN_TO_SQLGLOT = re.compile(r"(?<![:/])//|\$\{")
_STATEMENT_SET = re.compile(r"\bSTATEMENT\b.*\bSET\b", re.IGNORECASE | re.DOTALL)


def _prepared(sql: str) -> str:
    """Blank out what sqlglot cannot lex, keeping every offset."""
    parts = []
    for token in scan(sql):
        text = token.text
        if token.kind is TokenKind.COMMENT and text.startswith("//"):
            text = " " * len(text)
        elif token.kind is TokenKind.VARIABLE:
            text = "${" + re.sub(r"\W", "_", text[2:-1]) + "}"
        parts.append(text)
    return "".join(parts)


def _join_statement_sets(found: list[Token]) -> list[Token]:
    """Make the semicolons between BEGIN and END of a statement set something else."""
    inside = False
    for position, token in enumerate(found):
        words = [t.text.upper() for t in found[max(position - 2, 0) : position + 1]]
        following = found[position + 1].text.upper() if position + 1 < len(found) else ""
        if words[-2:] == ["STATEMENT", "SET"]:
            inside = following == "BEGIN" or words == ["BEGIN", "STATEMENT", "SET"]
        elif inside and token.token_type == TokenType.SEMICOLON:
            found[position] = Token(
                SEPARATOR_IN_SET, token.text, token.line, token.col, token.start, token.end
            )
        elif inside and token.token_type == TokenType.END:
            before = found[position - 1].token_type
            inside = before != SEPARATOR_IN_SET
    return found

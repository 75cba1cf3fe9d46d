# ruff: noqa: RUF012
"""The parser of the Flink dialect: the parts put together, and what of sqlglot's is left out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp, parser
from sqlglot.errors import ParseError

from lakehouse_dagster.sql.dialect_functions import FunctionParser

_QUERY_CLAUSES = frozenset(
    {
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.WINDOW,
        TokenType.ORDER_BY,
        TokenType.LIMIT,
        TokenType.FETCH,
        TokenType.OFFSET,
    }
)


class FlinkParser(FunctionParser):
    """Flink SQL to sqlglot's tree; what it does not know is a ParseError, never a guess."""

    STRICT_CAST = True
    LOG_DEFAULTS_TO_LN = True
    SUPPORTS_IMPLICIT_UNNEST = False

    STATEMENT_PARSERS: ClassVar[dict[TokenType, Any]] = {
        TokenType.CREATE: lambda self: self._parse_create(),
        TokenType.REPLACE: lambda self: self._parse_create(),
        TokenType.DROP: lambda self: self._parse_drop(),
        TokenType.INSERT: lambda self: self._parse_insert(),
        TokenType.USE: lambda self: self._parse_use(),
    }
    QUERY_MODIFIER_PARSERS = {
        token_type: parse
        for token_type, parse in parser.Parser.QUERY_MODIFIER_PARSERS.items()
        if token_type in _QUERY_CLAUSES
    }

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Parse all statements.

        Raises:
            ParseError: Also where Python's stack ends before the nesting of the text does.
        """
        for word, following in pairwise(raw_tokens):
            if (word.token_type, following.token_type) == (TokenType.DISTINCT, TokenType.ON):
                self.reset()
                self.raise_error("DISTINCT ON is not Flink's", following)
        try:
            return super().parse(raw_tokens, sql)
        except RecursionError as error:
            raise ParseError("The statement is nested too deeply") from error

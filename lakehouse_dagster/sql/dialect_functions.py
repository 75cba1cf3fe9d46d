# ruff: noqa: RUF012
"""Functions, for the Flink dialect: those whose arguments are more than a list.

All others stay as they are written: many names mean something else in another dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp, parser

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_from import FromParser

# What sqlglot may understand without changing it when it writes it again, and with how many
# arguments; with others it is a function of the user's that has the same name.
_KNOWN = {
    "ABS": (1, 1),
    "AVG": (1, 1),
    "COALESCE": (1, 999),
    "COUNT": (1, 999),
    "DENSE_RANK": (0, 0),
    "FIRST_VALUE": (1, 1),
    "LAG": (1, 3),
    "LAST_VALUE": (1, 1),
    "LEAD": (1, 3),
    "LOWER": (1, 1),
    "MAX": (1, 1),
    "MIN": (1, 1),
    "NULLIF": (2, 2),
    "RANK": (0, 0),
    "ROW_NUMBER": (0, 0),
    "SUM": (1, 1),
    "UPPER": (1, 1),
}
_KNOWN_SYNTAX = frozenset({"CAST", "TRY_CAST", "EXTRACT", "CEIL", "FLOOR"})
_WITH_CLAUSES = (
    "JSON_VALUE",
    "JSON_QUERY",
    "JSON_EXISTS",
    "JSON_OBJECT",
    "JSON_ARRAY",
    "JSON_OBJECTAGG",
    "JSON_ARRAYAGG",
    "OVERLAY",
    "SUBSTRING",
)
_WORDS = (
    "UNKNOWN",
    "DEFAULT",
    "CURRENT_CATALOG",
    "CURRENT_SCHEMA",
    "CURRENT_USER",
    "SESSION_USER",
    "SYSTEM_USER",
)
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}
_JSON_KINDS = ("VALUE", "OBJECT", "ARRAY", "SCALAR")


def _with_clauses(name: str) -> Callable[[FunctionParser], exp.Expr]:
    return lambda self: self.parse_function_with_clauses(name)


def _typed_literal(kind: str) -> Callable[[Any, exp.Expr, exp.DataType], exp.Expr]:
    return lambda self, this, _: self.expression(nodes.TypedLiteral(this=this, kind=kind))


def _known(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Build a function that sqlglot knows, or one that only has its name."""
    known: Callable[[list[exp.Expr]], exp.Expr] = parser.Parser.FUNCTIONS[name]
    fewest, most = _KNOWN[name]

    def build(args: list[exp.Expr]) -> exp.Expr:
        if fewest <= len(args) <= most:
            return known(args)
        return exp.Anonymous(this=name, expressions=args)

    return build


def _unit_first(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Build TIMESTAMPDIFF and the like, whose first argument is a unit and not a column."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        if args and isinstance(args[0], exp.Column) and not args[0].table:
            args[0] = exp.var(args[0].name)
        return exp.Anonymous(this=name, expressions=args)

    return build


class FunctionParser(FromParser):
    """Adds functions and constructors."""

    FUNCTIONS = {name: _known(name) for name in _KNOWN} | {
        "TIMESTAMPADD": _unit_first("TIMESTAMPADD"),
        "TIMESTAMPDIFF": _unit_first("TIMESTAMPDIFF"),
    }
    FUNCTION_PARSERS = {
        name: parse
        for name, parse in parser.Parser.FUNCTION_PARSERS.items()
        if name in _KNOWN_SYNTAX
    } | {
        "DESCRIPTOR": lambda self: self.parse_descriptor(),
        "POSITION": lambda self: self.parse_position(),
        "TRIM": lambda self: self.parse_trim(),
        **{name: _with_clauses(name) for name in _WITH_CLAUSES},
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        "FINAL": lambda self: self.parse_matched_function(),
        "RUNNING": lambda self: self.parse_matched_function(),
        # Words of the language that would otherwise be taken for columns.
        **{word: lambda self: exp.var(self._prev.text.upper()) for word in _WORDS},
    }
    PRIMARY_PARSERS = parser.Parser.PRIMARY_PARSERS | {
        TokenType.STRING: lambda self, token: self.parse_text_literal(token),
    }
    PLACEHOLDER_PARSERS = {}  # `?` and `:x` are nothing to Flink
    # TIMESTAMP '…' has the precision of its text; a CAST would make it TIMESTAMP(6).
    TYPE_LITERAL_PARSERS = {
        exp.DType.DATE: _typed_literal("DATE"),
        exp.DType.TIME: _typed_literal("TIME"),
        exp.DType.TIMESTAMP: _typed_literal("TIMESTAMP"),
    }

    def parse_text_literal(self, token: Token) -> exp.Expr:
        """Parse a text; several in a row are one."""
        text = token.text
        while self._match(TokenType.STRING):
            text += self._prev.text
        return exp.Literal.string(text)

    def parse_descriptor(self) -> exp.Expr:
        """Parse the column names of ``DESCRIPTOR(…)``."""
        return self.expression(nodes.Descriptor(expressions=self._parse_csv(self._parse_any_name)))

    def parse_position(self) -> exp.Expr:
        """Parse ``POSITION(part IN text [FROM start])``."""
        part = self._parse_bitwise()
        self._expect(TokenType.IN, "IN")
        text = self._parse_bitwise()
        start = self._parse_bitwise() if self._match(TokenType.FROM) else None
        return self.expression(exp.StrPosition(this=text, substr=part, position=start))

    def parse_trim(self) -> exp.Expr:
        """Parse ``TRIM([[BOTH | LEADING | TRAILING] [characters] FROM] text)``."""
        side = None
        if self._match_texts(("BOTH", "LEADING", "TRAILING")):
            side = self._prev.text.upper()
        text = None
        if self._curr.token_type != TokenType.FROM:
            text = self._parse_bitwise()
        characters = None
        if self._match(TokenType.FROM):
            characters, text = text, self._parse_bitwise()
        return self.expression(exp.Trim(this=text, position=side, expression=characters))

    def parse_function_with_clauses(self, name: str) -> exp.Expr:
        """Parse arguments, then keep the keyword clauses before the closing bracket as text."""
        arguments: list[exp.Expr] = []
        if self._curr.token_type != TokenType.R_PAREN:
            arguments = self._parse_csv(self._parse_disjunction)
        clauses = self._parse_clauses()
        return self.expression(
            nodes.FunctionWithClauses(this=exp.var(name), expressions=arguments, clauses=clauses)
        )

    def _parse_interval(self, *arguments: Any, **options: Any) -> exp.Interval | None:
        """Parse ``INTERVAL [-]'1-2' YEAR(3) [TO MONTH]``."""
        if not self._match(TokenType.INTERVAL):
            return None
        sign = self._prev.text if self._match_set((TokenType.DASH, TokenType.PLUS)) else ""
        value = self._parse_primary() or self._parse_column()
        if value is None:
            raise self._refused("Expected the text of an interval")
        if sign == "-":
            value = exp.Neg(this=value)
        unit: exp.Expr = self._parse_unit()
        if self._match_text_seq("TO"):
            unit = exp.IntervalSpan(this=unit, expression=self._parse_unit())
        return self.expression(exp.Interval(this=value, unit=unit))

    def _parse_unit(self) -> exp.Expr:
        word = self._curr.text.upper()
        if word.removesuffix("S") not in _UNITS:
            raise self._refused("Expected the unit of an interval")
        self._advance()
        if not self._match(TokenType.L_PAREN):
            return exp.var(word)
        digits = ", ".join(number.name for number in self._parse_csv(self._parse_number))
        self._match_r_paren()
        return exp.var(f"{word}({digits})")

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        index = self._index
        negated = self._match(TokenType.NOT)
        if not self._match_text_seq("JSON"):
            self._retreat(index)
            return super()._parse_is(this)
        kind = self._prev.text.upper() if self._match_texts(_JSON_KINDS) else None
        test = self.expression(nodes.IsJson(this=this, kind=kind))
        return self.expression(exp.Not(this=test)) if negated else test

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        """Parse a row of VALUES; ``ROW(1, 2)`` is ``(1, 2)``."""
        if self._curr.text.upper() == "ROW" and self._next.token_type == TokenType.L_PAREN:
            self._advance()
        return super()._parse_value(values)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if (
            isinstance(this, exp.Column)
            and this.name.upper() == "MAP"
            and not this.this.quoted
            and not this.table
            and self._match(TokenType.L_BRACKET)
        ):
            this = self._parse_map()
        return super()._parse_bracket(this)

    def _parse_map(self) -> exp.Expr:
        members: list[exp.Expr] = []
        if self._curr.token_type != TokenType.R_BRACKET:
            members = self._parse_csv(self._parse_disjunction)
        self._expect(TokenType.R_BRACKET, "]")
        return self.expression(nodes.MapConstructor(expressions=members))

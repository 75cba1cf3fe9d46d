# ruff: noqa: RUF012
"""Parsing of Flink's queries, for the Flink dialect."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from sqlglot import TokenType, exp, parser

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_pattern import PatternParser

# Functions that sqlglot may understand without changing them when it writes them again. All
# others stay as they are written: many names mean something else in another dialect.
_KNOWN_FUNCTIONS = frozenset(
    {
        "ABS",
        "AVG",
        "COALESCE",
        "COUNT",
        "DENSE_RANK",
        "FIRST_VALUE",
        "LAG",
        "LAST_VALUE",
        "LEAD",
        "LOWER",
        "MAX",
        "MIN",
        "NULLIF",
        "RANK",
        "ROW_NUMBER",
        "SUM",
        "UPPER",
    }
)
_KNOWN_FUNCTION_SYNTAX = frozenset(
    {"CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "CEIL", "FLOOR"}
)
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
_STARTS_NO_NAME = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.LATERAL,
        TokenType.UNNEST,
        TokenType.VALUES,
        TokenType.SELECT,
        TokenType.WITH,
        TokenType.TABLE,
    }
)


_BEGINS_ARGUMENT = frozenset(
    {TokenType.TABLE, TokenType.INTERVAL, TokenType.STRING, TokenType.NUMBER, TokenType.L_PAREN}
)


def _with_clauses(name: str) -> Callable[[FlinkParser], exp.Expr]:
    return lambda self: self.parse_function_with_clauses(name)


def _typed_literal(kind: str) -> Callable[[Any, exp.Expr, exp.DataType], exp.Expr]:
    return lambda self, this, _: self.expression(nodes.TypedLiteral(this=this, kind=kind))


def _unit_first(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Build TIMESTAMPDIFF and the like, whose first argument is a unit and not a column."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        if args and isinstance(args[0], exp.Column) and not args[0].table:
            args[0] = exp.var(args[0].name)
        return exp.Anonymous(this=name, expressions=args)

    return build


class FlinkParser(PatternParser):
    """Flink SQL to sqlglot's tree; what it does not know is a ParseError, never a guess."""

    STRICT_CAST = True
    LOG_DEFAULTS_TO_LN = True
    SUPPORTS_IMPLICIT_UNNEST = False

    FUNCTIONS = {
        name: build for name, build in parser.Parser.FUNCTIONS.items() if name in _KNOWN_FUNCTIONS
    } | {
        "TIMESTAMPADD": _unit_first("TIMESTAMPADD"),
        "TIMESTAMPDIFF": _unit_first("TIMESTAMPDIFF"),
    }
    FUNCTION_PARSERS = {
        name: parse
        for name, parse in parser.Parser.FUNCTION_PARSERS.items()
        if name in _KNOWN_FUNCTION_SYNTAX
    } | {
        "DESCRIPTOR": lambda self: self.parse_descriptor(),
        **{
            name: _with_clauses(name)
            for name in (
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
        },
    }
    PLACEHOLDER_PARSERS = {}  # `?` and `:x` are nothing to Flink
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        "FINAL": lambda self: self.parse_matched_function(),
        "RUNNING": lambda self: self.parse_matched_function(),
    }
    QUERY_MODIFIER_PARSERS = {
        token_type: parse
        for token_type, parse in parser.Parser.QUERY_MODIFIER_PARSERS.items()
        if token_type in _QUERY_CLAUSES
    }
    STATEMENT_PARSERS: ClassVar[dict[TokenType, Any]] = {
        TokenType.CREATE: lambda self: self._parse_create(),
        TokenType.DROP: lambda self: self._parse_drop(),
        TokenType.INSERT: lambda self: self._parse_insert(),
        TokenType.USE: lambda self: self._parse_use(),
    }
    # TIMESTAMP '…' has the precision of its text; a CAST would make it TIMESTAMP(6).
    TYPE_LITERAL_PARSERS = {
        exp.DType.DATE: _typed_literal("DATE"),
        exp.DType.TIME: _typed_literal("TIME"),
        exp.DType.TIMESTAMP: _typed_literal("TIMESTAMP"),
    }

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        relation = self._parse_table_function() or self._parse_named_table()
        if relation is None:
            relation = super()._parse_table(alias_tokens=alias_tokens)
            if isinstance(relation, exp.Subquery) and self._match(TokenType.MATCH_RECOGNIZE):
                relation = self.parse_pattern_table(relation)
        if joins and relation is not None:
            for join in self._parse_joins(alias_tokens=alias_tokens):
                relation.append("joins", join)
        return relation

    def _parse_named_table(self) -> exp.Expr | None:
        if self._curr.token_type in _STARTS_NO_NAME or not self._curr:
            return None
        table = self._parse_table_name()
        if self._match_text_seq("FOR", "SYSTEM_TIME", "AS", "OF"):
            moment = self._parse_bitwise()
            version = exp.Version(this="SYSTEM_TIME", kind="AS OF", expression=moment)
            table.set("version", version)
        if self._match(TokenType.MATCH_RECOGNIZE):
            return self.parse_pattern_table(table)
        sample = self._parse_table_sample()
        if sample is not None:
            table.set("sample", sample)
        table.set("alias", self._parse_table_alias())
        return table

    # functions in FROM

    def _parse_table_function(self) -> exp.Expr | None:
        index = self._index
        lateral = bool(self._match(TokenType.LATERAL))
        wrapped = bool(self._match_pair(TokenType.TABLE, TokenType.L_PAREN))
        is_call = self._curr.token_type not in _STARTS_NO_NAME and self._is_call()
        if not is_call or (lateral and not wrapped):
            self._retreat(index)
            return None
        name = self._parse_table_name()
        self._match_l_paren()
        arguments: list[exp.Expr] = []
        if self._curr.token_type != TokenType.R_PAREN:
            arguments = self._parse_csv(self._parse_table_function_argument)
        self._match_r_paren()
        if wrapped:
            self._match_r_paren()
        function = nodes.TableFunction(
            this=exp.var(name.sql("flink")), expressions=arguments, lateral=lateral, wrapped=wrapped
        )
        function.set("alias", self._parse_table_alias())
        return self.expression(function)

    def _is_call(self) -> bool:
        """Whether a possibly dotted name and an opening bracket come next."""
        index = self._index
        if self._curr:
            self._advance()
        while self._curr and self._match(TokenType.DOT) and self._curr:
            self._advance()
        found = self._curr.token_type == TokenType.L_PAREN
        self._retreat(index)
        return found

    def _parse_table_function_argument(self) -> exp.Expr | None:
        if self._next.token_type == TokenType.FARROW:
            name = exp.var(self._curr.text)
            self._advance(2)
            value = self._parse_table_function_argument()
            return self.expression(nodes.NamedArgument(this=name, expression=value))
        if self._match(TokenType.TABLE):
            table: exp.Expr | None
            if self._match(TokenType.L_PAREN):
                table = self._parse_bracketed_query()
            else:
                table = self._parse_table_name()
        elif self._curr.token_type == TokenType.L_PAREN and self._next.token_type in (
            TokenType.SELECT,
            TokenType.WITH,
        ):
            self._advance()
            table = self._parse_bracketed_query()
        else:
            return self._parse_disjunction()
        partition_by, order = None, None
        if self._match(TokenType.PARTITION_BY):
            partition_by = self._parse_names_of_partition()
        if self._curr.token_type == TokenType.ORDER_BY:
            self._advance()
            keys = self._parse_csv_of_argument(self._parse_ordered)
            order = self.expression(exp.Order(expressions=keys))
        return self.expression(
            nodes.TableArgument(this=table, partition_by=partition_by, order=order)
        )

    def _parse_bracketed_query(self) -> exp.Expr | None:
        query = self._parse_ddl_select()
        self._match_r_paren()
        if query is None:
            self.raise_error("Expected a query")
        return self.expression(exp.Subquery(this=query))

    def _parse_names_of_partition(self) -> list[exp.Expr]:
        if self._curr.token_type == TokenType.L_PAREN:
            return self._parse_wrapped_csv(self._parse_column)
        return self._parse_csv_of_argument(self._parse_column)

    def _parse_csv_of_argument(self, parse: Callable[[], exp.Expr | None]) -> list[exp.Expr]:
        """Parse a list in which a comma may begin the function's next argument instead."""
        found = [parse()]
        while self._curr.token_type == TokenType.COMMA and not self._comma_begins_argument():
            self._advance()
            found.append(parse())
        return [member for member in found if member is not None]

    def _comma_begins_argument(self) -> bool:
        index = self._index
        self._advance()
        begins = (
            self._next.token_type == TokenType.FARROW
            or self._curr.token_type in _BEGINS_ARGUMENT
            or (self._curr.text.upper() == "DESCRIPTOR" and self._is_call())
        )
        self._retreat(index)
        return begins

    # functions with syntax of their own

    def parse_descriptor(self) -> exp.Expr:
        """Parse the column names of ``DESCRIPTOR(…)``."""
        names = self._parse_csv(lambda: self._parse_id_var(any_token=True))
        return self.expression(nodes.Descriptor(expressions=names))

    def parse_function_with_clauses(self, name: str) -> exp.Expr:
        """Parse arguments, then keep the keyword clauses before the closing bracket as text."""
        arguments: list[exp.Expr] = []
        if self._curr.token_type != TokenType.R_PAREN:
            arguments = self._parse_csv(self._parse_disjunction)
        first, last, depth = self._curr, None, 0
        while self._curr and not (depth == 0 and self._curr.token_type == TokenType.R_PAREN):
            kind = self._curr.token_type
            if kind == TokenType.SELECT:
                self.raise_error("Expected the end of a function's arguments")
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            last = self._curr
            self._advance()
        clauses = self._find_sql(first, last) if last else ""
        return self.expression(
            nodes.FunctionWithClauses(this=exp.var(name), expressions=arguments, clauses=clauses)
        )

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if (
            isinstance(this, exp.Column)
            and this.sql().upper() == "MAP"
            and self._match(TokenType.L_BRACKET)
        ):
            members: list[exp.Expr] = []
            if self._curr.token_type != TokenType.R_BRACKET:
                members = self._parse_csv(self._parse_disjunction)
            self._expect(TokenType.R_BRACKET, "]")
            return super()._parse_bracket(
                self.expression(nodes.MapConstructor(expressions=members))
            )
        return super()._parse_bracket(this)

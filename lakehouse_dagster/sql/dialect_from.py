"""Parsing of the FROM clause: tables, functions over tables, patterns, for the Flink dialect."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlglot import Token, TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_pattern import PatternParser

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


_RESERVED = """
ALL AND AS BETWEEN BY CASE CREATE CROSS DISTINCT ELSE EXCEPT EXISTS FETCH FOR FROM FULL GROUP HAVING
IN INNER INSERT INTERSECT INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE MINUS NATURAL NOT
OFFSET ON OR ORDER OUTER PARTITION RIGHT SELECT SET TABLE TABLESAMPLE THEN UNION UNNEST
USING VALUES WHEN WHERE WINDOW WITH
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that begin clauses: without backticks none of them is a name."""


class FromParser(PatternParser):
    """Adds what can stand in FROM."""

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
        is_bare = self._prev is None or self._prev.token_type != TokenType.L_PAREN
        if relation is None and is_bare and self._curr.token_type == TokenType.TABLE:
            raise self._refused("Expected a name")
        if relation is None:
            relation = super()._parse_table(alias_tokens=alias_tokens)
            if isinstance(relation, exp.Subquery) and self._match(TokenType.MATCH_RECOGNIZE):
                relation = self.parse_pattern_table(relation)
        if joins and relation is not None:
            for join in self._parse_joins(alias_tokens=alias_tokens):
                relation.append("joins", join)
        return relation

    def _parse_table_alias(
        self, alias_tokens: Collection[TokenType] | None = None
    ) -> exp.TableAlias | None:
        if self._no_name_follows():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        return this if self._no_name_follows() else super()._parse_alias(this, explicit)

    def _no_name_follows(self) -> bool:
        """Whether a clause comes next, or what nobody knows, instead of an alias."""
        if self._curr.token_type == TokenType.ALIAS:
            if self._is_reserved(self._next):
                self._advance()
                raise self._refused("Expected a name")
            return False
        pivots = self._curr.text.upper() in ("PIVOT", "UNPIVOT")
        if pivots and self._next.token_type == TokenType.L_PAREN:
            return True
        return self._is_reserved(self._curr)

    @staticmethod
    def _is_reserved(token: Token) -> bool:
        return token.token_type != TokenType.IDENTIFIER and token.text.upper() in RESERVED

    def _parse_named_table(self) -> exp.Expr | None:
        if not self._curr or self._curr.token_type in _STARTS_NO_NAME:
            return None
        table = self._parse_table_name()
        if self._match_text_seq("FOR", "SYSTEM_TIME", "AS", "OF"):
            moment = self._parse_bitwise()
            version = exp.Version(this="SYSTEM_TIME", kind="AS OF", expression=moment)
            table.set("version", version)
        if self._match(TokenType.MATCH_RECOGNIZE):
            return self.parse_pattern_table(table)
        table.set("alias", self._parse_table_alias())
        return table

    def _parse_lateral(self) -> exp.Lateral | None:
        """Parse LATERAL before a query or UNNEST; there is no LATERAL VIEW and no APPLY."""
        if self._curr.token_type == TokenType.LATERAL and self._next.token_type in (
            TokenType.L_PAREN,
            TokenType.UNNEST,
        ):
            return super()._parse_lateral()
        return None

    def _parse_select(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        if self._curr.token_type != TokenType.TABLE or self._next.token_type == TokenType.L_PAREN:
            return super()._parse_select(*arguments, **options)
        self._advance()
        query = exp.select("*").from_(self._parse_table_name(), copy=False)
        return self._parse_set_operations(query)

    # functions

    def _parse_table_function(self) -> exp.Expr | None:
        index = self._index
        lateral = bool(self._match(TokenType.LATERAL))
        wrapped = bool(self._match_pair(TokenType.TABLE, TokenType.L_PAREN))
        is_call = self._curr.token_type not in _STARTS_NO_NAME and self._is_call()
        if not is_call or (lateral and not wrapped):
            self._retreat(index)
            return None
        name = self._parse_table_name()
        arguments = self._parse_arguments()
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

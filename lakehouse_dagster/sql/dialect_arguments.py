"""Arguments of functions over tables and of procedures, for the Flink dialect."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_alter import AlterParser


class ArgumentParser(AlterParser):
    """Adds arguments by name, tables, models and CALL."""

    def _parse_procedure(self) -> exp.Expr:
        names = [self._parse_plain_name()]
        while self._match(TokenType.DOT):
            names.append(self._parse_plain_name())
        arguments = self._parse_arguments()
        name = ".".join(part.sql("flink") for part in names)
        return self.expression(nodes.CallProcedure(this=exp.var(name), expressions=arguments))

    def _parse_arguments(self) -> list[exp.Expr]:
        """Parse the arguments of a function over tables or of a procedure, with the brackets."""
        self._match_l_paren()
        arguments: list[exp.Expr] = []
        if self._curr.token_type != TokenType.R_PAREN:
            arguments = self._parse_csv(self._parse_argument)
        self._match_r_paren()
        return arguments

    def _parse_argument(self) -> exp.Expr | None:
        if self._next.token_type == TokenType.FARROW:
            name = self._parse_any_name()
            self._advance()
            value = self._parse_argument()
            return self.expression(nodes.NamedArgument(this=name, expression=value))
        if self._curr.text.upper() == "MODEL" and self._next.token_type not in (
            TokenType.COMMA,
            TokenType.R_PAREN,
        ):
            self._advance()
            model = exp.var(self._parse_table_name().sql("flink"))
            return self.expression(nodes.ModelArgument(this=model))
        table = self._parse_table_argument()
        if table is None:
            return self._parse_disjunction()
        partition_by, order = None, None
        if self._match(TokenType.PARTITION_BY):
            partition_by = self._parse_one_or_more(self._parse_column)
        if self._match(TokenType.ORDER_BY):
            keys = self._parse_one_or_more(self._parse_ordered)
            order = self.expression(exp.Order(expressions=keys))
        return self.expression(
            nodes.TableArgument(this=table, partition_by=partition_by, order=order)
        )

    def _parse_table_argument(self) -> exp.Expr | None:
        if self._match(TokenType.TABLE):
            if self._curr.token_type == TokenType.L_PAREN:
                return self._parse_bracketed_query()
            return self._parse_table_name()
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type in (
            TokenType.SELECT,
            TokenType.WITH,
        ):
            return self._parse_bracketed_query()
        return None

    def _parse_bracketed_query(self) -> exp.Expr:
        self._match_l_paren()
        query = self._parse_query()
        self._match_r_paren()
        return self.expression(exp.Subquery(this=query))

    def _parse_one_or_more(self, parse: Callable[[], exp.Expr | None]) -> list[exp.Expr]:
        """Parse a single member, or several in brackets: a bare comma ends the argument."""
        if self._curr.token_type == TokenType.L_PAREN:
            return self._parse_wrapped_csv(parse)
        member = parse()
        return [] if member is None else [member]

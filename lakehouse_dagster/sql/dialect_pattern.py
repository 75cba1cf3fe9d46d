"""Parsing of MATCH_RECOGNIZE, for the Flink dialect (Flink's page "Pattern Recognition")."""

from __future__ import annotations

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_statements import StatementParser

_ROWS_PER_MATCH = (
    ("ONE", "ROW", "PER", "MATCH"),
    ("ALL", "ROWS", "PER", "MATCH", "SHOW", "EMPTY", "MATCHES"),
    ("ALL", "ROWS", "PER", "MATCH", "OMIT", "EMPTY", "MATCHES"),
    ("ALL", "ROWS", "PER", "MATCH", "WITH", "UNMATCHED", "ROWS"),
    ("ALL", "ROWS", "PER", "MATCH"),
)


class PatternParser(StatementParser):
    """Adds ``t MATCH_RECOGNIZE (…) AS m``."""

    def parse_pattern_table(self, table: exp.Expr) -> exp.Expr:
        """Parse what follows MATCH_RECOGNIZE, with the alias behind the bracket."""
        self._match_l_paren()
        partition_by = order = None
        if self._match(TokenType.PARTITION_BY):
            partition_by = self._parse_csv(self._parse_disjunction)
        if self._curr.token_type == TokenType.ORDER_BY:
            order = self._parse_order()
        measures = None
        if self._match_text_seq("MEASURES"):
            measures = self._parse_csv(self._parse_measure)
        pattern = nodes.PatternTable(
            this=table,
            partition_by=partition_by,
            order=order,
            measures=measures,
            rows=self._parse_one_of(_ROWS_PER_MATCH),
            after=self._parse_after_match(),
            pattern=self._parse_pattern(),
            within=self._parse_disjunction() if self._match_text_seq("WITHIN") else None,
            subsets=self._parse_csv(self._parse_subset) if self._match_text_seq("SUBSET") else None,
            define=self._parse_definitions(),
        )
        self._match_r_paren()
        pattern.set("alias", self._parse_table_alias())
        return self.expression(pattern)

    def parse_matched_function(self) -> exp.Expr | None:
        """Parse the function behind RUNNING or FINAL; without one the word is a column's name."""
        kind = self._prev.text.upper()
        function = self._parse_function(optional_parens=False)
        if function is None:
            self._retreat(self._index - 1)
            return None
        return self.expression(nodes.MatchedFunction(this=function, kind=kind))

    def _parse_one_of(self, phrases: tuple[tuple[str, ...], ...]) -> str | None:
        for phrase in phrases:
            if self._match_text_seq(*phrase):
                return " ".join(phrase)
        return None

    def _parse_measure(self) -> exp.Expr:
        value = self._parse_disjunction()
        if value is None or not self._match(TokenType.ALIAS):
            raise self._refused("Expected a measure and AS")
        return self.expression(exp.Alias(this=value, alias=self._parse_plain_name()))

    def _parse_after_match(self) -> str | None:
        if not self._match_text_seq("AFTER", "MATCH"):
            return None
        fixed = self._parse_one_of((("SKIP", "PAST", "LAST", "ROW"), ("SKIP", "TO", "NEXT", "ROW")))
        if fixed:
            return fixed
        if not self._match_text_seq("SKIP", "TO"):
            raise self._refused("Expected SKIP")
        where = self._prev.text.upper() if self._match_texts(("FIRST", "LAST")) else ""
        return " ".join(filter(None, ("SKIP TO", where, self._parse_plain_name().sql("flink"))))

    def _parse_pattern(self) -> str:
        if not self._match_text_seq("PATTERN") or not self._match(TokenType.L_PAREN):
            raise self._refused("Expected PATTERN (")
        pattern = self._parse_clauses()
        if not pattern or not self._match(TokenType.R_PAREN):
            raise self._refused("Expected the variables of the pattern")
        return pattern

    def _parse_subset(self) -> exp.Expr:
        name = self._parse_plain_name()
        if not self._match(TokenType.EQ):
            raise self._refused("Expected =")
        members = self._parse_wrapped_csv(self._parse_plain_name)
        return self.expression(nodes.PatternSubset(this=name, expressions=members))

    def _parse_definitions(self) -> list[exp.Expr]:
        if not self._match_text_seq("DEFINE"):
            raise self._refused("Expected DEFINE")
        return self._parse_csv(self._parse_definition)

    def _parse_definition(self) -> exp.Expr:
        name = self._parse_plain_name()
        if not self._match(TokenType.ALIAS):
            raise self._refused("Expected AS")
        condition = self._parse_disjunction()
        return self.expression(nodes.PatternVariable(this=name, expression=condition))

"""Parsing of ALTER, for the Flink dialect."""

from __future__ import annotations

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_ddl import DdlParser

_ALTERED = (
    "TABLE",
    "VIEW",
    "CATALOG",
    "DATABASE",
    "FUNCTION",
    "SYSTEM FUNCTION",
    "MODEL",
    "MATERIALIZED TABLE",
)
_OF_MATERIALIZED = ("SUSPEND", "RESUME", "REFRESH")


class AlterParser(DdlParser):
    """Adds ALTER of every kind of object."""

    def parse_alter(self) -> exp.Expr:
        """Parse what follows ALTER."""
        temporary = bool(self._match(TokenType.TEMPORARY))
        kind = self._parse_kind(_ALTERED)
        exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._parse_table_name()
        action = self._parse_alter_action(kind)
        return self.expression(
            nodes.AlterObject(
                this=name, kind=kind, temporary=temporary, exists=exists, action=action
            )
        )

    def _parse_alter_action(self, kind: str) -> exp.Expr:
        if self._match(TokenType.ALIAS):
            if kind.endswith("FUNCTION"):
                language = None
                class_name = self._parse_text()
                if self._match_text_seq("LANGUAGE"):
                    language = self._parse_var(any_token=True)
                return nodes.AlterAction(kind="AS", this=class_name, value=language)
            return nodes.AlterAction(kind="AS", this=self._parse_query())
        if self._match(TokenType.COMMENT):
            return nodes.AlterAction(kind="COMMENT", this=self._parse_text())
        if self._match(TokenType.SET):
            return nodes.AlterAction(kind="SET", expressions=self._parse_options(), wrapped=True)
        if self._match_text_seq("RESET"):
            keys = self._parse_wrapped_csv(self._parse_text)
            return nodes.AlterAction(kind="RESET", expressions=keys, wrapped=True)
        if self._match_text_seq("RENAME"):
            return self._parse_rename()
        if self._match_texts(("ADD", "MODIFY")):
            return self._parse_added(self._prev.text.upper())
        if self._match(TokenType.DROP):
            return self._parse_dropped()
        if kind == "MATERIALIZED TABLE" and self._curr.text.upper() in _OF_MATERIALIZED:
            return nodes.AlterAction(kind=self._rest_of_text())
        raise self._refused("Expected what to alter")

    def _parse_rename(self) -> exp.Expr:
        if self._match_text_seq("TO"):
            return nodes.AlterAction(kind="RENAME TO", this=self._parse_table_name())
        column = self._parse_target_column()
        if not self._match_text_seq("TO"):
            raise self._refused("Expected TO")
        return nodes.AlterAction(kind="RENAME", this=column, value=self._parse_any_name())

    def _parse_added(self, word: str) -> exp.Expr:
        if word == "ADD" and (partitions := self._parse_partitions("IF", "NOT", "EXISTS")):
            return partitions
        if self._match_text_seq("DISTRIBUTION"):
            return nodes.AlterAction(kind=f"{word} DISTRIBUTION", this=self._parse_distribution())
        if self._curr.token_type == TokenType.L_PAREN:
            members = self._parse_wrapped_csv(self._parse_table_element)
            return nodes.AlterAction(kind=word, expressions=members, wrapped=True)
        return nodes.AlterAction(kind=word, expressions=[self._parse_table_element()])

    def _parse_dropped(self) -> exp.Expr:
        partitions = self._parse_partitions("IF", "EXISTS")
        if partitions is not None:
            return partitions
        if self._match(TokenType.PRIMARY_KEY):
            return nodes.AlterAction(kind="DROP PRIMARY KEY")
        if self._match(TokenType.CONSTRAINT):
            return nodes.AlterAction(kind="DROP CONSTRAINT", this=self._parse_any_name())
        if self._match_texts(("WATERMARK", "DISTRIBUTION")):
            return nodes.AlterAction(kind=f"DROP {self._prev.text.upper()}")
        if self._curr.token_type == TokenType.L_PAREN:
            columns = self._parse_wrapped_csv(self._parse_target_column)
            return nodes.AlterAction(kind="DROP", expressions=columns, wrapped=True)
        return nodes.AlterAction(kind="DROP", expressions=[self._parse_target_column()])

    def _parse_partitions(self, *condition: str) -> exp.Expr | None:
        """Parse ``[condition] PARTITION (…) …`` behind ADD or DROP."""
        word, index = self._prev.text.upper(), self._index
        exists = bool(self._match_text_seq(*condition))
        partitions: list[exp.Expr] = []
        while (partition := self._parse_partition()) is not None:
            partitions.append(partition)
            if self._match(TokenType.WITH):
                partitions.extend(self._parse_options())
            self._match(TokenType.COMMA)
        if not partitions:
            self._retreat(index)
            return None
        return nodes.AlterAction(kind=word, expressions=partitions, exists=exists)

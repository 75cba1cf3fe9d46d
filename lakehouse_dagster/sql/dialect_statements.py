"""Parsing of Flink's statements that are neither CREATE, ALTER nor queries, for the Flink dialect.

What only shows something, or is of no use to a reader of scripts, stays text (``exp.Command``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_arguments import ArgumentParser
from lakehouse_dagster.sql.settings import parse_reset, parse_set

_DROPPED = (
    "CATALOG",
    "DATABASE",
    "TABLE",
    "VIEW",
    "FUNCTION",
    "SYSTEM FUNCTION",
    "MODEL",
    "MATERIALIZED TABLE",
)
_KEPT_AS_TEXT = frozenset(
    {
        "ANALYZE",
        "CLEAR",
        "DESC",
        "DESCRIBE",
        "EXIT",
        "HELP",
        "LIST",
        "QUIT",
        "SHOW",
        "SOURCE",
        "STOP",
        "TRUNCATE",
    }
)
_BEGINS_QUERY = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.TABLE})
_EXPLAIN_DETAILS = (
    "ESTIMATED_COST",
    "CHANGELOG_MODE",
    "JSON_EXECUTION_PLAN",
    "PLAN_ADVICE",
)


class StatementParser(ArgumentParser):
    """Adds all statements; ``_parse_statement`` decides by their first word."""

    _BY_WORD: ClassVar[dict[str, Callable[[StatementParser], exp.Expr]]] = {
        "SET": lambda self: self._parse_set_option(),
        "RESET": lambda self: self._parse_reset_option(),
        "BEGIN": lambda self: self._parse_begin(),
        "EXECUTE": lambda self: self._parse_execute(),
        "EXPLAIN": lambda self: self._parse_explain(),
        "COMPILE": lambda self: self._parse_compile(),
        "ALTER": lambda self: self.parse_alter(),
        "CALL": lambda self: self._parse_procedure(),
        "LOAD": lambda self: self._parse_module(),
        "UNLOAD": lambda self: self._parse_module(),
        "ADD": lambda self: self._parse_jar(),
        "REMOVE": lambda self: self._parse_jar(),
        "DELETE": lambda self: self._parse_delete_rows(),
        "UPDATE": lambda self: self._parse_update_rows(),
    }

    def _parse_statement(self) -> exp.Expr | None:
        token_type = self._curr.token_type
        if token_type in _BEGINS_QUERY:
            return self._parse_query()
        if token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            word = self._curr.text.upper()
            parse = self._BY_WORD.get(word)
            if parse is not None:
                self._advance()
                return parse(self)
            if word in _KEPT_AS_TEXT:
                self._advance()
                text = self._rest_of_text()
                return self.expression(exp.Command(this=word, expression=text))
        return super()._parse_statement()

    # the session

    def _parse_set_option(self) -> exp.Expr:
        text = f"SET {self._rest_of_text()}".strip()
        option = parse_set(text)
        if option is None:
            if text != "SET":
                raise self._refused("Expected key = value after SET")
            return self.expression(nodes.SetOption())
        key, value = option
        return self.expression(
            nodes.SetOption(this=exp.Literal.string(key), value=exp.Literal.string(value))
        )

    def _parse_reset_option(self) -> exp.Expr:
        key = parse_reset(f"RESET {self._rest_of_text()}")
        return self.expression(nodes.ResetOption(this=key and exp.Literal.string(key)))

    def _parse_use(self) -> exp.Use:
        if self._match_texts(("CATALOG", "MODULES")):
            kind = self._prev.text.upper()
            names = self._parse_csv(self._parse_any_name)
            if kind == "CATALOG" and len(names) == 1:
                return self.expression(exp.Use(kind=exp.var(kind), this=names[0]))
            return self.expression(exp.Use(kind=exp.var(kind), expressions=names))
        return self.expression(exp.Use(this=self._parse_table_name()))

    def _parse_module(self) -> exp.Expr:
        kind = self._prev.text.upper()
        if not self._match_text_seq("MODULE"):
            raise self._refused("Expected MODULE")
        name = self._parse_any_name()
        options = self._parse_options() if self._match(TokenType.WITH) else None
        return self.expression(nodes.LoadModule(this=name, kind=kind, expressions=options))

    def _parse_jar(self) -> exp.Expr:
        kind = self._prev.text.upper()
        if not self._match_text_seq("JAR"):
            raise self._refused("Expected JAR")
        return self.expression(nodes.AddJar(this=self._parse_text(), kind=kind))

    # jobs

    def _parse_begin(self) -> exp.Expr:
        self._expect_words("STATEMENT", "SET")
        self._expect(nodes.SEPARATOR_IN_SET, "; after BEGIN STATEMENT SET")
        return self._parse_members()

    def _parse_execute(self) -> exp.Expr:
        if self._match_text_seq("STATEMENT", "SET"):
            self._expect(TokenType.BEGIN, "BEGIN")
            return self._parse_members()
        if self._match_text_seq("PLAN"):
            return self.expression(nodes.ExecutePlan(this=self._parse_text()))
        if self._match(TokenType.INSERT):
            return self._parse_insert()
        return self._parse_query()

    def _parse_members(self) -> exp.Expr:
        members: list[exp.Expr] = []
        while not self._match(TokenType.END):
            member = self._parse_statement()
            if member is None:
                raise self._refused("Expected INSERT or END")
            members.append(member)
            self._expect(nodes.SEPARATOR_IN_SET, "; after a statement of the set")
        return self.expression(nodes.StatementSet(expressions=members))

    def _parse_planned(self) -> exp.Expr:
        """Parse what EXPLAIN and COMPILE PLAN are about: a query, INSERT or statement set."""
        if self._match_text_seq("STATEMENT", "SET"):
            self._expect(TokenType.BEGIN, "BEGIN")
            return self._parse_members()
        planned = self._parse_statement()
        if planned is None:
            raise self._refused("Expected a statement")
        return planned

    def _parse_explain(self) -> exp.Expr:
        details: list[exp.Expr] = []
        if self._match_text_seq("PLAN", "FOR"):
            details = [exp.var("PLAN FOR")]
        elif self._curr.text.upper() in _EXPLAIN_DETAILS:
            details = self._parse_csv(lambda: self._parse_var(any_token=True, upper=True))
        planned = self._parse_planned()
        return self.expression(nodes.Explain(this=planned, expressions=details))

    def _parse_compile(self) -> exp.Expr:
        executed = self._match_text_seq("AND", "EXECUTE")
        self._expect_words("PLAN")
        path = self._parse_text()
        exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        self._expect(TokenType.FOR, "FOR")
        return self.expression(
            nodes.CompilePlan(
                this=self._parse_planned(), path=path, exists=exists, executed=bool(executed)
            )
        )

    # objects and rows

    def _parse_drop(self, exists: bool = False, kind: str | None = None) -> exp.Expr:  # type: ignore[override]
        temporary = bool(self._match(TokenType.TEMPORARY))
        kind = self._parse_kind(_DROPPED)
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._parse_table_name()
        behaviour = self._match_texts(("RESTRICT", "CASCADE")) and self._prev.text.upper()
        return self.expression(
            nodes.DropObject(
                this=name,
                kind=kind,
                temporary=temporary,
                exists=if_exists,
                cascade=behaviour == "CASCADE",
                restrict=behaviour == "RESTRICT",
            )
        )

    def _parse_delete_rows(self) -> exp.Expr:
        self._expect(TokenType.FROM, "FROM")
        table = self._parse_aliased_table()
        return self.expression(exp.Delete(this=table, where=self._parse_where()))

    def _parse_update_rows(self) -> exp.Expr:
        table = self._parse_aliased_table()
        self._expect(TokenType.SET, "SET")
        changes = self._parse_csv(self._parse_equality)
        return self.expression(
            exp.Update(this=table, expressions=changes, where=self._parse_where())
        )

    def _parse_aliased_table(self) -> exp.Expr:
        table = self._parse_table_name()
        if self._curr.token_type != TokenType.SET:
            table.set("alias", self._parse_table_alias())
        return table

    def _expect_words(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            raise self._refused(f"Expected {' '.join(words)}")

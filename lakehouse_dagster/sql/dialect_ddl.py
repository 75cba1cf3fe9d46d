"""Parsing of Flink's statements other than queries, for the Flink dialect.

Written out instead of adjusting sqlglot's own CREATE parser, which takes the union of all
dialects: what Flink's grammar does not have is an error here, so that nothing is misread.
"""

from __future__ import annotations

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_tokens import SEPARATOR_IN_SET
from lakehouse_dagster.sql.dialect_types import TypeParser
from lakehouse_dagster.sql.settings import parse_reset, parse_set

_OPAQUE_WORDS = frozenset(
    {
        "ADD",
        "ALTER",
        "ANALYZE",
        "CALL",
        "CLEAR",
        "COMPILE",
        "DELETE",
        "DESC",
        "DESCRIBE",
        "EXIT",
        "EXPLAIN",
        "HELP",
        "LIST",
        "LOAD",
        "QUIT",
        "REMOVE",
        "SHOW",
        "SOURCE",
        "STOP",
        "TRUNCATE",
        "UNLOAD",
        "UPDATE",
    }
)


class DdlParser(TypeParser):
    """Adds CREATE, DROP, USE, SET, RESET and statement sets."""

    def _parse_statement(self) -> exp.Expr | None:
        if self._curr.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            word = self._curr.text.upper()
            if word in ("SET", "RESET"):
                self._advance()
                return self._parse_session_option(word)
            if word in ("BEGIN", "EXECUTE"):
                self._advance()
                return self._parse_execute()
            if word in _OPAQUE_WORDS:
                self._advance()
                return self.expression(exp.Command(this=word, expression=self._rest_of_text()))
        return super()._parse_statement()

    def _rest_of_text(self) -> str:
        start = self._curr
        last = None
        while self._curr and self._curr.token_type != SEPARATOR_IN_SET:
            last = self._curr
            self._advance()
        return self._find_sql(start, last) if last else ""

    def _parse_session_option(self, word: str) -> exp.Expr:
        text = f"{word} {self._rest_of_text()}"
        if word == "RESET":
            key = parse_reset(text)
            return self.expression(nodes.ResetOption(this=key and exp.Literal.string(key)))
        option = parse_set(text)
        if option is None:
            if text.strip() != "SET":
                self.raise_error("Expected key = value after SET")
            return self.expression(nodes.SetOption())
        key_text, value = option
        return self.expression(
            nodes.SetOption(this=exp.Literal.string(key_text), value=exp.Literal.string(value))
        )

    def _parse_execute(self) -> exp.Expr | None:
        begins = self._prev.token_type == TokenType.BEGIN
        if not self._match_text_seq("STATEMENT", "SET"):
            if not begins and self._match(TokenType.INSERT):
                return self._parse_insert()
            self.raise_error("Expected STATEMENT SET")
        if not self._match(SEPARATOR_IN_SET if begins else TokenType.BEGIN):
            self.raise_error("Expected ; after BEGIN STATEMENT SET" if begins else "Expected BEGIN")
        members: list[exp.Expr] = []
        while not self._match(TokenType.END):
            member = self._parse_statement()
            if member is None:
                self.raise_error("Expected INSERT or END")
            else:
                members.append(member)
            if not self._match(SEPARATOR_IN_SET):
                self.raise_error("Expected ; after a statement of the set")
        return self.expression(nodes.StatementSet(expressions=members))

    # USE and DROP

    def _parse_use(self) -> exp.Use:
        if self._match_texts(("CATALOG", "MODULES")):
            kind = self._prev.text.upper()
            names = self._parse_csv(lambda: self._parse_id_var(any_token=True))
            if not names:
                self.raise_error("Expected a name")
            if kind == "CATALOG" and len(names) == 1:
                return self.expression(exp.Use(kind=exp.var(kind), this=names[0]))
            return self.expression(exp.Use(kind=exp.var(kind), expressions=names))
        return self.expression(exp.Use(this=self._parse_table_name()))

    def _parse_drop(self, exists: bool = False, kind: str | None = None) -> exp.Expr:  # type: ignore[override]
        temporary = bool(self._match(TokenType.TEMPORARY))
        system = "SYSTEM " if self._match_text_seq("SYSTEM") else ""
        if not self._match_texts(("CATALOG", "DATABASE", "TABLE", "VIEW", "FUNCTION", "MODEL")):
            self.raise_error("Expected what to drop")
        kind = system + self._prev.text.upper()
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

    # CREATE

    def _parse_create(self) -> exp.Create:
        replace = bool(self._match_pair(TokenType.OR, TokenType.REPLACE))
        properties: list[exp.Expr] = []
        if self._match(TokenType.TEMPORARY):
            properties.append(exp.TemporaryProperty())
        system = "SYSTEM " if self._match_text_seq("SYSTEM") else ""
        if not self._match_texts(("CATALOG", "DATABASE", "TABLE", "VIEW", "FUNCTION")):
            self.raise_error("Expected what to create")
        kind = self._prev.text.upper()
        exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        this: exp.Expr | None = self._parse_table_name()
        if kind == "TABLE" and self._curr.token_type == TokenType.L_PAREN:
            this = self._parse_columns(this)
        elif kind == "VIEW" and self._match(TokenType.L_PAREN):
            names = self._parse_csv(self._parse_view_column)
            self._match_r_paren()
            this = self.expression(exp.Schema(this=this, expressions=names))
        expression = self._parse_create_tail(kind, properties)
        return self.expression(
            exp.Create(
                this=this,
                kind=system + kind,
                replace=replace,
                exists=exists,
                expression=expression,
                properties=exp.Properties(expressions=properties) if properties else None,
            )
        )

    def _parse_view_column(self) -> exp.Expr | None:
        name = self._parse_id_var(any_token=True)
        if not self._match(TokenType.COMMENT):
            return name
        constraint = exp.ColumnConstraint(kind=exp.CommentColumnConstraint(this=self._parse_text()))
        return self.expression(exp.ColumnDef(this=name, constraints=[constraint]))

    def _parse_create_tail(self, kind: str, properties: list[exp.Expr]) -> exp.Expr | None:
        """Parse what follows the name and columns; return the query or class name after AS."""
        expression: exp.Expr | None = None
        while self._curr:
            if self._match(TokenType.COMMENT):
                properties.append(exp.SchemaCommentProperty(this=self._parse_text()))
            elif self._match(TokenType.PARTITION_BY):
                columns = self._parse_wrapped_csv(lambda: self._parse_id_var(any_token=True))
                properties.append(exp.PartitionedByProperty(this=exp.Schema(expressions=columns)))
            elif self._match_text_seq("DISTRIBUTED"):
                properties.append(self._parse_distribution())
            elif self._match(TokenType.WITH):
                properties.extend(self._parse_wrapped_csv(self._parse_option, optional=False))
            elif self._match(TokenType.LIKE):
                properties.append(self._parse_table_like())
            elif self._match_text_seq("LANGUAGE"):
                properties.append(exp.LanguageProperty(this=self._parse_var(any_token=True)))
            elif self._match(TokenType.USING):
                jars = self._parse_csv(self._parse_resource)
                properties.append(nodes.UsingResourcesProperty(expressions=jars))
            elif expression is None and self._match(TokenType.ALIAS):
                expression = self._parse_text() if kind == "FUNCTION" else self._parse_ddl_select()
            else:
                break
        return expression

    def _parse_option(self) -> exp.Expr | None:
        """Parse ``'key' = 'value'``, or a variable that stands for options or for a value."""
        if self._curr.token_type == TokenType.R_PAREN:
            return None
        key = self._parse_string()
        if key is None:
            if self._curr.text.startswith("${"):
                self._advance()
                return self.expression(exp.Property(this=exp.var(self._prev.text)))
            self.raise_error("Expected an option's key in single quotes")
        if not self._match(TokenType.EQ):
            self.raise_error("Expected = after an option's key")
        value = self._parse_string()
        if value is None and self._curr.text.startswith("${"):
            self._advance()
            value = exp.var(self._prev.text)
        if value is None:
            self.raise_error("Expected an option's value in single quotes")
        return self.expression(exp.Property(this=key, value=value))

    def _parse_distribution(self) -> exp.Expr:
        method, columns = None, None
        if self._match_text_seq("BY"):
            if self._match_texts(("HASH", "RANGE")):
                method = exp.var(self._prev.text.upper())
            columns = self._parse_wrapped_csv(lambda: self._parse_id_var(any_token=True))
        buckets = None
        if self._match(TokenType.INTO):
            buckets = self._parse_number()
            if not self._match_text_seq("BUCKETS"):
                self.raise_error("Expected BUCKETS")
        return nodes.DistributedByProperty(this=method, expressions=columns, buckets=buckets)

    def _parse_table_like(self) -> exp.Expr:
        table = self._parse_table_name()
        words: list[str] = []
        if self._match(TokenType.L_PAREN):
            while self._curr and not self._match(TokenType.R_PAREN):
                words.append(self._curr.text.upper())
                self._advance()
        return nodes.TableLikeProperty(this=table, options=" ".join(words))

    def _parse_resource(self) -> exp.Expr:
        if not self._match_texts(("JAR", "FILE", "ARCHIVE")):
            self.raise_error("Expected JAR")
        kind = self._prev.text.upper()
        return exp.Property(this=exp.var(kind), value=self._parse_text())

    # columns

    def _parse_columns(self, table: exp.Expr | None) -> exp.Expr:
        self._match_l_paren()
        members = self._parse_csv(self._parse_table_element)
        self._match_r_paren()
        return self.expression(exp.Schema(this=table, expressions=members))

    def _parse_table_element(self) -> exp.Expr | None:
        if self._match_text_seq("WATERMARK", "FOR"):
            column = self._parse_column()
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expected AS")
            rule = self._parse_disjunction()
            return self.expression(exp.WatermarkColumnConstraint(this=column, expression=rule))
        if self._match(TokenType.CONSTRAINT):
            name = self._parse_id_var()
            key = self._parse_table_key()
            return self.expression(exp.Constraint(this=name, expressions=[key]))
        if self._curr.token_type == TokenType.PRIMARY_KEY:
            return self._parse_table_key()
        return self._parse_column_definition()

    def _parse_table_key(self) -> exp.Expr:
        if not self._match(TokenType.PRIMARY_KEY):
            self.raise_error("Expected PRIMARY KEY")
        columns = self._parse_wrapped_csv(lambda: self._parse_id_var(any_token=True))
        options = ["NOT ENFORCED"] if self._match_text_seq("NOT", "ENFORCED") else []
        return self.expression(exp.PrimaryKey(expressions=columns, options=options))

    def _parse_column_definition(self) -> exp.Expr | None:
        name = self._parse_id_var(any_token=True)
        if name is None:
            self.raise_error("Expected a column")
        constraints: list[exp.Expr] = []
        kind: exp.Expr | None = None
        if self._match(TokenType.ALIAS):
            rule = self._parse_disjunction()
            constraints.append(exp.ComputedColumnConstraint(this=rule))
        else:
            kind = self._parse_flink_type()
            if kind is None:
                self.raise_error("Expected a type")
        while (constraint := self._parse_column_tail()) is not None:
            constraints.append(constraint)
        wrapped = [exp.ColumnConstraint(kind=constraint) for constraint in constraints]
        return self.expression(exp.ColumnDef(this=name, kind=kind, constraints=wrapped))

    def _parse_column_tail(self) -> exp.Expr | None:
        if self._match_pair(TokenType.NOT, TokenType.NULL):
            return exp.NotNullColumnConstraint()
        if self._match(TokenType.NULL):
            return exp.NotNullColumnConstraint(allow_null=True)
        if self._match(TokenType.COMMENT):
            return exp.CommentColumnConstraint(this=self._parse_text())
        if self._match_text_seq("METADATA"):
            key = self._parse_text() if self._match(TokenType.FROM) else None
            virtual = bool(self._match_text_seq("VIRTUAL"))
            return nodes.MetadataColumnConstraint(this=key, virtual=virtual)
        if self._match(TokenType.PRIMARY_KEY):
            options = ["NOT ENFORCED"] if self._match_text_seq("NOT", "ENFORCED") else []
            return exp.PrimaryKeyColumnConstraint(options=options)
        return None

    # INSERT

    def _parse_insert(self) -> exp.Insert:
        overwrite = bool(self._match(TokenType.OVERWRITE))
        if not overwrite and not self._match(TokenType.INTO):
            self.raise_error("Expected INTO or OVERWRITE")
        target: exp.Expr | None = self._parse_table_name()
        partition = self._parse_partition()
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type not in (
            TokenType.SELECT,
            TokenType.WITH,
            TokenType.L_PAREN,
            TokenType.VALUES,
        ):
            columns = self._parse_wrapped_csv(self._parse_target_column)
            target = self.expression(exp.Schema(this=target, expressions=columns))
        query: exp.Expr | None
        if self._match(TokenType.TABLE):
            query = exp.select("*").from_(self._parse_table_name(), copy=False)
        else:
            query = self._parse_ddl_select()
        if query is None:
            self.raise_error("Expected a query")
        return self.expression(
            exp.Insert(this=target, partition=partition, expression=query, overwrite=overwrite)
        )

    def _parse_target_column(self) -> exp.Expr | None:
        column = self._parse_id_var(any_token=True)
        while column is not None and self._match(TokenType.DOT):
            column = exp.Dot(this=column, expression=self._parse_id_var(any_token=True))
        return column

    def _parse_table_name(self) -> exp.Table:
        """Parse ``[[catalog.]database.]name`` with the hint that may follow it."""
        names = [self._parse_name_part()]
        while len(names) < 4 and self._match(TokenType.DOT):
            names.append(self._parse_name_part())
        if len(names) > 3:
            self.raise_error("A name has at most three parts")
        catalog, database = ([None, None, *names[:-1]])[-2:]
        table = exp.Table(this=names[-1], db=database, catalog=catalog)
        hint = self._parse_hint()
        if hint is not None:
            table.set("hints", [hint])
            self._prev_comments = []
        return self.expression(table)

    def _parse_text(self) -> exp.Expr | None:
        text = self._parse_string()
        if text is None:
            self.raise_error("Expected a text in single quotes")
        return text

    def _parse_name_part(self) -> exp.Expr | None:
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error("Expected a name")
        return name

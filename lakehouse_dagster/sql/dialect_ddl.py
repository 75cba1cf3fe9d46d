"""Parsing of CREATE and INSERT, for the Flink dialect.

Written out instead of adjusting sqlglot's own CREATE parser, which takes the union of all
dialects: what Flink's grammar does not have is an error here, so that nothing is misread.
"""

from __future__ import annotations

from sqlglot import TokenType, exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_types import TypeParser

_CREATED = (
    "CATALOG",
    "DATABASE",
    "TABLE",
    "VIEW",
    "FUNCTION",
    "SYSTEM FUNCTION",
    "MODEL",
    "MATERIALIZED TABLE",
)
_LIKE_FEATURES = (
    "ALL",
    "CONSTRAINTS",
    "DISTRIBUTION",
    "GENERATED",
    "METADATA",
    "OPTIONS",
    "PARTITIONS",
    "WATERMARKS",
)
_END_OF_COLUMN = (TokenType.COMMA, TokenType.R_PAREN)


class DdlParser(TypeParser):
    """Adds CREATE and INSERT."""

    # CREATE

    def _parse_create(self) -> exp.Create:
        properties: list[exp.Expr] = []
        replace = self._prev.token_type == TokenType.REPLACE
        if replace:
            properties.append(nodes.ReplaceOnlyProperty())
        else:
            replace = bool(self._match_pair(TokenType.OR, TokenType.REPLACE))
        if self._match(TokenType.TEMPORARY):
            properties.append(exp.TemporaryProperty())
        kind = self._parse_kind(_CREATED)
        exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        this: exp.Expr = self._parse_table_name()
        expression: exp.Expr | None = None
        if kind.endswith("FUNCTION"):
            self._expect(TokenType.ALIAS, "AS")
            expression = self._parse_text()
        elif self._curr.token_type == TokenType.L_PAREN:
            if kind == "VIEW":
                this = self._parse_view_columns(this)
            elif kind.endswith("TABLE"):
                this = self._parse_columns(this)
        self._parse_create_properties(kind, properties)
        if expression is None and self._match(TokenType.ALIAS):
            expression = self._parse_query()
        if kind == "TABLE" and expression is None and _lacks_type(this):
            raise self._refused("Expected a type for every column")
        return self.expression(
            exp.Create(
                this=this,
                kind=kind,
                replace=replace,
                exists=exists,
                expression=expression,
                properties=exp.Properties(expressions=properties) if properties else None,
            )
        )

    def _parse_kind(self, kinds: tuple[str, ...]) -> str:
        for kind in kinds:
            if self._match_text_seq(*kind.split()):
                return kind
        raise self._refused(f"Expected one of {', '.join(kinds)}")

    def _parse_view_columns(self, view: exp.Expr) -> exp.Expr:
        names = self._parse_wrapped_csv(self._parse_view_column)
        return self.expression(exp.Schema(this=view, expressions=names))

    def _parse_view_column(self) -> exp.Expr:
        name = self._parse_any_name()
        if not self._match(TokenType.COMMENT):
            return name
        constraint = exp.ColumnConstraint(kind=exp.CommentColumnConstraint(this=self._parse_text()))
        return self.expression(exp.ColumnDef(this=name, constraints=[constraint]))

    def _parse_create_properties(self, kind: str, properties: list[exp.Expr]) -> None:
        """Parse what follows the name and the columns, up to AS."""
        while self._curr:
            if self._match(TokenType.COMMENT):
                properties.append(exp.SchemaCommentProperty(this=self._parse_text()))
            elif self._match(TokenType.PARTITION_BY):
                columns = self._parse_wrapped_csv(self._parse_any_name)
                properties.append(exp.PartitionedByProperty(this=exp.Schema(expressions=columns)))
            elif self._match_text_seq("DISTRIBUTED"):
                properties.append(self._parse_distribution())
            elif self._match(TokenType.WITH):
                properties.extend(self._parse_options())
            elif self._match(TokenType.LIKE):
                properties.append(self._parse_table_like())
            elif self._match_text_seq("LANGUAGE"):
                properties.append(exp.LanguageProperty(this=self._parse_var(any_token=True)))
            elif self._match(TokenType.USING):
                jars = self._parse_csv(self._parse_resource)
                properties.append(nodes.UsingResourcesProperty(expressions=jars))
            elif kind == "MODEL" and self._match_texts(("INPUT", "OUTPUT")):
                word = exp.var(self._prev.text.upper())
                columns = self._parse_wrapped_csv(self._parse_table_element)
                properties.append(nodes.ModelColumnsProperty(this=word, expressions=columns))
            elif kind == "MATERIALIZED TABLE" and self._match_texts(("FRESHNESS", "REFRESH_MODE")):
                properties.append(self._parse_refresh_rule())
            else:
                return

    def _parse_refresh_rule(self) -> exp.Expr:
        word = self._prev.text.upper()
        self._expect(TokenType.EQ, "=")
        value = self._parse_interval() if word == "FRESHNESS" else self._parse_var(upper=True)
        if value is None:
            raise self._refused("Expected an interval or a mode")
        return nodes.RefreshProperty(this=exp.var(word), value=value)

    def _parse_options(self) -> list[exp.Expr]:
        """Parse ``('key' = 'value', …)``."""
        return self._parse_wrapped_csv(self._parse_option)

    def _parse_option(self) -> exp.Expr | None:
        """Parse ``'key' = 'value'``, or a variable that stands for options or for a value."""
        if self._curr.token_type == TokenType.R_PAREN:
            return None
        key = self._parse_string()
        if key is None:
            variable = self._parse_variable()
            if variable is None:
                raise self._refused("Expected an option's key in single quotes")
            return self.expression(exp.Property(this=variable))
        self._expect(TokenType.EQ, "= after an option's key")
        value = self._parse_string() or self._parse_variable()
        if value is None:
            raise self._refused("Expected an option's value in single quotes")
        return self.expression(exp.Property(this=key, value=value))

    def _parse_variable(self) -> exp.Expr | None:
        if not self._curr.text.startswith("${"):
            return None
        self._advance()
        return exp.var(self._prev.text)

    def _parse_distribution(self) -> exp.Expr:
        method, columns = None, None
        if self._match_text_seq("BY"):
            if self._match_texts(("HASH", "RANGE")):
                method = exp.var(self._prev.text.upper())
            columns = self._parse_wrapped_csv(self._parse_any_name)
        buckets = None
        if self._match(TokenType.INTO):
            buckets = self._parse_number()
            if not self._match_text_seq("BUCKETS"):
                raise self._refused("Expected BUCKETS")
        return nodes.DistributedByProperty(this=method, expressions=columns, buckets=buckets)

    def _parse_table_like(self) -> exp.Expr:
        table = self._parse_table_name()
        options: list[exp.Expr] = []
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                options.append(self._parse_like_option())
        return nodes.TableLikeProperty(this=table, expressions=options)

    def _parse_like_option(self) -> exp.Expr:
        if not self._match_texts(("INCLUDING", "EXCLUDING", "OVERWRITING")):
            raise self._refused("Expected INCLUDING, EXCLUDING, OVERWRITING or )")
        strategy = self._prev.text.upper()
        if not self._match_texts(_LIKE_FEATURES):
            raise self._refused(f"Expected one of {', '.join(_LIKE_FEATURES)}")
        return nodes.LikeOption(this=exp.var(self._prev.text.upper()), strategy=strategy)

    def _parse_resource(self) -> exp.Expr:
        if not self._match_texts(("JAR", "FILE", "ARCHIVE")):
            raise self._refused("Expected JAR")
        kind = self._prev.text.upper()
        return exp.Property(this=exp.var(kind), value=self._parse_text())

    # columns

    def _parse_columns(self, table: exp.Expr) -> exp.Expr:
        members = self._parse_wrapped_csv(self._parse_table_element)
        return self.expression(exp.Schema(this=table, expressions=members))

    def _parse_table_element(self) -> exp.Expr:
        if self._match_text_seq("WATERMARK", "FOR"):
            column = self._parse_column()
            self._expect(TokenType.ALIAS, "AS")
            rule = self._parse_disjunction()
            return self.expression(exp.WatermarkColumnConstraint(this=column, expression=rule))
        if self._match(TokenType.CONSTRAINT):
            name = self._parse_any_name()
            key = self._parse_table_key()
            return self.expression(exp.Constraint(this=name, expressions=[key]))
        if self._curr.token_type == TokenType.PRIMARY_KEY:
            return self._parse_table_key()
        return self._parse_column_definition()

    def _parse_table_key(self) -> exp.Expr:
        self._expect(TokenType.PRIMARY_KEY, "PRIMARY KEY")
        columns = self._parse_wrapped_csv(self._parse_any_name)
        return self.expression(exp.PrimaryKey(expressions=columns, options=self._parse_enforced()))

    def _parse_enforced(self) -> list[str]:
        return ["NOT ENFORCED"] if self._match_text_seq("NOT", "ENFORCED") else []

    def _parse_column_definition(self) -> exp.Expr:
        name = self._parse_any_name()
        while self._match(TokenType.DOT):  # a field of a row, in ALTER TABLE
            name = exp.Dot(this=name, expression=self._parse_any_name())
        constraints: list[exp.Expr] = []
        kind: exp.Expr | None = None
        if self._match(TokenType.ALIAS):
            rule = self._parse_disjunction()
            computed = exp.ComputedColumnConstraint(this=rule)
            constraints.append(exp.ColumnConstraint(kind=computed))
        elif self._curr.token_type not in _END_OF_COLUMN:  # CREATE TABLE t (a, b) AS SELECT …
            kind = self._parse_flink_type()
            if kind is None:
                raise self._refused("Expected a type")
        while (constraint := self._parse_column_tail()) is not None:
            constraints.append(constraint)
        return self.expression(
            exp.ColumnDef(
                this=name, kind=kind, constraints=constraints, position=self._parse_place()
            )
        )

    def _parse_place(self) -> exp.Expr | None:
        """Parse FIRST or AFTER a column, as ALTER TABLE has it."""
        if self._match(TokenType.FIRST):
            return exp.ColumnPosition(position="FIRST")
        if not self._match_text_seq("AFTER"):
            return None
        return exp.ColumnPosition(this=self._parse_target_column(), position="AFTER")

    def _parse_column_tail(self) -> exp.Expr | None:
        name = self._parse_any_name() if self._match(TokenType.CONSTRAINT) else None
        kind = self._parse_column_constraint()
        if kind is None:
            if name is not None:
                raise self._refused("Expected PRIMARY KEY")
            return None
        return exp.ColumnConstraint(this=name, kind=kind)

    def _parse_column_constraint(self) -> exp.Expr | None:
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
            return exp.PrimaryKeyColumnConstraint(options=self._parse_enforced())
        return None

    # INSERT

    def _parse_insert(self) -> exp.Insert:
        overwrite = bool(self._match(TokenType.OVERWRITE))
        if not overwrite:
            self._expect(TokenType.INTO, "INTO or OVERWRITE")
        target: exp.Expr = self._parse_table_name()
        partition = self._parse_partition()
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type not in (
            TokenType.SELECT,
            TokenType.WITH,
            TokenType.L_PAREN,
            TokenType.VALUES,
            TokenType.TABLE,
        ):
            columns = self._parse_wrapped_csv(self._parse_target_column)
            target = self.expression(exp.Schema(this=target, expressions=columns))
        return self.expression(
            exp.Insert(
                this=target,
                partition=partition,
                expression=self._parse_query(),
                overwrite=overwrite,
                conflict=self._parse_conflict(),
            )
        )

    def _parse_conflict(self) -> exp.Expr | None:
        if not self._match_text_seq("ON", "CONFLICT", "DO"):
            return None
        if not self._match_texts(("ERROR", "NOTHING", "DEDUPLICATE")):
            raise self._refused("Expected ERROR, NOTHING or DEDUPLICATE")
        return exp.var(self._prev.text.upper())

    def _parse_query(self) -> exp.Expr:
        """Parse SELECT, WITH, VALUES, TABLE or a query in brackets."""
        query = self._parse_ddl_select()
        if query is None:
            raise self._refused("Expected a query")
        return query

    # names and texts

    def _parse_target_column(self) -> exp.Expr:
        column = self._parse_any_name()
        while self._match(TokenType.DOT):
            column = exp.Dot(this=column, expression=self._parse_any_name())
        return column

    def _parse_table_name(self) -> exp.Table:
        """Parse ``[[catalog.]database.]name`` with the hint that may follow it."""
        names = [self._parse_plain_name()]
        while self._match(TokenType.DOT):
            names.append(self._parse_plain_name())
        if len(names) > 3:
            raise self._refused("A name has at most three parts")
        catalog, database = ([None, None, *names[:-1]])[-2:]
        table = exp.Table(this=names[-1], db=database, catalog=catalog)
        hint = self._parse_hint()
        if hint is not None:
            table.set("hints", [hint])
        return self.expression(table)

    def _parse_hint(self) -> exp.Hint | None:
        hint = super()._parse_hint()
        if hint is None:
            return None
        self._prev_comments = []
        for node in hint.walk():  # comments do not nest
            node.comments = None
        return hint

    def _parse_text(self) -> exp.Expr:
        text = self._parse_string()
        if text is None:
            raise self._refused("Expected a text in single quotes")
        return text

    def _parse_plain_name(self) -> exp.Expr:
        """Parse a name that is no reserved word."""
        return self._parse_name(any_token=False)

    def _parse_any_name(self) -> exp.Expr:
        """Parse a name where nothing else can stand, so that any word is one."""
        return self._parse_name(any_token=True)

    def _parse_name(self, any_token: bool) -> exp.Expr:
        name = None
        if self._curr.token_type != TokenType.STRING:
            name = self._parse_id_var(any_token=any_token)
        if name is None:
            raise self._refused("Expected a name")
        return name

    def _rest_of_text(self) -> str:
        """Take everything up to the end of the statement as it is written."""
        start, last = self._curr, None
        while self._curr and self._curr.token_type != nodes.SEPARATOR_IN_SET:
            last = self._curr
            self._advance()
        return self._find_sql(start, last) if last else ""

    def _parse_clauses(self) -> str:
        """Take everything up to the bracket that closes the present one as it is written."""
        start, last, depth = self._curr, None, 0
        while self._curr and not (depth == 0 and self._curr.token_type == TokenType.R_PAREN):
            kind = self._curr.token_type
            if kind == TokenType.SELECT:
                raise self._refused("Expected no query here")
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            last = self._curr
            self._advance()
        return self._find_sql(start, last) if last else ""


def _lacks_type(table: exp.Expr) -> bool:
    """Whether a column has only a name, as ``CREATE TABLE t (a, b) AS SELECT …`` may have."""
    return any(
        isinstance(member, exp.ColumnDef) and not member.kind and not member.constraints
        for member in table.expressions
    )

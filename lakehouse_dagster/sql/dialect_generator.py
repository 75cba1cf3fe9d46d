"""Writes Flink SQL from sqlglot's tree, for the Flink dialect."""

from __future__ import annotations

from sqlglot import exp, generator

from lakehouse_dagster.sql import dialect_nodes as nodes


class FlinkGenerator(generator.Generator):
    """sqlglot's tree to Flink SQL."""

    TABLE_HINTS = True
    QUERY_HINTS = True
    TYPE_MAPPING = generator.Generator.TYPE_MAPPING | {
        exp.DType.BLOB: "BYTES",
        exp.DType.LIST: "MULTISET",
        exp.DType.STRUCT: "ROW",
        exp.DType.TEXT: "STRING",
        exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
        exp.DType.TIMESTAMPTZ: "TIMESTAMP",
    }
    PROPERTIES_LOCATION = generator.Generator.PROPERTIES_LOCATION | {
        nodes.DistributedByProperty: exp.Properties.Location.POST_SCHEMA,
        nodes.TableLikeProperty: exp.Properties.Location.POST_EXPRESSION,
        nodes.UsingResourcesProperty: exp.Properties.Location.POST_EXPRESSION,
    }
    TRANSFORMS = generator.Generator.TRANSFORMS | {
        nodes.SetOption: lambda self, e: self.set_option(e),
        nodes.ResetOption: lambda self, e: f"RESET {self.sql(e, 'this')}".strip(),
        nodes.DropObject: lambda self, e: self.drop_object(e),
        nodes.StatementSet: lambda self, e: self.statement_set(e),
        nodes.MetadataColumnConstraint: lambda self, e: self.metadata_column(e),
        nodes.TableFunction: lambda self, e: self.table_function(e),
        nodes.TableArgument: lambda self, e: self.table_argument(e),
        nodes.NamedArgument: lambda self, e: f"{e.name} => {self.sql(e, 'expression')}",
        nodes.Descriptor: lambda self, e: f"DESCRIPTOR({self.expressions(e, flat=True)})",
        nodes.PatternTable: lambda self, e: self.pattern_table(e),
        nodes.PatternVariable: lambda self, e: (
            f"{self.sql(e, 'this')} AS {self.sql(e, 'expression')}"
        ),
        nodes.PatternSubset: lambda self, e: (
            f"{self.sql(e, 'this')} = ({self.expressions(e, flat=True)})"
        ),
        nodes.MatchedFunction: lambda self, e: f"{e.text('kind')} {self.sql(e, 'this')}",
        nodes.TypedLiteral: lambda self, e: f"{e.args['kind']} {self.sql(e, 'this')}",
        nodes.MapConstructor: lambda self, e: f"MAP[{self.expressions(e, flat=True)}]",
        nodes.FunctionWithClauses: lambda self, e: self.function_with_clauses(e),
        exp.Array: lambda self, e: f"ARRAY[{self.expressions(e, flat=True)}]",
        exp.CurrentTimestamp: lambda self, e: "CURRENT_TIMESTAMP",
        exp.CurrentDate: lambda self, e: "CURRENT_DATE",
        exp.CurrentTime: lambda self, e: "CURRENT_TIME",
        exp.Localtime: lambda self, e: "LOCALTIME",
        exp.Localtimestamp: lambda self, e: "LOCALTIMESTAMP",
        exp.StrPosition: lambda self, e: (
            f"POSITION({self.sql(e, 'substr')} IN {self.sql(e, 'this')})"
        ),
        exp.Version: lambda self, e: f"FOR SYSTEM_TIME AS OF {self.sql(e, 'expression')}",
    }

    # statements

    def set_option(self, e: exp.Expr) -> str:
        """Write SET with quoted key and value, which every version takes."""
        if not e.args.get("this"):
            return "SET"
        return f"SET {self.sql(e, 'this')} = {self.sql(e, 'value')}"

    def statement_set(self, e: exp.Expr) -> str:
        """Write the form that is one statement to the SQL Gateway."""
        members = "".join(f" {self.sql(member)};" for member in e.expressions)
        return f"EXECUTE STATEMENT SET BEGIN{members} END"

    def command_sql(self, expression: exp.Command) -> str:
        """Write a statement that is kept as text."""
        return f"{self.sql(expression, 'this')} {expression.text('expression')}".strip()

    def use_sql(self, expression: exp.Use) -> str:
        """Write USE [CATALOG | MODULES]."""
        kind = self.sql(expression, "kind")
        names = self.sql(expression, "this") or self.expressions(expression, flat=True)
        return " ".join(filter(None, ("USE", kind, names)))

    def drop_object(self, expression: exp.Expr) -> str:
        """Write DROP."""
        words = [
            "DROP",
            "TEMPORARY" if expression.args.get("temporary") else "",
            self.sql(expression, "kind"),
            "IF EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            "CASCADE" if expression.args.get("cascade") else "",
            "RESTRICT" if expression.args.get("restrict") else "",
        ]
        return " ".join(filter(None, words))

    def create_sql(self, expression: exp.Create) -> str:
        """Write CREATE with its clauses in the order of Flink's grammar."""
        properties = expression.find(exp.Properties)
        found = properties.expressions if properties and properties.parent is expression else []
        temporary = any(isinstance(p, exp.TemporaryProperty) for p in found)
        function = self.sql(expression, "kind").endswith("FUNCTION")
        body = self.sql(expression, "expression")
        words = [
            "CREATE",
            "OR REPLACE" if expression.args.get("replace") else "",
            "TEMPORARY" if temporary else "",
            self.sql(expression, "kind"),
            "IF NOT EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            f"AS {body}" if body and function else "",
            *(self._property(p, found) for p in found),
            f"AS {body}" if body and not function else "",
        ]
        return " ".join(filter(None, words))

    def _property(self, e: exp.Expr, siblings: list[exp.Expr]) -> str:
        if isinstance(e, exp.SchemaCommentProperty):
            return f"COMMENT {self.sql(e, 'this')}"
        if isinstance(e, exp.PartitionedByProperty):
            return f"PARTITIONED BY {self.sql(e, 'this')}"
        if isinstance(e, exp.LanguageProperty):
            return f"LANGUAGE {self.sql(e, 'this')}"
        if isinstance(e, nodes.DistributedByProperty):
            return self._distribution(e)
        if isinstance(e, nodes.TableLikeProperty):
            options = f" ({e.args['options']})" if e.args.get("options") else ""
            return f"LIKE {self.sql(e, 'this')}{options}"
        if isinstance(e, nodes.UsingResourcesProperty):
            jars = (f"{p.name} {self.sql(p, 'value')}" for p in e.expressions)
            return f"USING {', '.join(jars)}"
        options_of_with = [p for p in siblings if type(p) is exp.Property]
        if type(e) is exp.Property and e is options_of_with[0]:
            return f"WITH ({', '.join(map(self._option, options_of_with))})"
        return ""

    def _option(self, e: exp.Expr) -> str:
        value = self.sql(e, "value")
        return f"{self.sql(e, 'this')} = {value}" if value else self.sql(e, "this")

    def _distribution(self, e: exp.Expr) -> str:
        columns = self.expressions(e, flat=True)
        by = f" BY {self.sql(e, 'this')}({columns})" if columns else ""
        buckets = f" INTO {self.sql(e, 'buckets')} BUCKETS" if e.args.get("buckets") else ""
        return f"DISTRIBUTED{by}{buckets}"

    def insert_sql(self, expression: exp.Insert) -> str:
        """Write INSERT INTO or OVERWRITE; the partition stands before the columns."""
        target = expression.this
        columns = ""
        if isinstance(target, exp.Schema):
            columns = f"({self.expressions(target, flat=True)})"
            target = target.this
        words = [
            "INSERT OVERWRITE" if expression.args.get("overwrite") else "INSERT INTO",
            self.sql(target),
            self.sql(expression, "partition"),
            columns,
            self.sql(expression, "expression"),
        ]
        return self.prepend_ctes(expression, " ".join(filter(None, words)))

    # columns and types

    def metadata_column(self, e: exp.Expr) -> str:
        """Write METADATA [FROM 'key'] [VIRTUAL]."""
        key = f" FROM {self.sql(e, 'this')}" if e.args.get("this") else ""
        return f"METADATA{key}{' VIRTUAL' if e.args.get('virtual') else ''}"

    def columndef_sql(self, expression: exp.ColumnDef, sep: str = " ") -> str:
        """Write a column, or a field of ROW, whose comment has no keyword."""
        if isinstance(expression.parent, exp.DataType):
            comment = expression.find(exp.CommentColumnConstraint)
            words = [self.sql(expression, "this"), self.sql(expression, "kind")]
            if comment and comment.find_ancestor(exp.ColumnDef) is expression:
                words.append(self.sql(comment, "this"))
            return " ".join(words)
        return super().columndef_sql(expression, sep)

    def computedcolumnconstraint_sql(self, expression: exp.ComputedColumnConstraint) -> str:
        """Write AS expression."""
        return f"AS {self.sql(expression, 'this')}"

    def primarykeycolumnconstraint_sql(self, expression: exp.PrimaryKeyColumnConstraint) -> str:
        """Write PRIMARY KEY [NOT ENFORCED] of a single column."""
        return " ".join(("PRIMARY KEY", *expression.args.get("options", ())))

    def datatype_sql(self, expression: exp.DataType) -> str:
        """Write a type as Flink's documentation does: ``DECIMAL(10, 2)``, ``ROW<a INT>``."""
        if expression.this == exp.DType.USERDEFINED:
            text = str(expression.args["kind"])
        elif expression.args.get("nested"):
            inner = self.expressions(expression, flat=True)
            text = f"{self.TYPE_MAPPING.get(expression.this, expression.this.value)}<{inner}>"
        else:
            text = super().datatype_sql(expression)
            if expression.this == exp.DType.TIMESTAMPTZ:
                text += " WITH TIME ZONE"
        return f"{text} NOT NULL" if expression.args.get("nullable") is False else text

    # queries

    def table_parts(self, expression: exp.Table) -> str:
        """Write a table's name and hint: Flink wants the hint before version and alias."""
        hints = "".join(self.sql(hint) for hint in expression.args.get("hints") or ())
        return super().table_parts(expression) + hints

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        """Write ``name hint version AS alias``."""
        version = self.sql(expression, "version")
        alias = self.sql(expression, "alias")
        return "".join(
            (
                self.table_parts(expression),
                f" {version}" if version else "",
                self.sql(expression, "sample"),
                f"{sep}{alias}" if alias else "",
                self._joins(expression),
            )
        )

    def table_function(self, e: exp.Expr) -> str:
        """Write a function in FROM."""
        call = f"{self.sql(e, 'this')}({self.expressions(e, flat=True)})"
        if e.args.get("wrapped"):
            call = f"TABLE({call})"
        lateral = "LATERAL " if e.args.get("lateral") else ""
        return f"{lateral}{call}{self._alias(e)}{self._joins(e)}"

    def table_argument(self, e: exp.Expr) -> str:
        """Write a table given to a function."""
        partition = ", ".join(self.sql(column) for column in e.args.get("partition_by") or ())
        words = [
            "" if isinstance(e.this, exp.Subquery) else "TABLE",
            self.sql(e, "this"),
            f"PARTITION BY {partition}" if partition else "",
            self.sql(e, "order").strip(),
        ]
        return " ".join(filter(None, words))

    def pattern_table(self, e: exp.Expr) -> str:
        """Write ``t MATCH_RECOGNIZE (…)``."""
        partition = self.expressions(e, key="partition_by", flat=True)
        measures = self.expressions(e, key="measures", flat=True)
        subsets = self.expressions(e, key="subsets", flat=True)
        clauses = [
            f"PARTITION BY {partition}" if partition else "",
            self.sql(e, "order").strip(),
            f"MEASURES {measures}" if measures else "",
            e.text("rows"),
            f"AFTER MATCH {e.text('after')}" if e.args.get("after") else "",
            f"PATTERN ({e.text('pattern')})",
            f"WITHIN {self.sql(e, 'within')}" if e.args.get("within") else "",
            f"SUBSET {subsets}" if subsets else "",
            f"DEFINE {self.expressions(e, key='define', flat=True)}",
        ]
        body = " ".join(filter(None, clauses))
        return f"{self.sql(e, 'this')} MATCH_RECOGNIZE ({body}){self._alias(e)}{self._joins(e)}"

    def function_with_clauses(self, e: exp.Expr) -> str:
        """Write a function and the clauses kept as text."""
        clauses = e.args.get("clauses")
        arguments = self.expressions(e, flat=True)
        inside = " ".join(filter(None, (arguments, clauses)))
        return f"{e.name}({inside})"

    def not_sql(self, expression: exp.Not) -> str:
        """Write ``x IS NOT NULL`` and ``x NOT IN (…)``, as people do."""
        inner = expression.this
        if isinstance(inner, exp.Is):
            return f"{self.sql(inner, 'this')} IS NOT {self.sql(inner, 'expression')}"
        if isinstance(inner, exp.In):
            members = self.in_sql(inner)
            head = f"{self.sql(inner, 'this')} "
            if members.startswith(f"{head}IN "):
                return f"{head}NOT {members[len(head) :]}"
        return super().not_sql(expression)

    def trim_sql(self, expression: exp.Trim) -> str:
        """Write ``TRIM([BOTH | LEADING | TRAILING] characters FROM text)``."""
        text, characters = self.sql(expression, "this"), self.sql(expression, "expression")
        if not characters:
            return f"TRIM({text})"
        return f"TRIM({expression.text('position') or 'BOTH'} {characters} FROM {text})"

    def _alias(self, e: exp.Expr) -> str:
        alias = self.sql(e, "alias")
        return f" AS {alias}" if alias else ""

    def _joins(self, e: exp.Expr) -> str:
        return self.expressions(e, key="joins", sep="", flat=True)

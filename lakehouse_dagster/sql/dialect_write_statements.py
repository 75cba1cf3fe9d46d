"""Writing of Flink's statements other than queries, for the Flink dialect."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp, generator

from lakehouse_dagster.sql import dialect_nodes as nodes


def _words(*words: str) -> str:
    return " ".join(filter(None, words))


class StatementWriter(generator.Generator):
    """sqlglot's tree of a statement to Flink SQL."""

    TYPE_MAPPING = generator.Generator.TYPE_MAPPING | {
        exp.DType.BLOB: "BYTES",
        exp.DType.LIST: "MULTISET",
        exp.DType.STRUCT: "ROW",
        exp.DType.TEXT: "STRING",
        exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
        exp.DType.TIMESTAMPTZ: "TIMESTAMP",
    }
    PROPERTIES_LOCATION = generator.Generator.PROPERTIES_LOCATION | dict.fromkeys(
        (
            nodes.DistributedByProperty,
            nodes.ModelColumnsProperty,
            nodes.RefreshProperty,
            nodes.ReplaceOnlyProperty,
            nodes.TableLikeProperty,
            nodes.UsingResourcesProperty,
        ),
        exp.Properties.Location.POST_SCHEMA,
    )
    TRANSFORMS = generator.Generator.TRANSFORMS | {
        nodes.SetOption: lambda self, e: self.set_option(e),
        nodes.ResetOption: lambda self, e: f"RESET {self.sql(e, 'this')}".strip(),
        nodes.DropObject: lambda self, e: self.drop_object(e),
        nodes.AlterObject: lambda self, e: self.alter_object(e),
        nodes.AlterAction: lambda self, e: self.alter_action(e),
        nodes.StatementSet: lambda self, e: f"EXECUTE {self.statement_set(e)}",
        nodes.Explain: lambda self, e: self.explain(e),
        nodes.CompilePlan: lambda self, e: self.compile_plan(e),
        nodes.ExecutePlan: lambda self, e: f"EXECUTE PLAN {self.sql(e, 'this')}",
        nodes.CallProcedure: lambda self, e: f"CALL {e.name}({self.expressions(e, flat=True)})",
        nodes.LoadModule: lambda self, e: _words(
            e.text("kind"), "MODULE", self.sql(e, "this"), self._with(e.expressions)
        ),
        nodes.AddJar: lambda self, e: f"{e.text('kind')} JAR {self.sql(e, 'this')}",
        nodes.MetadataColumnConstraint: lambda self, e: self.metadata_column(e),
        nodes.LikeOption: lambda self, e: f"{e.text('strategy')} {self.sql(e, 'this')}",
    }

    # the session and jobs

    def set_option(self, e: exp.Expr) -> str:
        """Write SET with quoted key and value, which every version takes."""
        if not e.args.get("this"):
            return "SET"
        return f"SET {self.sql(e, 'this')} = {self.sql(e, 'value')}"

    def statement_set(self, e: exp.Expr) -> str:
        """Write the form that is one statement to the SQL Gateway, without EXECUTE."""
        members = "".join(f" {self.sql(member)};" for member in e.expressions)
        return f"STATEMENT SET BEGIN{members} END"

    def explain(self, e: exp.Expr) -> str:
        """Write EXPLAIN with its details."""
        return _words("EXPLAIN", self.expressions(e, flat=True), self._planned(e.this))

    def compile_plan(self, e: exp.Expr) -> str:
        """Write COMPILE [AND EXECUTE] PLAN."""
        return _words(
            "COMPILE",
            "AND EXECUTE" if e.args.get("executed") else "",
            "PLAN",
            self.sql(e, "path"),
            "IF NOT EXISTS" if e.args.get("exists") else "",
            "FOR",
            self._planned(e.this),
        )

    def _planned(self, e: exp.Expr) -> str:
        return self.statement_set(e) if isinstance(e, nodes.StatementSet) else self.sql(e)

    def command_sql(self, expression: exp.Command) -> str:
        """Write a statement that is kept as text."""
        return _words(self.sql(expression, "this"), expression.text("expression"))

    def use_sql(self, expression: exp.Use) -> str:
        """Write USE [CATALOG | MODULES]."""
        kind = self.sql(expression, "kind")
        names = self.sql(expression, "this") or self.expressions(expression, flat=True)
        return _words("USE", kind, names)

    # objects

    def drop_object(self, expression: exp.Expr) -> str:
        """Write DROP."""
        return _words(
            "DROP",
            "TEMPORARY" if expression.args.get("temporary") else "",
            expression.text("kind"),
            "IF EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            "CASCADE" if expression.args.get("cascade") else "",
            "RESTRICT" if expression.args.get("restrict") else "",
        )

    def alter_object(self, e: exp.Expr) -> str:
        """Write ALTER."""
        return _words(
            "ALTER",
            "TEMPORARY" if e.args.get("temporary") else "",
            e.text("kind"),
            "IF EXISTS" if e.args.get("exists") else "",
            self.sql(e, "this"),
            self.sql(e, "action"),
        )

    def alter_action(self, e: exp.Expr) -> str:
        """Write what ALTER does."""
        kind, members = e.text("kind"), e.expressions
        separator = ", " if kind == "DROP" or e.args.get("wrapped") else " "
        written = separator.join(
            f"WITH ({self._option(m)})"
            if type(m) is exp.Property and kind == "ADD"
            else self._option(m)
            if type(m) is exp.Property
            else self.sql(m)
            for m in members
        )
        value = self.sql(e, "value")
        if value:
            value = f"TO {value}" if kind == "RENAME" else f"LANGUAGE {value}"
        exists = "IF NOT EXISTS" if kind == "ADD" else "IF EXISTS"
        this = self._distribution(e.this, "") if kind.endswith("DISTRIBUTION") and e.this else ""
        return _words(
            kind,
            exists if e.args.get("exists") else "",
            this or self.sql(e, "this"),
            value,
            f"({written})" if e.args.get("wrapped") else written,
        )

    def create_sql(self, expression: exp.Create) -> str:
        """Write CREATE with its clauses in the order of Flink's grammar."""
        properties = expression.args.get("properties")
        found = properties.expressions if properties else []
        kinds = {type(p) for p in found}
        function = self.sql(expression, "kind").endswith("FUNCTION")
        body = self.sql(expression, "expression")
        create = "CREATE OR REPLACE" if expression.args.get("replace") else "CREATE"
        return _words(
            "REPLACE" if nodes.ReplaceOnlyProperty in kinds else create,
            "TEMPORARY" if exp.TemporaryProperty in kinds else "",
            self.sql(expression, "kind"),
            "IF NOT EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            f"AS {body}" if body and function else "",
            *(self._property(p, found) for p in found),
            f"AS {body}" if body and not function else "",
        )

    def _property(self, e: exp.Expr, siblings: Sequence[exp.Expr]) -> str:
        if isinstance(e, exp.SchemaCommentProperty):
            return f"COMMENT {self.sql(e, 'this')}"
        if isinstance(e, exp.PartitionedByProperty):
            return f"PARTITIONED BY {self.sql(e, 'this')}"
        if isinstance(e, exp.LanguageProperty):
            return f"LANGUAGE {self.sql(e, 'this')}"
        if isinstance(e, nodes.DistributedByProperty):
            return self._distribution(e, "DISTRIBUTED")
        if isinstance(e, nodes.ModelColumnsProperty):
            return f"{self.sql(e, 'this')} ({self.expressions(e, flat=True)})"
        if isinstance(e, nodes.RefreshProperty):
            return f"{self.sql(e, 'this')} = {self.sql(e, 'value')}"
        if isinstance(e, nodes.TableLikeProperty):
            options = self.expressions(e, sep=" ", flat=True)
            return _words(f"LIKE {self.sql(e, 'this')}", f"({options})" if options else "")
        if isinstance(e, nodes.UsingResourcesProperty):
            jars = (f"{p.name} {self.sql(p, 'value')}" for p in e.expressions)
            return f"USING {', '.join(jars)}"
        options_of_with = [p for p in siblings if type(p) is exp.Property]
        if type(e) is exp.Property and e is options_of_with[0]:
            return self._with(options_of_with)
        return ""

    def _with(self, options: Sequence[exp.Expr]) -> str:
        return f"WITH ({', '.join(map(self._option, options))})" if options else ""

    def _option(self, e: exp.Expr) -> str:
        value = self.sql(e, "value")
        return f"{self.sql(e, 'this')} = {value}" if value else self.sql(e, "this")

    def _distribution(self, e: exp.Expr, word: str) -> str:
        columns = self.expressions(e, flat=True)
        return _words(
            word,
            f"BY {self.sql(e, 'this')}({columns})" if columns else "",
            f"INTO {self.sql(e, 'buckets')} BUCKETS" if e.args.get("buckets") else "",
        )

    # rows

    def insert_sql(self, expression: exp.Insert) -> str:
        """Write INSERT INTO or OVERWRITE; the partition stands before the columns."""
        target = expression.this
        columns = ""
        if isinstance(target, exp.Schema):
            columns = f"({self.expressions(target, flat=True)})"
            target = target.this
        conflict = self.sql(expression, "conflict")
        written = _words(
            "INSERT OVERWRITE" if expression.args.get("overwrite") else "INSERT INTO",
            self.sql(target),
            self.sql(expression, "partition"),
            columns,
            self.sql(expression, "expression"),
            f"ON CONFLICT DO {conflict}" if conflict else "",
        )
        return self.prepend_ctes(expression, written)

    # columns and types

    def metadata_column(self, e: exp.Expr) -> str:
        """Write METADATA [FROM 'key'] [VIRTUAL]."""
        key = f" FROM {self.sql(e, 'this')}" if e.args.get("this") else ""
        return f"METADATA{key}{' VIRTUAL' if e.args.get('virtual') else ''}"

    def columndef_sql(self, expression: exp.ColumnDef, sep: str = " ") -> str:
        """Write a column, or a field of ROW, whose comment has no keyword."""
        constraints = expression.args.get("constraints") or []
        comment = constraints[0].kind if constraints else None
        in_row = isinstance(expression.parent, exp.DataType)
        return _words(
            self.sql(expression, "this"),
            self.sql(expression, "kind"),
            self.sql(comment, "this") if in_row and comment else "",
            "" if in_row else " ".join(self.sql(constraint) for constraint in constraints),
            self.sql(expression, "position"),
        )

    def columnposition_sql(self, expression: exp.ColumnPosition) -> str:
        """Write FIRST or AFTER a column."""
        return _words(expression.text("position"), self.sql(expression, "this"))

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

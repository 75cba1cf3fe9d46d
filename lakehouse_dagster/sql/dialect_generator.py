"""Writes Flink SQL from sqlglot's tree, for the Flink dialect."""

from __future__ import annotations

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.dialect_write_statements import StatementWriter

_NEGATED = {exp.In: "IN", exp.SimilarTo: "SIMILAR TO", exp.Between: "BETWEEN"}


class FlinkGenerator(StatementWriter):
    """sqlglot's tree to Flink SQL."""

    TABLE_HINTS = True
    QUERY_HINTS = True
    SUPPORTS_BETWEEN_FLAGS = True
    TRANSFORMS = StatementWriter.TRANSFORMS | {
        nodes.TableFunction: lambda self, e: self.table_function(e),
        nodes.TableArgument: lambda self, e: self.table_argument(e),
        nodes.ModelArgument: lambda self, e: f"MODEL {self.sql(e, 'this')}",
        nodes.NamedArgument: lambda self, e: (
            f"{self.sql(e, 'this')} => {self.sql(e, 'expression')}"
        ),
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
        nodes.IsJson: lambda self, e: f"{self.sql(e, 'this')} IS {_json(e)}",
        exp.Array: lambda self, e: f"ARRAY[{self.expressions(e, flat=True)}]",
        exp.CurrentTimestamp: lambda self, e: "CURRENT_TIMESTAMP",
        exp.CurrentDate: lambda self, e: "CURRENT_DATE",
        exp.CurrentTime: lambda self, e: "CURRENT_TIME",
        exp.Localtime: lambda self, e: "LOCALTIME",
        exp.Localtimestamp: lambda self, e: "LOCALTIMESTAMP",
        exp.Version: lambda self, e: f"FOR SYSTEM_TIME AS OF {self.sql(e, 'expression')}",
    }

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
        """Write a table given to a function; several columns only stand in brackets."""
        columns = [self.sql(column) for column in e.args.get("partition_by") or ()]
        partition = ", ".join(columns) if len(columns) < 2 else f"({', '.join(columns)})"
        order = e.args.get("order")
        keys = [self.sql(key) for key in order.expressions] if order else []
        sorting = ", ".join(keys) if len(keys) < 2 else f"({', '.join(keys)})"
        words = [
            "" if isinstance(e.this, exp.Subquery) else "TABLE",
            self.sql(e, "this"),
            f"PARTITION BY {partition}" if partition else "",
            f"ORDER BY {sorting}" if sorting else "",
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
        head = self.sql(inner, "this")
        if isinstance(inner, exp.Is):
            return f"{head} IS NOT {self.sql(inner, 'expression')}"
        if isinstance(inner, nodes.IsJson):
            return f"{head} IS NOT {_json(inner)}"
        written = self.sql(inner)
        word = _NEGATED.get(type(inner))
        rest = written.removeprefix(f"{head} ")
        return f"{head} NOT {rest}" if word and rest.startswith(word) else f"NOT {written}"

    def trim_sql(self, expression: exp.Trim) -> str:
        """Write ``TRIM([[BOTH | LEADING | TRAILING] [characters] FROM] text)``."""
        side, characters = expression.text("position"), self.sql(expression, "expression")
        words = [
            side,
            characters,
            "FROM" if side or characters else "",
            self.sql(expression, "this"),
        ]
        return f"TRIM({' '.join(filter(None, words))})"

    def strposition_sql(self, expression: exp.StrPosition) -> str:
        """Write ``POSITION(part IN text [FROM start])``."""
        start = self.sql(expression, "position")
        part, text = self.sql(expression, "substr"), self.sql(expression, "this")
        return f"POSITION({part} IN {text}{f' FROM {start}' if start else ''})"

    def interval_sql(self, expression: exp.Interval) -> str:
        """Write ``INTERVAL '1-2' YEAR TO MONTH``."""
        return f"INTERVAL {self.sql(expression, 'this')} {self.sql(expression, 'unit')}"

    def windowspec_sql(self, expression: exp.WindowSpec) -> str:
        """Write ``ROWS BETWEEN … AND …`` or ``ROWS … PRECEDING``, as it was."""
        if expression.args.get("end"):
            return super().windowspec_sql(expression)
        words = (self.sql(expression, key) for key in ("kind", "start", "start_side"))
        return " ".join(filter(None, words))

    def _alias(self, e: exp.Expr) -> str:
        alias = self.sql(e, "alias")
        return f" AS {alias}" if alias else ""

    def _joins(self, e: exp.Expr) -> str:
        return self.expressions(e, key="joins", sep="", flat=True)


def _json(e: exp.Expr) -> str:
    return f"JSON {e.text('kind')}".strip()

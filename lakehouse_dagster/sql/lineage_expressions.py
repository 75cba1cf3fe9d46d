"""What expressions are made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.lineage_clauses import is_clause_word, names_in
from lakehouse_dagster.sql.lineage_scope import NOTHING, UNKNOWN, Relation, Scope

_WITHOUT_ORIGINS = (
    exp.Identifier,
    exp.Literal,
    exp.Var,
    exp.DataType,
    exp.Star,
    exp.Boolean,
    exp.Null,
    nodes.Descriptor,
    nodes.TypedLiteral,
)
_OF_NO_COLUMN = frozenset({"GROUPING", "GROUPING_ID", "GROUP_ID"})
_CLOCK = frozenset(
    {
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "CURRENT_DATABASE",
        "CURRENT_CATALOG",
        "CURRENT_USER",
        "LOCALTIME",
        "LOCALTIMESTAMP",
    }
)
"""Functions that are written without brackets, like a column."""


class Expressions(ABC):
    """Works out what expressions are made from, in a loop but for queries in them."""

    def __init__(self) -> None:
        self._special: dict[type, Callable[[exp.Expr, Scope], int]] = {
            exp.Column: self._column,
            exp.Window: self._window,
            exp.Exists: self._exists,
            exp.Subquery: self._subquery,
            exp.Select: self._subquery,
            exp.Union: self._subquery,
            exp.Intersect: self._subquery,
            exp.Except: self._subquery,
            exp.Anonymous: self._function,
            nodes.FunctionWithClauses: self._function_with_clauses,
            **dict.fromkeys(_WITHOUT_ORIGINS, lambda *_: NOTHING),
        }

    @abstractmethod
    def query(self, node: exp.Expr, around: Scope | None = None) -> Relation:
        """Tell what a query in an expression gives."""

    def value(self, expression: exp.Expr, scope: Scope) -> int:
        """Tell what an expression is made from; filters of its subqueries become the scope's."""
        if type(expression) is exp.Column:
            return self._column(expression, scope)
        made_from = NOTHING
        waiting = [expression]
        while waiting:
            node = waiting.pop()
            special = self._special.get(type(node))
            if special is not None:
                made_from |= special(node, scope)
                continue
            for member in node.args.values():
                if isinstance(member, exp.Expr):
                    waiting.append(member)
                elif type(member) is list:
                    waiting.extend(m for m in member if isinstance(m, exp.Expr))
        return made_from

    def values(self, expressions: Sequence[exp.Expr], scope: Scope) -> int:
        """Tell what several expressions together are made from."""
        made_from = NOTHING
        for expression in expressions:
            made_from |= self.value(expression, scope)
        return made_from

    def _column(self, node: exp.Expr, scope: Scope) -> int:
        args = node.args
        name = args["this"]
        if isinstance(name, exp.Star):
            return NOTHING
        if args.get("table") is None:
            found = scope.unqualified(name.args["this"])
        else:
            found = scope.column(column_parts(node))
        if found is not None:
            return found
        return NOTHING if _is_clock(node) else UNKNOWN

    def _function(self, node: exp.Expr, scope: Scope) -> int:
        if str(node.this).upper() in _OF_NO_COLUMN:
            return NOTHING
        return self.values(node.expressions, scope)

    def _function_with_clauses(self, node: exp.Expr, scope: Scope) -> int:
        arguments = [a for a in node.expressions if not _is_clause_word(a)]
        made_from = self.values(arguments, scope)
        for name in names_in(node.args.get("clauses") or ""):
            found = scope.column(name)
            # Where any name may be a column, a word that is not known here may be none.
            made_from |= UNKNOWN if found is None or scope.open else NOTHING
            made_from |= found or NOTHING
        return made_from

    def _window(self, node: exp.Expr, scope: Scope) -> int:
        return self.value(node.this, scope) or self._window_keys(node, scope)

    def _window_keys(self, node: exp.Expr, scope: Scope) -> int:
        keys = NOTHING
        seen: set[str] = set()
        window: object = node
        while isinstance(window, exp.Window):
            keys |= self.values(window.args.get("partition_by") or (), scope)
            order = window.args.get("order")
            if order is not None:
                keys |= self.value(order, scope)
            name = window.args["alias"].name if window.args.get("alias") else ""
            window = None if name in seen else scope.windows.get(name)
            seen.add(name)
        return keys

    def _subquery(self, node: exp.Expr, scope: Scope) -> int:
        relation = self.query(node, scope)
        scope.filter_by(relation.filters)
        return relation.everything

    def _exists(self, node: exp.Expr, scope: Scope) -> int:
        relation = self.query(node.this, scope)
        scope.filter_by(relation.filters)
        return relation.filters


def column_parts(node: exp.Expr) -> tuple[str, ...]:
    """The parts of a column's name, as written."""
    args = node.args
    parts = [args[key] for key in ("catalog", "db", "table", "this") if args.get(key) is not None]
    return tuple(part.name for part in parts)


def _is_clause_word(node: exp.Expr) -> bool:
    """Whether it is the KEY before a function's first clause, which looks like a column."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return False
    return not node.this.args.get("quoted") and is_clause_word(node.name)


def _is_clock(node: exp.Expr) -> bool:
    if node.args.get("table") is not None:
        return False
    name = node.this.name
    return name == "$rowtime" or (not node.this.args.get("quoted") and name.upper() in _CLOCK)

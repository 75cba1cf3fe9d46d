"""The walk over a query's tree, from its FROM clauses up to its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.lineage_expressions import Expressions, column_parts
from lakehouse_dagster.sql.lineage_scope import NOTHING, UNKNOWN, Relation, Scope
from lakehouse_dagster.sql.lineage_tables import function_relation, pattern_relation

_NO_COMMA = ("kind", "side", "method", "on", "using")
"""What a join has that is not written as a comma."""


class Walk(Expressions):
    """Works out what queries are made from.

    Recursion follows queries within queries only, with fewer steps a level than the parser takes:
    what could be parsed can be walked. Everything else, such as a thousand UNIONs or conditions,
    is walked in loops.
    """

    def __init__(
        self, table: Callable[[tuple[str, ...]], Relation], at_most: Callable[[int], int]
    ) -> None:
        self._table = table
        self.at_most = at_most
        super().__init__()

    def query(self, node: exp.Expr, around: Scope | None = None) -> Relation:
        """Tell what a query gives.

        Args:
            around: Where it stands: its outer columns, if it can see them, and WITH clauses.
        """
        scope = around or Scope(None)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope)
        clause = node.args.get("with_")
        if clause is not None:
            scope = self.with_clause(clause, scope)
        if isinstance(node, exp.Select):
            return self._select(node, Scope(scope))
        if isinstance(node, exp.Values):
            return self._values(node, scope)
        if isinstance(node, exp.Subquery):
            relation = self.query(node.this, scope)
            return self._limited(node, relation)
        if isinstance(node, exp.Table):
            return self.named(node, scope)
        return unknown_relation()

    def with_clause(self, clause: exp.Expr, scope: Scope) -> Scope:
        """Return a scope that knows the queries of a WITH clause by their names."""
        inner = Scope(scope, dict(scope.ctes))
        for cte in clause.expressions:
            alias = cte.args["alias"]
            names = [column.name for column in alias.args.get("columns") or ()]
            inner.ctes[alias.name] = self.query(cte.this, inner).renamed(names)
        return inner

    def _values(self, node: exp.Values, scope: Scope) -> Relation:
        inner = Scope(scope)
        columns: list[int] = []
        for row in node.expressions:
            members = row.expressions if isinstance(row, exp.Tuple) else [row]
            columns.extend([NOTHING] * (len(members) - len(columns)))
            for position, member in enumerate(members):
                columns[position] |= self.value(member, inner)
        return Relation([f"EXPR${i}" for i in range(len(columns))], columns, inner.filters)

    def _set_operation(self, node: exp.Expr, scope: Scope) -> Relation:
        operations = []
        first = node
        while isinstance(first, exp.SetOperation):
            operations.append(first)
            clause = first.args.get("with_")
            if clause is not None:
                scope = self.with_clause(clause, scope)
            first = first.this
        relation = self.query(first, scope)
        for operation in reversed(operations):
            right = self.query(operation.expression, scope)
            relation = self._limited(operation, _combined(operation, relation, right))
        return relation

    def _limited(self, node: exp.Expr, relation: Relation) -> Relation:
        """A query in brackets, or a set operation, with an ORDER BY and LIMIT of its own."""
        if not (node.args.get("order") and _is_limited(node)):
            return relation
        scope = Scope(None)
        scope.add((), relation)
        filters = self._order_keys(node.args["order"], scope, relation)
        return Relation(
            relation.names,
            relation.made_from,
            relation.filters | filters,
            relation.beyond,
            relation.fields,
        )

    def _select(self, node: exp.Select, scope: Scope) -> Relation:
        args = node.args
        start = args.get("from_")
        if start is not None:
            self.join_in(start.this, scope)
            for join in args.get("joins") or ():
                self._join(join, scope)
        scope.windows = {window.name: window for window in args.get("windows") or ()}
        where = args.get("where")
        if where is not None:
            scope.filter_by(self.value(where.this, scope))
        names, made_from, beyond = self._projections(node, scope)
        fields = scope.fields
        if fields:
            given = set(made_from)
            fields = {name: bits for name, bits in fields.items() if bits in given}
        result = Relation(names, made_from, NOTHING, beyond, fields)
        if args.get("having") is not None:
            scope.filter_by(self.value(args["having"].this, scope))
        if args.get("order") is not None and _is_limited(node):
            scope.filter_by(self._order_keys(args["order"], scope, result))
        result.filters = scope.filters
        return result

    def _projections(
        self, node: exp.Select, scope: Scope
    ) -> tuple[list[str], list[int], Callable[[str], int] | None]:
        names: list[str] = []
        made_from: list[int] = []
        beyond: list[Callable[[str], int]] = []
        for projection in node.expressions:
            star = self._star(projection, scope)
            if star is not None:
                names.extend(_unused(star.names, names))
                made_from.extend(star.made_from)
                if star.beyond is not None:
                    beyond.append(star.beyond)
                continue
            names.append(output_name(projection, len(names)))
            made_from.append(self.value(projection, scope))
        if not beyond:
            return names, made_from, None
        return names, made_from, beyond[0] if len(beyond) == 1 else lambda _: UNKNOWN

    def _star(self, projection: exp.Expr, scope: Scope) -> Relation | None:
        if isinstance(projection, exp.Star):
            return scope.star()
        if not (isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)):
            return None
        called = scope.called(column_parts(projection)[:-1])
        return called[0] if len(called) == 1 else unknown_relation()

    def _order_keys(self, order: exp.Expr, scope: Scope, result: Relation) -> int:
        keys = NOTHING
        for ordered in order.expressions:
            key = ordered.this
            if isinstance(key, exp.Literal) and not key.is_string:
                position = int(key.name) - 1 if key.name.isdigit() else -1
                known = result.beyond is None and 0 <= position < len(result.made_from)
                keys |= result.made_from[position] if known else UNKNOWN
            else:
                keys |= self._value_with_aliases(key, scope, result)
        return keys

    def _value_with_aliases(self, expression: exp.Expr, scope: Scope, result: Relation) -> int:
        """What an expression is made from that may name the query's own columns."""
        inner = Scope(scope)
        inner.windows = scope.windows
        inner.add((), Relation(result.names, result.made_from))
        made_from = self.value(expression, inner)
        scope.filter_by(inner.filters)
        return made_from

    # FROM

    def join_in(self, node: exp.Expr, scope: Scope) -> Relation:
        """Put what stands in FROM or JOIN into the scope."""
        alias = node.args.get("alias")
        called: tuple[str, ...] = (alias.name,) if alias is not None and alias.name else ()
        names = [column.name for column in alias.args.get("columns") or ()] if alias else []
        if _is_bracketed_join(node) and not called:
            relation = self._bracketed_join(node.this, scope)
        else:
            relation = self._relation(node, scope, names)
            if not called and isinstance(node, exp.Table):
                called = tuple(part.name for part in node.parts)
            scope.add(called, relation)
        for join in node.args.get("joins") or ():
            self._join(join, scope)
        return relation

    def _bracketed_join(self, node: exp.Expr, scope: Scope) -> Relation:
        inner = Scope(scope.around, scope.ctes)
        self.join_in(node, inner)
        scope.add_all(inner)
        return inner.star()

    def _relation(self, node: exp.Expr, scope: Scope, names: list[str]) -> Relation:
        if isinstance(node, exp.Table):
            version = node.args.get("version")
            if version is not None and version.expression is not None:
                scope.filter_by(self.value(version.expression, scope))
            return self.named(node, scope).renamed(names)
        if isinstance(node, nodes.TableFunction):
            return function_relation(self, node, scope, names)
        if isinstance(node, nodes.PatternTable):
            return pattern_relation(self, node, scope).renamed(names)
        if isinstance(node, exp.Unnest):
            made_from = self.values(node.expressions, scope)
            offset = node.args.get("offset")
            if isinstance(offset, exp.Identifier):
                names = [*names, offset.name]
            return from_arguments(made_from, names)
        if isinstance(node, exp.Lateral):
            return self.query(node.this, scope).renamed(names)
        # A query in FROM does not see the relations beside it.
        return self.query(node, scope.around).renamed(names)

    def named(self, node: exp.Table, scope: Scope) -> Relation:
        """What a name in FROM stands for: a query of a WITH clause, or a table or view."""
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and parts[0] in scope.ctes:
            return scope.ctes[parts[0]]
        return self._table(parts)

    def _join(self, join: exp.Expr, scope: Scope) -> None:
        args = join.args
        using = [name.name for name in args.get("using") or ()]
        natural = args.get("method") == "NATURAL"
        left = scope.star() if using or natural else None
        right = self.join_in(join.this, scope)
        if left is not None:
            if natural:
                using = [name for name in left.names if name in right.names]
            self._merge(using, left, right, scope)
            if scope.has_comma or (natural and (left.beyond or right.beyond)):
                scope.doubt()
        if args.get("on") is not None:
            scope.filter_by(self.value(args["on"], scope))
        scope.has_comma |= not any(args.get(key) for key in _NO_COMMA)

    def _merge(self, using: list[str], left: Relation, right: Relation, scope: Scope) -> None:
        common: dict[str, int] = {}
        for name in using:
            found = [side.find(name) for side in (left, right)]
            # Whatever the join's kind, Flink makes COALESCE(left, right) of it.
            common[name] = NOTHING
            for made_from in found:
                common[name] |= UNKNOWN if made_from is None else made_from
            scope.filter_by(common[name])
        scope.merge(common)


def _is_bracketed_join(node: exp.Expr) -> bool:
    """Whether brackets hold a join, or a table or function, and no query."""
    if not isinstance(node, exp.Subquery):
        return False
    inner = node.this
    while isinstance(inner, exp.Subquery) and not (inner.alias or inner.args.get("joins")):
        inner = inner.this
    return isinstance(inner, exp.Subquery) or not isinstance(inner, exp.Query)


def from_arguments(made_from: int, names: Sequence[str]) -> Relation:
    """What a function gives: each of its columns is made from all of its arguments."""
    if names:
        return Relation(names, [made_from] * len(names))
    return Relation((), (), NOTHING, lambda _: made_from)


def unknown_relation() -> Relation:
    """Something of which nothing is known."""
    return Relation((), (), NOTHING, lambda _: UNKNOWN)


def output_name(projection: exp.Expr, position: int) -> str:
    """The name that Flink gives a column of a query."""
    if isinstance(projection, exp.Alias):
        return projection.alias
    if isinstance(projection, exp.Column):
        return projection.name
    field = projection
    while isinstance(field, exp.Dot):
        field = field.this
    if isinstance(field, exp.Column):  # a field of a field; that of a call has no name
        return projection.name or projection.expression.name
    return f"EXPR${position}"


def _unused(star: Sequence[str], used: Sequence[str]) -> Sequence[str]:
    """Names that a star adds, numbered where they repeat (``id``, ``id0``), as Calcite does."""
    taken = set(used)
    if len(taken.union(star)) == len(taken) + len(star):
        return star
    added = []
    numbers: dict[str, int] = {}
    for name in star:
        unused = name
        while unused in taken:
            unused = f"{name}{numbers.get(name, 0)}"
            numbers[name] = numbers.get(name, 0) + 1
        taken.add(unused)
        added.append(unused)
    return added


def _is_limited(node: exp.Expr) -> bool:
    return bool(node.args.get("limit") or node.args.get("offset") or node.args.get("fetch"))


def _combined(operation: exp.Expr, left: Relation, right: Relation) -> Relation:
    filters = left.filters | right.filters
    union = isinstance(operation, exp.Union)
    if not union:
        filters |= left.everything | right.everything
    known = left.beyond is None and right.beyond is None
    if known and len(left.names) == len(right.names):
        made_from = left.made_from
        if union:
            pairs = zip(left.made_from, right.made_from, strict=True)
            made_from = [one | other for one, other in pairs]
        return Relation(left.names, made_from, filters)
    if not union:
        return Relation(left.names, left.made_from, filters, left.beyond)

    def partly(name: str) -> int:
        return (left.find(name) or NOTHING) | UNKNOWN

    return Relation((), (), filters, partly)

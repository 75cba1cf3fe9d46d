"""Column lineage of a query: what its values, and apart from them its rows, are made from.

One walk from the FROM clauses up, over the tree that the dialect gives. The rules, which are those
by which Flink's compiled plan was read to compare:

*Values.* A column is made from every column in its expression; an aggregate also from those of its
FILTER clause; a function OVER a window that has no columns of its own (ROW_NUMBER, RANK, COUNT(*))
from the window's partition and order keys. A field is told as the top-level column that it is in.
Constants, COUNT(*) of a group, GROUPING and the clock (PROCTIME, NOW) are made from nothing. What a
table function or UNNEST gives is made from its arguments; `window_start` and the like from the
window's time column. INTERSECT and EXCEPT give the rows of their left side; EXISTS as a value is
made from what filters its query.

*Row filters.* WHERE and HAVING; join conditions of every kind, with USING, NATURAL, the time of
FOR SYSTEM_TIME AS OF and IN, EXISTS and the like; whatever filters a subquery, wherever it stands;
the keys by which ORDER BY … LIMIT, or a condition on a rank, chooses rows; all columns of both
sides of INTERSECT and EXCEPT. What merely puts rows together is none: GROUP BY, DISTINCT, UNION.

*Where unsure, unknown.* A name that cannot be resolved, or that two relations have, has certainty
UNKNOWN; a star over columns that are not known leaves the query's columns unknown (None). What
MATCH_RECOGNIZE and functions of whole tables give is AT_MOST from all columns of their input; of
what is at most so, no row filters are told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from lakehouse_dagster.sql.lineage_query import Walk
from lakehouse_dagster.sql.lineage_scope import UNKNOWN, Origins, Relation, Scope, index_of
from lakehouse_dagster.sql.model import ColumnLineage, ColumnOrigin, TableName, unique


@dataclass(frozen=True)
class RelationColumns:
    """What a name in FROM stands for.

    Args:
        columns: Its columns in order, views expanded; None if they are not known.
        row_filters: What decides, for a view, which rows it has.
        base: The table, or the key parts of the source, where it is one: then every column of it
            that a query names is known by that name, even if ``columns`` is None.
        fields: Fields of its ROW columns, each with its column: Flink finds ``city`` where there is
            only ``address ROW<city STRING>``, at any depth of ROWs (``PEEK_FIELDS_NO_EXPAND``).
    """

    columns: tuple[ColumnLineage, ...] | None
    row_filters: tuple[ColumnOrigin, ...] = ()
    base: tuple[TableName | None, tuple[str, ...] | None] | None = None
    fields: tuple[tuple[str, str], ...] = ()


Lookup = Callable[[tuple[str, ...]], RelationColumns]
"""From a name's parts, as written, to what it stands for."""


@dataclass(frozen=True)
class QueryLineage:
    """A query's columns in order (None: cannot be told), and what filters its rows."""

    columns: tuple[ColumnLineage, ...] | None
    row_filters: tuple[ColumnOrigin, ...]


def query_lineage(query: exp.Expr, lookup: Lookup) -> QueryLineage:
    """Tell what the columns of a query are made from; a constant's column has no origins."""
    return _lineage(query, None, lookup)


def _lineage(query: exp.Expr, clause: exp.With | None, lookup: Lookup) -> QueryLineage:
    tables = _Tables(lookup)
    walk = Walk(tables.relation, tables.origins.at_most)
    scope = Scope(None)
    relation = walk.query(query, walk.with_clause(clause, scope) if clause else scope)
    columns = None
    if relation.beyond is None:
        columns = tuple(
            ColumnLineage(name, *tables.origins.tell(made_from))
            for name, made_from in zip(relation.names, relation.made_from, strict=True)
        )
    return QueryLineage(columns, tables.origins.tell_filters(relation.filters))


def insert_lineage(
    insert: exp.Insert, lookup: Lookup, sink_columns: tuple[str, ...] | None
) -> tuple[tuple[ColumnLineage, ...] | None, tuple[ColumnOrigin, ...]]:
    """Tell what the columns that an INSERT writes are made from, and what filters its rows.

    Args:
        sink_columns: The columns of the sink that can be written, in order; None if not known.

    Returns:
        The columns in the sink's order, those left out that the INSERT does not name; columns of a
        static partition are constants. None where it cannot be told what goes where.
    """
    found = _lineage(insert.expression, insert.args.get("with_"), lookup)
    static = _static_partition(insert)
    targets = _targets(insert, sink_columns, static)
    if targets is None or found.columns is None or len(targets) != len(found.columns):
        return None, found.row_filters
    written = {
        name: ColumnLineage(name, column.origins, column.certainty)
        for name, column in zip(targets, found.columns, strict=True)
    }
    written |= {name: ColumnLineage(name, ()) for name in static}
    order = sink_columns if sink_columns is not None else (*static, *targets)
    if not written.keys() <= set(order):
        return None, found.row_filters
    return tuple(written[name] for name in unique(order) if name in written), found.row_filters


def referenced_columns(expression: exp.Expr) -> tuple[str, ...]:
    """The columns of its own table that an expression names, such as a computed column's."""
    return unique(column.parts[0].name for column in expression.find_all(exp.Column, bfs=False))


def _static_partition(insert: exp.Insert) -> tuple[str, ...]:
    partition = insert.args.get("partition")
    if partition is None:
        return ()
    return tuple(part.this.name for part in partition.expressions if isinstance(part, exp.EQ))


def _targets(
    insert: exp.Insert, sink_columns: tuple[str, ...] | None, static: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The columns that the query's columns go to, by position."""
    if isinstance(insert.this, exp.Schema):
        return tuple(column.name for column in insert.this.expressions)
    if sink_columns is None:
        return None
    return tuple(name for name in sink_columns if name not in static)


class _Tables:
    """Makes relations of what a lookup knows, each table once."""

    def __init__(self, lookup: Lookup) -> None:
        self.origins = Origins()
        self._lookup = lookup
        self._known: dict[tuple[str, ...], Relation] = {}

    def relation(self, parts: tuple[str, ...]) -> Relation:
        """What stands in FROM under this name."""
        relation = self._known.get(parts)
        if relation is None:
            relation = self._known[parts] = self._make(self._lookup(parts))
        return relation

    def _make(self, found: RelationColumns) -> Relation:
        filters = 0
        if found.row_filters:
            (filters,) = self.origins.bits([ColumnLineage("", found.row_filters)])
        if found.columns is not None:
            names = [column.column for column in found.columns]
            bits = self.origins.bits(found.columns)
            fields = index_of((f, bits[names.index(column)]) for f, column in found.fields)
            return Relation(names, bits, filters, None, fields)
        if found.base is None:
            return Relation((), (), filters, lambda _: UNKNOWN)
        table, source = found.base
        named: dict[str, int] = {}

        def by_name(name: str) -> int:
            if name not in named:
                origin = ColumnOrigin(table, source, name)
                (named[name],) = self.origins.bits([ColumnLineage(name, (origin,))])
            return named[name]

        return Relation((), (), filters, by_name)

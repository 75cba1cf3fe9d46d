"""What functions in FROM and MATCH_RECOGNIZE give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.lineage_scope import NOTHING, UNKNOWN, Relation, Scope

if TYPE_CHECKING:
    from lakehouse_dagster.sql.lineage_query import Walk

_WINDOWS = frozenset({"TUMBLE", "HOP", "CUMULATE", "SESSION"})
_WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


def function_relation(
    walk: Walk, node: nodes.TableFunction, scope: Scope, names: Sequence[str]
) -> Relation:
    """What ``f(…)``, ``TABLE(f(…))`` or ``LATERAL TABLE(f(…))`` gives.

    Args:
        names: Its columns, where an alias names them.
    """
    arguments = [
        argument.expression if isinstance(argument, nodes.NamedArgument) else argument
        for argument in node.expressions
    ]
    tables = [a for a in arguments if isinstance(a, nodes.TableArgument)]
    if node.name.upper() in _WINDOWS and len(tables) == 1:
        return _windowed(_input(walk, tables[0], scope), arguments).renamed(names)
    made_from, filters = NOTHING, NOTHING
    for argument in arguments:
        if isinstance(argument, nodes.TableArgument):
            table = _input(walk, argument, scope)
            made_from |= walk.at_most(table.everything)
            filters |= table.filters
        else:
            made_from |= walk.value(argument, scope)
    if names:
        return Relation(names, [made_from] * len(names), filters)
    return Relation((), (), filters, lambda _: made_from)


def _input(walk: Walk, argument: exp.Expr, scope: Scope) -> Relation:
    if isinstance(argument.this, exp.Table):
        return walk.named(argument.this, scope)
    return walk.query(argument.this, scope.around)


def _windowed(table: Relation, arguments: Sequence[exp.Expr]) -> Relation:
    times = [a.expressions[0].name for a in arguments if isinstance(a, nodes.Descriptor)]
    time = table.find(times[0]) if times else None
    made_from = UNKNOWN if time is None else time
    return Relation(
        [*table.names, *_WINDOW_COLUMNS],
        [*table.made_from, *[made_from] * len(_WINDOW_COLUMNS)],
        table.filters,
        table.beyond,
        table.fields,
    )


def pattern_relation(walk: Walk, node: nodes.PatternTable, scope: Scope) -> Relation:
    """What MATCH_RECOGNIZE gives: partition columns or all of the input's, then the measures.

    Which rows a measure takes its value from is the pattern's choice, so it is at most from every
    column of the input; the pattern's conditions, partition and order filter rows.
    """
    table = _input(walk, node, scope)
    inner = Scope(scope.around)
    inner.add((), table)
    for variable in _pattern_variables(node):
        inner.relations.append(((variable,), table))
    filters = walk.values([variable.expression for variable in node.args["define"]], inner)
    partition = node.args.get("partition_by") or []
    keys = [walk.value(column, inner) for column in partition]
    if node.args.get("order") is not None:
        filters |= walk.value(node.args["order"], inner)
    for key in keys:
        filters |= key
    measures = node.args.get("measures") or []
    any_column = walk.at_most(table.everything) if measures else NOTHING
    made_from = [walk.value(measure.this, inner) | any_column for measure in measures]
    filters |= table.filters | inner.filters
    named = [measure.alias for measure in measures]
    if (node.args.get("rows") or "").upper().startswith("ALL"):
        names = [*table.names, *named]
        return Relation(names, [*table.made_from, *made_from], filters, table.beyond)
    return Relation([*(column.name for column in partition), *named], keys + made_from, filters)


def _pattern_variables(node: nodes.PatternTable) -> set[str]:
    defined = [*node.args["define"], *(node.args.get("subsets") or [])]
    return {v.this.name for v in defined} | set(re.findall(r"\w+", node.args["pattern"]))

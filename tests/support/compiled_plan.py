"""Column lineage as Flink sees it: read from a compiled plan, to judge ours.

``COMPILE PLAN`` writes the optimised plan as JSON: nodes, whose expressions name columns of their
input by position, and the edges between them. Lineage is carried along the edges, from the table
scans to the sinks. An optimiser may change a query in any way that keeps its result, so what is
found here can differ from what the text says without either being wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_dagster.flink.sql_gateway import Session

Node = dict[str, Any]
Made = frozenset[tuple[str, str]]
"""Columns as pairs of a table's name, without catalog and database, and a column's name."""

NOTHING: Made = frozenset()


@dataclass(frozen=True)
class PlanLineage:
    """Of one INSERT: what each column of its sink is made from, and what filters its rows."""

    columns: tuple[Made, ...]
    filters: Made


@dataclass(frozen=True)
class _Rows:
    columns: tuple[Made, ...]
    filters: Made

    def filtered(self, *by: Made) -> _Rows:
        return _Rows(self.columns, self.filters.union(*by))

    def at(self, positions: Sequence[int]) -> Made:
        return union(self.columns[p] for p in positions if 0 <= p < len(self.columns))


def union(parts: Any) -> Made:
    """All columns of several sets of them."""
    return reduce(lambda one, other: one | other, parts, NOTHING)


def lineage(plan: str) -> list[PlanLineage]:
    """Read a plan's JSON.

    Raises:
        NotImplementedError: The plan has a kind of node that is not known here.
    """
    return _Plan(json.loads(plan)).sinks()


def _field_names(row_type: Any) -> list[str]:
    """Names of a ROW type, which the plan gives as text, or as a mapping."""
    if isinstance(row_type, dict):
        return [field["name"] for field in row_type["fields"]]
    text, names, depth, position = row_type[row_type.index("<") + 1 :], [], 0, 0
    at_name = True
    while position < len(text):
        if at_name and depth == 0 and text[position] == "`":
            found = re.compile(r"`((?:[^`]|``)*)`").match(text, position)
            assert found is not None
            names.append(found[1].replace("``", "`"))
            position, at_name = found.end(), False
            continue
        depth += (text[position] in "<(") - (text[position] in ">)")
        at_name = depth == 0 and (text[position] == "," or (at_name and text[position] == " "))
        position += 1
    return names


def _references(expression: Any, columns: Sequence[Made]) -> Made:
    """The columns that an expression of the plan (RexNode) refers to."""
    if isinstance(expression, list):
        return union(_references(member, columns) for member in expression)
    if not isinstance(expression, dict):
        return NOTHING
    if expression.get("kind") in ("INPUT_REF", "PATTERN_INPUT_REF"):
        return columns[expression["inputIndex"]]
    inner = expression.get("expr")
    if isinstance(inner, dict) and inner.get("kind") == "CORREL_VARIABLE":
        return columns[_field_names(inner["type"]).index(expression["name"])]
    return union(_references(value, columns) for key, value in expression.items() if key != "type")


def _positions(keys: Any) -> list[int]:
    """Positions of a partition's or an order's fields."""
    fields = (keys or {}).get("fields") or []
    return [field["index"] if isinstance(field, dict) else field for field in fields]


class _Plan:
    def __init__(self, plan: Node) -> None:
        self._nodes: dict[int, Node] = {node["id"]: node for node in plan["nodes"]}
        self._inputs: dict[int, list[int]] = {node: [] for node in self._nodes}
        for edge in plan["edges"]:
            self._inputs[edge["target"]].append(edge["source"])
        self._rows: dict[int, _Rows] = {}

    def sinks(self) -> list[PlanLineage]:
        found = []
        for identity, node in self._nodes.items():
            if "dynamicTableSink" in node:
                rows = self._of(self._inputs[identity][0])
                found.append(PlanLineage(rows.columns, rows.filters))
        return found

    def _of(self, identity: int) -> _Rows:
        if identity not in self._rows:
            node = self._nodes[identity]
            kind = re.sub(r"^(stream|batch)-exec-|_\d+$", "", node["type"])
            if kind not in _KINDS:
                raise NotImplementedError(kind)
            inputs = [self._of(source) for source in self._inputs[identity]]
            if kind in _GLOBAL:
                rows = self._global_aggregate(node, identity)
            else:
                rows = _KINDS[kind](node, inputs)
            width = len(_field_names(node["outputType"]))
            assert len(rows.columns) == width, (kind, len(rows.columns), width)
            self._rows[identity] = rows
        return self._rows[identity]

    def _global_aggregate(self, node: Node, identity: int) -> _Rows:
        """The second half of an aggregate: its accumulators come from the first half's input."""
        local = self._inputs[identity][0]
        while "-local-" not in self._nodes[local]["type"]:
            local = self._inputs[local][0]
        given = self._of(self._inputs[local][0])
        first = self._nodes[local]
        return _aggregate({**node, **{k: first.get(k) for k in ("grouping", "windowing")}}, [given])


def _same(node: Node, inputs: list[_Rows]) -> _Rows:
    return inputs[0]


def _scan(node: Node, inputs: list[_Rows]) -> _Rows:
    return _table(node["scanTableSource"], node["outputType"])


def _table(source: Node, output_type: Any) -> _Rows:
    identifier = source["table"]["identifier"]
    name = re.findall(r"`((?:[^`]|``)*)`", identifier)[-1]
    # Of temporary tables the plan has the name alone; those of the tests push nothing down.
    schema = source["table"].get("resolvedTable", {}).get("schema", {})
    # A scan gives no computed columns: they are computed after it.
    declared = [c["name"] for c in schema.get("columns", []) if c.get("kind") != "COMPUTED"]
    columns = [frozenset({(name, column)}) for column in declared or _field_names(output_type)]
    filters = NOTHING
    # In this order: what is pushed down counts columns as those before it have left them.
    for ability in source.get("abilities") or []:
        if ability["type"] == "FilterPushDown":
            filters |= _references(ability["predicates"], columns)
        if ability["type"] == "ProjectPushDown":
            columns = [columns[path[0]] for path in ability["projectedFields"]]
    return _Rows(tuple(columns), filters)


def _values(node: Node, inputs: list[_Rows]) -> _Rows:
    return _Rows((NOTHING,) * len(_field_names(node["outputType"])), NOTHING)


def _calc(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    columns = tuple(_references(part, given.columns) for part in node["projection"])
    return _Rows(columns, given.filters | _references(node.get("condition"), given.columns))


def _join(node: Node, inputs: list[_Rows]) -> _Rows:
    left, right = inputs
    interval = node.get("intervalJoinSpec") or {}
    spec = node.get("joinSpec") or interval["joinSpec"]
    both = left.columns + right.columns
    filters = left.filters | right.filters
    filters |= left.at(spec["leftKeys"]) | right.at(spec["rightKeys"])
    filters |= _references(spec.get("nonEquiCondition"), both)
    bounds = interval.get("windowBounds") or {}
    for side, rows in (("left", left), ("right", right)):
        if f"{side}TimeIndex" in bounds:
            filters |= rows.at([bounds[f"{side}TimeIndex"]])
        filters |= _window_time(node.get(f"{side}Windowing"), rows)
    # Of a temporal join, the text names the time that is looked at, never the versions' own.
    if "leftTimeAttributeIndex" in node:
        filters |= left.at([node["leftTimeAttributeIndex"]])
    columns = left.columns if spec["joinType"] in ("SEMI", "ANTI") else both
    return _Rows(columns, filters)


def _lookup_join(node: Node, inputs: list[_Rows]) -> _Rows:
    left = inputs[0]
    looked_up = node["temporalTable"]
    source = looked_up["lookupTableSource"]
    right = _table(source, looked_up["outputType"])
    keys = [right.at([int(key)]) for key in node["lookupKeys"]]
    keys += [left.at([value["index"]]) for value in node["lookupKeys"].values() if "index" in value]
    keys.append(_references(node.get("filterOnTemporalTable"), right.columns))
    projected = node.get("projectionOnTemporalTable")
    if projected:
        right = _Rows(tuple(_references(part, right.columns) for part in projected), right.filters)
    columns = left.columns + right.columns
    for condition in ("joinCondition", "remainingJoinCondition", "preFilterCondition"):
        keys.append(_references(node.get(condition), columns))
    return _Rows(columns, left.filters | right.filters).filtered(*keys)


def _window_time(windowing: Node | None, rows: _Rows) -> Made:
    """What the time is made from by which rows are put into windows."""
    windowing = windowing or {}
    names = ("timeAttributeIndex", "windowStart", "windowEnd", "sliceEnd")
    return rows.at([windowing[name] for name in names if name in windowing])


def _aggregate(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    columns = [given.columns[p] for p in node.get("grouping") or []]
    for call in node.get("aggCalls") or []:
        columns.append(given.at([*call["argList"], call.get("filterArg", -1)]))
    window = node.get("window") or {}
    field = window.get("timeField") or {}
    time = _window_time(node.get("windowing"), given) | given.at([field.get("fieldIndex", -1)])
    width = len(_field_names(node["outputType"]))
    columns += [time] * (width - len(columns))
    return _Rows(tuple(columns), given.filters)


def _windowed(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    added = len(_field_names(node["outputType"])) - len(given.columns)
    return _Rows(given.columns + (_window_time(node["windowing"], given),) * added, given.filters)


def _rank(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    partition = given.at(_positions(node.get("partition") or node.get("partitionSpec")))
    keys = partition | given.at(_positions(node.get("orderBy") or node.get("sortSpec")))
    keys |= _window_time(node.get("windowing"), given)
    columns = given.columns + ((keys,) if node.get("outputRowNumber") else ())
    return _Rows(columns, given.filters | keys)


def _deduplicate(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    keys = given.at(node.get("uniqueKeys") or node.get("partitionKeys") or [])
    keys |= given.at([node.get("orderKey", -1)]) | _window_time(node.get("windowing"), given)
    if node.get("isRowtime"):
        fields = node["outputType"]["fields"]
        rowtimes = [
            position
            for position, field in enumerate(fields)
            if isinstance(field["fieldType"], dict) and field["fieldType"].get("kind") == "ROWTIME"
        ]
        assert len(rowtimes) == 1
        keys |= given.at(rowtimes)
    return _Rows(given.columns, given.filters | keys)


def _over(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    spec = node["overSpec"]
    columns = list(given.columns)
    for group in spec["groups"]:
        keys = given.at(_positions(spec["partition"])) | given.at(_positions(group["orderBy"]))
        columns += [given.at(call["argList"]) or keys for call in group["aggCalls"]]
    return _Rows(tuple(columns), given.filters)


def _correlate(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    made = _references(node.get("functionCall") or node.get("invocation"), given.columns)
    added = len(_field_names(node["outputType"])) - len(given.columns)
    columns = given.columns + (made,) * added
    # A condition here counts the columns of what the function gives.
    condition = _references(node.get("condition"), (made,) * len(columns))
    return _Rows(columns, given.filters | condition)


def _expand(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    rows = [[_references(part, given.columns) for part in row] for row in node["projects"]]
    return _Rows(tuple(union(parts) for parts in zip(*rows, strict=True)), given.filters)


def _union(node: Node, inputs: list[_Rows]) -> _Rows:
    columns = zip(*(rows.columns for rows in inputs), strict=True)
    return _Rows(tuple(union(parts) for parts in columns), union(rows.filters for rows in inputs))


def _match(node: Node, inputs: list[_Rows]) -> _Rows:
    given = inputs[0]
    spec = node["matchSpec"]
    partition = _positions(spec["partition"])
    filters = given.at(partition) | given.at(_positions(spec["orderBy"]))
    filters |= _references(spec["patternDefinitions"], given.columns)
    measures = [_references(value, given.columns) for value in spec["measures"].values()]
    columns = [given.columns[position] for position in partition] + measures
    return _Rows(tuple(columns), given.filters | filters)


def _limited(node: Node, inputs: list[_Rows]) -> _Rows:
    return inputs[0].filtered(inputs[0].at(_positions(node["orderBy"])))


_GLOBAL = frozenset({"global-window-aggregate", "global-group-aggregate"})
_KINDS: dict[str, Callable[[Node, list[_Rows]], _Rows]] = {
    "table-source-scan": _scan,
    "values": _values,
    "calc": _calc,
    **dict.fromkeys(("join", "interval-join", "temporal-join", "window-join"), _join),
    "lookup-join": _lookup_join,
    **dict.fromkeys(
        (
            "group-aggregate",
            "group-window-aggregate",
            "window-aggregate",
            "local-window-aggregate",
            "local-group-aggregate",
            *_GLOBAL,
        ),
        _aggregate,
    ),
    "window-table-function": _windowed,
    **dict.fromkeys(("rank", "window-rank"), _rank),
    **dict.fromkeys(("deduplicate", "window-deduplicate"), _deduplicate),
    "over-aggregate": _over,
    "correlate": _correlate,
    "expand": _expand,
    "union": _union,
    "match": _match,
    "sort-limit": _limited,
    **dict.fromkeys(
        (
            "exchange",
            "changelog-normalize",
            "drop-update-before",
            "watermark-assigner",
            "mini-batch-assigner",
            "limit",
            "sort",
            "temporal-sort",
        ),
        _same,
    ),
}


class Planner:
    """Has Flink compile queries, in one session of a gateway on this machine.

    Args:
        folder: Where the gateway writes plans; it must be able to.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._compiled = 0

    def compile(self, query: str) -> tuple[list[str], str]:
        """Return the names of a query's columns, and the plan of an INSERT of it.

        Raises:
            SqlExecutionError: Flink refuses the query, or cannot run it as a stream.
        """
        self._compiled += 1
        view, sink = f"v{self._compiled}", f"s{self._compiled}"
        self._session.execute(f"CREATE TEMPORARY VIEW {view} AS {query}")
        described = self._session.execute(f"DESCRIBE {view}").rows
        types = [re.sub(r" [*]\w+[*]", "", str(row[1])) for row in described]
        columns = [f"c{position} {type_}" for position, type_ in enumerate(types)]
        self._session.execute(
            f"CREATE TEMPORARY TABLE {sink} ({', '.join(columns)}) WITH ('connector' = 'blackhole')"
        )
        file = self._folder / f"{self._compiled}.json"
        self._session.execute(f"COMPILE PLAN '{file.as_uri()}' FOR INSERT INTO {sink} {query}")
        return [str(row[0]) for row in described], file.read_text()

"""Plans of real statements as Flink told them, with the operators that their checkpoints then held.

Recorded on Flink 2.0.2 with Paimon 2.0.0; Flink 1.20.5 with Paimon 1.3.1 gave the same ids.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse_dagster.flink.execution_plan import ExecutionPlan, plan_from_explain

_RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "plans/recorded.json").read_text())

NAMES = tuple(_RECORDED)

CONFIG = {
    f"paimon.lake.{table}.{side}.operator-uid.suffix": f"{table.partition('.')[0]}.jobx"
    for table in (
        "ods.a",
        "ods.b",
        "ods.pk",
        "ods.agg",
        "dwd.a",
        "ods.dyn",
        "ods.compacting",
    )
    for side in ("sink", "source")
}
"""What the statements were explained and submitted with."""


@dataclass(frozen=True)
class Recorded:
    """One statement: Flink's answers, and the operator ids in a checkpoint of its job."""

    name: str
    statement: str
    explain: str = field(repr=False)
    operators: frozenset[str]
    running: dict[str, Any] = field(repr=False)

    def plan(self) -> ExecutionPlan:
        return plan_from_explain(self.explain, CONFIG)


def recorded(name: str) -> Recorded:
    data = _RECORDED[name]
    text = "\n".join(
        (
            "== Abstract Syntax Tree ==",
            *data["sinks"],
            "",
            "== Physical Execution Plan ==",
            json.dumps({"nodes": data["nodes"]}),
        )
    )
    return Recorded(
        name, data["statement"], text, frozenset(data["operators"]), dict(data["running"])
    )


def explained(
    *nodes: str, sinks: tuple[str, ...] = (), config: dict[str, str] | None = None
) -> ExecutionPlan:
    """A plan from lines such as ``3 GroupAggregate(groupBy=[text]) <-HASH 1``.

    A source is ``1 Source inc``; an operator of a sink ``5 Writer : a <-FORWARD 4``.
    """
    made = [_node(line) for line in nodes]
    text = "".join(f"LogicalSink(table=[lake.{table}], fields=[id])\n" for table in sinks)
    text += f"== Physical Execution Plan ==\n{json.dumps({'nodes': made})}"
    return plan_from_explain(text, config or {})


def _node(line: str) -> dict[str, Any]:
    head, _, inputs = line.partition(" <-")
    number, _, what = head.partition(" ")
    found = re.fullmatch(r"(.*?)(?: x(\d+))?", what)
    assert found
    what, parallelism = found[1], int(found[2] or 1)
    node: dict[str, Any] = {"id": int(number), "parallelism": parallelism, "pact": "Operator"}
    if what.startswith("Source "):
        table, _, rest = what.removeprefix("Source ").partition(" ")
        catalog = "lake, ods" if rest == "of the lake" else "lake, default"
        scan = f"[{number}]:TableSourceScan(table=[[{catalog}, {table}]], fields=[id])"
        return {**node, "type": f"Source: {table}[{number}]", "contents": scan}
    name, bracket, _ = what.partition("(")
    node |= {"type": what, "contents": what}
    if bracket and " : " not in what:
        node |= {"type": f"{name}[{number}]", "contents": f"[{number}]:{what}"}
    if inputs:
        strategy, _, numbers = inputs.partition(" ")
        node["predecessors"] = [
            {"id": int(before), "ship_strategy": strategy} for before in numbers.split(",")
        ]
    return node

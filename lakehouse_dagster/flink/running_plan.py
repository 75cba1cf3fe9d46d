"""The plan of a job that runs, by ``GET /jobs/:id/plan``.

That tells of chains of operators, each as an indented tree, and names only the first operator of
each chain by its id.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse_dagster.flink.execution_plan import (
    OF_A_SINK,
    SCANNED,
    ExecutionPlan,
    PlanInput,
    PlanNode,
)
from lakehouse_dagster.flink.redaction import redact


def plan_of_running(answer: Mapping[str, Any]) -> ExecutionPlan:
    """The plan in the answer to ``GET /jobs/:id/plan``.

    Each of its nodes is a chain, told as an indented tree; only the chain's first operator has its
    id there (see ``execution_plan.worked_out``).
    """
    chains = [_Chain.of(chain) for chain in answer["plan"]["nodes"]]
    firsts: dict[str, int] = {}
    ends: dict[str, int] = {}
    count = 0
    for chain in sorted(chains, key=lambda chain: chain.planner_number):
        firsts[chain.id] = count
        count += len(chain.members)
        ends[chain.id] = count - 1
    nodes = [node for chain in chains for node in chain.nodes(firsts[chain.id], ends)]
    return ExecutionPlan(tuple(sorted(nodes, key=lambda node: node.id)))


@dataclass(frozen=True)
class _Member:
    """One operator of a chain, and below which other one it stands (None: the first)."""

    below: int | None
    type: str
    contents: str


@dataclass(frozen=True)
class _Chain:
    id: str
    parallelism: int
    inputs: tuple[tuple[str, str], ...]
    members: tuple[_Member, ...]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> _Chain:
        inputs = tuple(
            (str(i["id"]), str(i.get("ship_strategy", ""))) for i in answer.get("inputs", ())
        )
        members = _members(str(answer["description"]), bool(inputs))
        return cls(str(answer["id"]), int(answer["parallelism"]), inputs, tuple(members))

    @property
    def planner_number(self) -> int:
        """The planner counts operators up in the order in which it makes them."""
        numbers = [re.match(r"\[(\d+)\]:", member.contents) for member in self.members]
        return min((int(found[1]) for found in numbers if found), default=sys.maxsize)

    def nodes(self, first: int, ends: Mapping[str, int]) -> list[PlanNode]:
        before = tuple(PlanInput(ends[id_], strategy) for id_, strategy in self.inputs)
        return [
            PlanNode(
                id=first + at,
                type=member.type,
                contents=redact(member.contents),
                parallelism=self.parallelism,
                inputs=before
                if member.below is None
                else (PlanInput(first + member.below, "FORWARD"),),
                operator_id=self.id if at == 0 else None,
            )
            for at, member in enumerate(self.members)
        ]


def _members(description: str, has_inputs: bool) -> list[_Member]:
    """The operators of a chain, from ``[1]:Calc(…)<br/>+- Map<br/>   +- Writer : t<br/>``."""
    members: list[_Member] = []
    path: list[int] = []
    for text in description.split("<br/>"):
        tree = re.match(r"^[\s:|]*[+:]- ", text)
        line = (text[tree.end() :] if tree else text).strip()
        if not line:
            continue
        depth = len(tree[0]) // 3 if tree else 0
        del path[depth:]
        below = path[-1] if path else None
        path.append(len(members))
        named = re.match(r"(?:\[\d+\]:)?([\w-]+(?: \w+)*)(?=[(\[])", line)
        scanned = SCANNED.search(line)
        if not members and not has_inputs:
            name = scanned[3] if scanned else line.removeprefix("Source: ")
            members.append(_Member(below, f"Source: {name}", line))
        elif OF_A_SINK.fullmatch(line) or named is None:
            members.append(_Member(below, line, line))
        else:
            members.append(_Member(below, named[1], line))
    return members

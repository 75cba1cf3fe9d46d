"""What a job consists of: its operators, what each does, and the id its state is kept under.

Told of a statement by ``EXPLAIN JSON_EXECUTION_PLAN``, before it is submitted; ``running_plan.py``
tells it of a job that runs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import SqlExecutionError
from lakehouse_dagster.flink.operator_ids import Place, operator_ids
from lakehouse_dagster.flink.redaction import redact

if TYPE_CHECKING:
    from lakehouse_dagster.flink.operation import OnWait
    from lakehouse_dagster.flink.sql_gateway import Session

SOURCE_SUFFIX, SINK_SUFFIX = "source.operator-uid.suffix", "sink.operator-uid.suffix"

_HEADING = "== Physical Execution Plan =="
SCANNED = re.compile(r"table=\[\[([^,\]]+), ([^,\]]+), ([^,\]]+)")
_LOGICAL_SINK = re.compile(r"^LogicalSink\(table=\[([^\]]+)\]", re.MULTILINE)
_PLANNED = re.compile(r"\[\d+\]:([\w-]+)[(\[]")
_PLANNER_NUMBER = re.compile(r"^\[\d+\]:|\[\d+\]$")
# Operators of Paimon's sinks that take a uid from the suffix, by the names Paimon gives them.
OF_A_SINK = re.compile(r"(Writer|Global Committer)(?:\([\w-]+\))? : (.+)")
_WRITER, _ASSIGNER = "Writer", "dynamic-bucket-assigner"
_STARTS_CHAIN = ("Compact Coordinator", "Compact Worker")
_STATELESS = frozenset(
    (
        "Calc",
        "Map",
        "ConstraintEnforcer",
        "DropUpdateBefore",
        "Expand",
        "Correlate",
        "LookupJoin",
        "MiniBatchAssigner",
        "Union",
        "Values",
        "WatermarkAssigner",
        "SinkConversion",
        "end: Writer",
        *_STARTS_CHAIN,
    )
)


@dataclass(frozen=True)
class PlanInput:
    """Where an operator's rows come from, and how (``FORWARD``, ``HASH`` …)."""

    id: int
    ship_strategy: str


@dataclass(frozen=True)
class PlanNode:
    """One operator.

    ``uid`` is the name its id is made from, if it has one; ``operator_id`` is None where it cannot
    be told (an operator in the middle of a running job's chain).
    """

    id: int
    type: str
    contents: str
    parallelism: int
    inputs: tuple[PlanInput, ...] = ()
    uid: str | None = None
    operator_id: str | None = None

    @property
    def kind(self) -> str:
        """What it is, without the number that the planner counts up: ``GroupAggregate``."""
        if self.is_source:
            return "Source"
        if of_a_sink := OF_A_SINK.fullmatch(self.type):
            return of_a_sink[1]
        planned = _PLANNED.match(self.contents)
        return planned[1] if planned else _plain(self.type).partition(": ")[0]

    @property
    def is_source(self) -> bool:
        return not self.inputs

    @property
    def description(self) -> str:
        """What it does, without the numbers that the planner counts up."""
        return _plain(self.contents)

    @property
    def table(self) -> str | None:
        """What a source reads, as ``catalog.database.table``, or a sink writes, by its name."""
        if self.is_source:
            scanned = SCANNED.search(self.contents)
            return ".".join(scanned.groups()) if scanned else self.type.partition(": ")[2] or None
        of_a_sink = OF_A_SINK.fullmatch(self.type)
        return of_a_sink[2] if of_a_sink else None

    @property
    def has_state(self) -> bool:
        """Whether an operator of its kind keeps state; unknown kinds are taken to do so."""
        name = self.type if self.type in _STATELESS else self.kind
        return name not in _STATELESS

    def __str__(self) -> str:
        if self.is_source:
            return f"the source {self.table}"
        if self.table:
            return f"the {self.kind.lower()} of {self.table}"
        text = self.description
        return text if len(text) <= 160 else f"{text[:159]}…"


@dataclass(frozen=True)
class ExecutionPlan:
    """All operators of one job.

    ``unusable_options`` are the uid options that must be left out when the statement is submitted:
    two of its operators would get the same uid from them, which Flink refuses.
    """

    nodes: tuple[PlanNode, ...]
    unusable_options: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ExecutionPlan:
        data = json.loads(text)
        nodes = [
            PlanNode(**{**node, "inputs": tuple(PlanInput(**i) for i in node["inputs"])})
            for node in data["nodes"]
        ]
        return cls(tuple(nodes), tuple(data["unusable_options"]))

    @property
    def is_complete(self) -> bool:
        """Whether the ids of all operators are known."""
        return all(node.operator_id is not None for node in self.nodes)

    @property
    def sources(self) -> tuple[PlanNode, ...]:
        return tuple(node for node in self.nodes if node.is_source)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The Paimon tables it writes, by their names without database."""
        return tuple(n.table for n in self.nodes if n.kind == _WRITER and n.table is not None)


def explain(
    session: Session,
    statement: str,
    config: Mapping[str, str],
    *,
    secrets: Iterable[str] = (),
    timeout_seconds: float = 60.0,
    on_wait: OnWait | None = None,
) -> ExecutionPlan:
    """The plan of an INSERT or statement set as it would be submitted with ``config``.

    Nothing is started. The text of filters and computed columns stands in the plan, with
    ``secrets`` and what looks like row data masked.

    Raises what ``Session.execute`` raises: ``SqlExecutionError`` when it does not compile.
    """
    answer = session.execute(
        f"EXPLAIN JSON_EXECUTION_PLAN {_explainable(statement)}",
        config=config,
        timeout_seconds=timeout_seconds,
        on_wait=on_wait,
    )
    return plan_from_explain(str(answer.rows[0][0]), config, secrets=secrets)


def _explainable(statement: str) -> str:
    """EXPLAIN takes ``STATEMENT SET BEGIN …`` and ``INSERT …``, without an EXECUTE before."""
    return re.sub(
        r"\A((?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*)EXECUTE\b",
        r"\1",
        statement,
        flags=re.DOTALL | re.IGNORECASE,
    )


def plan_from_explain(
    text: str, config: Mapping[str, str], *, secrets: Iterable[str] = ()
) -> ExecutionPlan:
    """The plan in the answer to ``EXPLAIN JSON_EXECUTION_PLAN``, with the ids of its operators."""
    _, found, plan = text.partition(_HEADING)
    try:
        answer = json.loads(plan) if found else {}
        nodes = tuple(_node(node, secrets) for node in answer["nodes"])
    except (ValueError, KeyError, TypeError) as error:
        raise SqlExecutionError(
            "EXPLAIN gave no execution plan in JSON.",
            root_cause=f"{type(error).__name__} in the answer to EXPLAIN JSON_EXECUTION_PLAN",
            remedy="Look at the version of Flink (1.20 or newer).",
        ) from error
    options = _uid_options(nodes, _LOGICAL_SINK.findall(text), config)
    uids = {i: _uid(option, config) for i, option in options.items()}
    uids = {node.id: f"{node.kind}_{uids[node.id]}" for node in nodes if node.id in uids}
    twice = {uid for uid, count in Counter(uids.values()).items() if count > 1}
    unusable = {option for i, option in options.items() if uids[i] in twice}
    named = [
        replace(node, uid=None if options.get(node.id) in unusable else uids.get(node.id))
        for node in nodes
    ]
    ids = operator_ids([_place(node) for node in named])
    return ExecutionPlan(
        tuple(replace(node, operator_id=ids.get(node.id)) for node in named),
        tuple(sorted(unusable)),
    )


def _node(answer: Mapping[str, Any], secrets: Iterable[str]) -> PlanNode:
    return PlanNode(
        id=int(answer["id"]),
        type=str(answer["type"]),
        contents=redact(str(answer.get("contents", "")), secrets=secrets),
        parallelism=int(answer["parallelism"]),
        inputs=tuple(
            PlanInput(int(before["id"]), str(before.get("ship_strategy", "")))
            for before in answer.get("predecessors", ())
        ),
    )


def _place(node: PlanNode, *, chain_heads: Collection[int] = ()) -> Place:
    """``chain_heads`` are the numbers of operators that are known to begin a chain."""
    return Place(
        number=node.id,
        parallelism=node.parallelism,
        inputs=tuple(before.id for before in node.inputs),
        forwards=frozenset(i.id for i in node.inputs if i.ship_strategy == "FORWARD"),
        uid=node.uid,
        starts_chain=node.type.startswith(_STARTS_CHAIN) or node.id in chain_heads,
    )


def _uid_options(
    nodes: Sequence[PlanNode], sinks: Sequence[str], config: Mapping[str, str]
) -> dict[int, str]:
    """The option that gives each operator its uid, of those that have one.

    Paimon names a sink's operators by the table without its database; which database it is follows
    from the order of the statement's sinks.
    """
    options = {}
    of_sinks: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        if node.is_source:
            options[node.id] = f"paimon.{node.table}.{SOURCE_SUFFIX}"
        elif node.table is not None:
            of_sinks.setdefault((node.kind, node.table), []).append(node.id)
    for (_, name), ids in of_sinks.items():
        tables = [sink for sink in sinks if sink.rpartition(".")[2] == name]
        if len(tables) == len(ids):
            for i, table in zip(sorted(ids), tables, strict=True):
                options[i] = f"paimon.{table}.{SINK_SUFFIX}"
    for node in nodes:
        feeds = {n.id for n in nodes if node.id in {i.id for i in n.inputs}}
        if node.type == _ASSIGNER and len(feeds) == 1 and (writer := feeds.pop()) in options:
            options[node.id] = options[writer]
    return {i: option for i, option in options.items() if config.get(option)}


def _uid(option: str, config: Mapping[str, str]) -> str:
    """As Paimon makes it (``FlinkConnectorOptions.generateCustomUid``), without the kind before."""
    table = option.removesuffix(f".{SOURCE_SUFFIX}").removesuffix(f".{SINK_SUFFIX}")
    return f"{table.rpartition('.')[2]}_{config[option]}"


def worked_out(plan: ExecutionPlan, with_state: Collection[str]) -> ExecutionPlan:
    """The plan of a running job with the ids of all its operators, where they can be worked out.

    They are those of a job without uids; what is known of this one must agree: the first operators
    of its chains, and ``with_state``, ids that its checkpoint holds. Else the plan is as before.
    """
    known = {node.id: node.operator_id for node in plan.nodes if node.operator_id is not None}
    ids = operator_ids([_place(node, chain_heads=known.keys()) for node in plan.nodes])
    agree = all(ids.get(number) == its_id for number, its_id in known.items())
    if not agree or not set(with_state) <= set(ids.values()):
        return plan
    return replace(plan, nodes=tuple(replace(n, operator_id=ids.get(n.id)) for n in plan.nodes))


def _plain(text: str) -> str:
    """The text without the numbers that the planner counts up: ``[12]:Calc``, ``Calc[12]``."""
    return _PLANNER_NUMBER.sub("", text)


def lineages(nodes: Sequence[PlanNode]) -> dict[int, str]:
    """What each operator computes from the sources on: equal texts, equal meaning."""
    by_id = {node.id: node for node in nodes}
    known: dict[int, str] = {}

    def lineage(node: PlanNode) -> str:
        if node.id not in known:
            before = [lineage(by_id[i.id]) for i in node.inputs if i.id in by_id]
            known[node.id] = f"{node.kind} {node.description} <- [{'; '.join(before)}]"
        return known[node.id]

    return {node.id: lineage(node) for node in nodes}

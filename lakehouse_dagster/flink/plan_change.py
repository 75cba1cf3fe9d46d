"""What a changed statement means for the state of its job: a pure comparison of two plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from lakehouse_dagster.flink.execution_plan import ExecutionPlan, PlanNode, lineages


class Verdict(str, Enum):
    """What becomes of the old job's state in the new one."""

    KEPT = "kept"
    """Every operator with state gets its own."""
    MAY_NOT_FIT = "may not fit"
    """Some operators do something else now; whether their state fits shows when they start."""
    LOST = "lost"
    """Some state would belong to no operator of the new job; Flink refuses to start it."""
    MOVED = "moved"
    """Some state would be handed to an operator that is not its own; Flink would not notice."""


@dataclass(frozen=True)
class PlanChange:
    """The differences that matter, in words that name operators and tables.

    ``sources_moved`` and ``operators_moved`` are (whose state it is, who would get it).
    ``lost`` are operators whose state would be dropped, ``reordered`` those of them that the new
    job has too, at another place; ``unknown_lost`` counts further ones of which only the id is
    known.
    """

    sources_added: tuple[str, ...] = ()
    sources_removed: tuple[str, ...] = ()
    sources_moved: tuple[tuple[str, str], ...] = ()
    sinks_added: tuple[str, ...] = ()
    sinks_removed: tuple[str, ...] = ()
    stateful_operators_added: tuple[str, ...] = ()
    stateful_operators_removed: tuple[str, ...] = ()
    stateful_operators_changed: tuple[tuple[str, str], ...] = ()
    operators_moved: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    reordered: tuple[str, ...] = ()
    unknown_lost: int = 0
    parallelism_changes: tuple[tuple[str, int, int], ...] = ()

    @property
    def verdict(self) -> Verdict:
        if self.sources_moved or self.operators_moved:
            return Verdict.MOVED
        if self.lost or self.unknown_lost:
            return Verdict.LOST
        return Verdict.MAY_NOT_FIT if self.stateful_operators_changed else Verdict.KEPT

    @property
    def state_is_kept(self) -> bool:
        """Whether every operator gets its own state, be it that it may not fit."""
        return self.verdict in (Verdict.KEPT, Verdict.MAY_NOT_FIT)

    @property
    def moved(self) -> tuple[tuple[str, str], ...]:
        return (*self.sources_moved, *self.operators_moved)

    def in_words(self) -> tuple[str, ...]:
        """What changed, one statement each; none when nothing that matters did."""
        return (
            *(f"reads {name} as well" for name in self.sources_added),
            *(f"no longer reads {name}" for name in self.sources_removed),
            *(f"writes {name} as well" for name in self.sinks_added),
            *(f"no longer writes {name}" for name in self.sinks_removed),
            *(f"new: {name}" for name in self.stateful_operators_added),
            *(f"gone: {name}" for name in self.stateful_operators_removed),
            *(f"changed: {old} became {new}" for old, new in self.stateful_operators_changed),
            *(f"{name}: parallelism {a} became {b}" for name, a, b in self.parallelism_changes),
        )


def compare(
    old: ExecutionPlan, new: ExecutionPlan, *, with_state: Iterable[str] | None = None
) -> PlanChange:
    """Follow the state of every operator of ``old`` into ``new``, as Flink would.

    Args:
        old: what ran; operators without an ``operator_id`` are matched by what they do.
        new: as explained, with all ids.
        with_state: the ids that hold state in the restore point; None when that is not known:
            then every operator of a kind that keeps state is taken to have some.
    """
    was, will_be = _by_id(old), _by_id(new)
    if with_state is None:
        with_state = [i for i, node in was.items() if node.has_state]
    moved: list[tuple[PlanNode, PlanNode]] = []
    changed: list[tuple[PlanNode, PlanNode]] = []
    lost: list[PlanNode] = []
    unknown_lost = 0
    meanings = _Meanings(old, new)
    for operator_id in with_state:
        before, after = was.get(operator_id), will_be.get(operator_id)
        if before is None:
            unknown_lost += after is None
        elif after is None:
            lost.append(before)
        elif meanings.is_another(before, after):
            moved.append((before, after))
        elif before.description != after.description and not before.is_source:
            changed.append((before, after))
    return PlanChange(
        sources_added=_more(_tables(new), _tables(old)),
        sources_removed=_more(_tables(old), _tables(new)),
        sources_moved=tuple((str(a), str(b)) for a, b in moved if a.is_source and b.is_source),
        sinks_added=_more(new.sinks, old.sinks),
        sinks_removed=_more(old.sinks, new.sinks),
        stateful_operators_added=_more(_stateful(new), _stateful(old)),
        stateful_operators_removed=_more(_stateful(old), _stateful(new)),
        stateful_operators_changed=tuple((str(a), str(b)) for a, b in changed),
        operators_moved=tuple(
            (str(a), str(b)) for a, b in moved if not (a.is_source and b.is_source)
        ),
        lost=tuple(map(str, lost)),
        reordered=tuple(str(node) for node in lost if meanings.is_still_there(node)),
        unknown_lost=unknown_lost,
        parallelism_changes=tuple(
            (str(will_be[i]), node.parallelism, will_be[i].parallelism)
            for i, node in was.items()
            if i in will_be and will_be[i].parallelism != node.parallelism and node.has_state
        ),
    )


class _Meanings:
    """Whether two operators of one id are the same one, told from what they compute."""

    def __init__(self, old: ExecutionPlan, new: ExecutionPlan) -> None:
        self._old, self._new = lineages(old.nodes), lineages(new.nodes)
        self._old_ids = _ids_by_lineage(old, self._old)
        self._new_ids = _ids_by_lineage(new, self._new)
        self._new_sources = {node.table for node in new.sources}

    def is_another(self, before: PlanNode, after: PlanNode) -> bool:
        if after.uid is not None:
            return False
        if before.kind != after.kind or before.table != after.table:
            return True
        meaning = self._new[after.id]
        if meaning == self._old[before.id]:
            return False
        # It computes just what another one computed, which does not do so any more.
        elsewhere = self._old_ids.get(meaning, frozenset())
        return bool(elsewhere - self._new_ids.get(meaning, frozenset()))

    def is_still_there(self, node: PlanNode) -> bool:
        if node.is_source:
            return node.table in self._new_sources
        return self._old[node.id] in self._new_ids


def _ids_by_lineage(plan: ExecutionPlan, lineage: Mapping[int, str]) -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    for node in plan.nodes:
        if node.operator_id is not None:
            known = result.get(lineage[node.id], frozenset())
            result[lineage[node.id]] = known | {node.operator_id}
    return result


def _by_id(plan: ExecutionPlan) -> dict[str, PlanNode]:
    return {node.operator_id: node for node in plan.nodes if node.operator_id is not None}


def _tables(plan: ExecutionPlan) -> tuple[str, ...]:
    return tuple(node.table or node.description for node in plan.sources)


def _stateful(plan: ExecutionPlan) -> tuple[str, ...]:
    return tuple(
        str(node)
        for node in plan.nodes
        if node.has_state and not node.is_source and node.table is None
    )


def _more(these: Iterable[str], than: Iterable[str]) -> tuple[str, ...]:
    """The names that are there more often among the first, each once."""
    return tuple((Counter(these) - Counter(than)).keys())

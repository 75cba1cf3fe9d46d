"""What is done first when more is due than the limits allow, and what shares a Flink job.

The order is by benefit per byte rewritten: files that a full scan no longer opens, or that leave
the disk, for each megabyte that must be written again. What only deletes comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse_dagster.maintenance.actions import Action, ActionKind, Decision
from lakehouse_dagster.maintenance.spec import Limits
from lakehouse_dagster.sizes import size_bytes

_MEBIBYTE = 1024**2
COMPACTIONS = (ActionKind.COMPACT, ActionKind.COMPACT_FULL)


@dataclass(frozen=True)
class ActionGroup:
    """Actions that one Flink job does together: one action, or compactions of small tables."""

    actions: tuple[Action, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables concerned."""
        return tuple(action.table for action in self.actions)


@dataclass(frozen=True)
class Postponed:
    """An action that is due but does not fit into this run, and why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class RunPlan:
    """What one run does, in order, and what waits for a later one."""

    groups: tuple[ActionGroup, ...]
    postponed: tuple[Postponed, ...]


@dataclass(frozen=True)
class Spent:
    """What a run has taken of its limits already."""

    actions: int = 0
    rewrite_bytes: int = 0

    def and_for(self, groups: Iterable[ActionGroup]) -> Spent:
        """The same, and these as well."""
        chosen = [action for group in groups for action in group.actions]
        return Spent(
            self.actions + len(chosen),
            self.rewrite_bytes + sum(action.rewrite_bytes for action in chosen),
        )


def within_budget(
    decisions: Iterable[Decision], limits: Limits, *, running: int = 0, spent: Spent | None = None
) -> RunPlan:
    """Choose what a run does next of all that is due.

    Of each table only the first action that can be afforded is taken: the next is decided by what
    it leaves behind.

    Args:
        decisions: of all tables.
        limits: over all tables.
        running: actions that are under way on the cluster.
        spent: by the same run before.
    """
    chosen, postponed = _affordable([d.actions for d in decisions], limits, spent or Spent())
    groups = _grouped(chosen, size_bytes(limits.small_table))
    free = max(0, limits.concurrent - running)
    if not free:
        reason = f"{running} actions are under way, and at most {limits.concurrent} may be."
        postponed += [Postponed(a, reason) for group in groups for a in group.actions]
        groups = []
    return RunPlan(tuple(groups), tuple(postponed))


def benefit_per_mebibyte(action: Action) -> float:
    """Files less for each megabyte rewritten; what rewrites little counts as one megabyte."""
    return action.benefit / max(1.0, action.rewrite_bytes / _MEBIBYTE)


def _affordable(
    due: Iterable[Sequence[Action]], limits: Limits, spent: Spent
) -> tuple[list[Action], list[Postponed]]:
    budget = size_bytes(limits.size_a_run)
    chosen: list[Action] = []
    postponed: list[Postponed] = []
    number, taken = spent.actions, spent.rewrite_bytes
    ranked = [(_rank(actions[0]), tuple(actions)) for actions in due if actions]
    heapq.heapify(ranked)
    while ranked:
        _, (action, *others) = heapq.heappop(ranked)
        if number >= limits.actions_a_run:
            reason = f"One run does at most {limits.actions_a_run} actions."
            postponed += [Postponed(left, reason) for left in (action, *others)]
        elif taken and action.rewrite_bytes and taken + action.rewrite_bytes > budget:
            # The first one is always taken: else a table larger than the budget never is.
            better = f"{number} actions with more benefit per byte take {taken} bytes"
            postponed.append(Postponed(action, f"{better} of {budget} bytes a run."))
            if others:
                heapq.heappush(ranked, (_rank(others[0]), tuple(others)))
        else:
            chosen.append(action)
            number, taken = number + 1, taken + action.rewrite_bytes
    return chosen, postponed


def _rank(action: Action) -> tuple[float, str]:
    return -benefit_per_mebibyte(action), action.table


def _grouped(actions: Sequence[Action], small_below_bytes: int) -> list[ActionGroup]:
    """Compactions of whole small tables together, by kind; everything else alone."""
    groups: list[ActionGroup] = []
    together: dict[ActionKind, list[Action]] = {}
    for action in actions:
        small = action.rewrite_bytes < small_below_bytes
        if action.kind in COMPACTIONS and action.partitions is None and small:
            together.setdefault(action.kind, []).append(action)
        else:
            groups.append(ActionGroup((action,)))
    shared = [ActionGroup(tuple(members)) for members in together.values()]
    return sorted(
        [*groups, *shared],
        key=lambda group: -max(benefit_per_mebibyte(action) for action in group.actions),
    )

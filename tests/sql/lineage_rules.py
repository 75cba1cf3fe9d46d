"""Why the lineage of Flink's compiled plan may differ from that of the text, rule by rule.

The optimiser keeps a query's result, not its expressions. Every rule names one thing that it does,
and is asked with the plan and one difference; what no rule explains is a mistake of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.support.compiled_plan import Made, union


@dataclass(frozen=True)
class Told:
    """What we say of a query: its columns, for each whether it is at most so, and its filters."""

    columns: tuple[Made, ...]
    at_most: tuple[bool, ...]
    filters: Made


@dataclass(frozen=True)
class Difference:
    """Of one column, or of the filters: what we say and what the plan says."""

    ours: Made
    plans: Made
    at_most: bool
    told: Told
    query: str
    plan: str

    @property
    def missing(self) -> Made:
        """What the plan does not have."""
        return self.ours - self.plans


def _only_missing(difference: Difference) -> bool:
    return difference.plans < difference.ours


def _is_at_most(difference: Difference) -> bool:
    return difference.at_most and _only_missing(difference)


def _has_no_rows(difference: Difference) -> bool:
    empty = any(
        node["type"].startswith("stream-exec-values") and node.get("tuples") == []
        for node in json.loads(difference.plan)["nodes"]
    )
    return empty and _only_missing(difference)


def _is_fixed(difference: Difference) -> bool:
    """All that is missing is compared with a constant by a condition of ours."""
    return (
        _only_missing(difference)
        and difference.missing <= difference.told.filters
        and any(
            {operand["kind"] for operand in call["operands"]} == {"INPUT_REF", "LITERAL"}
            for call in _calls(difference.plan, "$=$1")
        )
    )


def _is_decorrelated(difference: Difference) -> bool:
    """Filters alone: further ones of the plan are columns that some value is made from."""
    return (
        "LATERAL (SELECT" in difference.query
        and difference.ours == difference.told.filters
        and difference.ours < difference.plans
        and difference.plans - difference.ours <= union(difference.told.columns)
    )


def _ends_at_what_is_never_null(difference: Difference) -> bool:
    """The plan has fewer COALESCEs than the text, and the text something that is never NULL."""
    return (
        _only_missing(difference)
        and ("COUNT(" in difference.query or "ROW_NUMBER(" in difference.query)
        and len(list(_calls(difference.plan, "$COALESCE$1"))) < difference.query.count("COALESCE(")
    )


class Rule(Enum):
    """The rules, each with its reason."""

    AT_MOST = "what is at most from all columns of a pattern's input is from some of them"
    NO_ROWS = "a condition can never be true, so the plan has an empty list of values instead"
    FIXED = "a condition makes a column equal to a constant, which the plan writes instead"
    NEVER_NULL = "COALESCE ends at a count or a rank, which is never NULL"
    DECORRELATED = "a LATERAL query is joined by every outer column that it names"


_RULES: dict[Rule, Callable[[Difference], bool]] = {
    Rule.AT_MOST: _is_at_most,
    Rule.NO_ROWS: _has_no_rows,
    Rule.FIXED: _is_fixed,
    Rule.NEVER_NULL: _ends_at_what_is_never_null,
    Rule.DECORRELATED: _is_decorrelated,
}


def explanation(difference: Difference) -> Rule | None:
    """The rule that explains a difference; None if there is none."""
    return next((rule for rule, explains in _RULES.items() if explains(difference)), None)


def _calls(plan: str, name: str) -> Iterator[dict[str, Any]]:
    """All calls of a function in a plan's expressions."""
    waiting: list[Any] = [json.loads(plan)["nodes"]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
            if part.get("internalName") == name and part.get("operands"):
                yield part

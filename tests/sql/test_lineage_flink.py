"""Flink is asked: our lineage of a query equals that of its compiled plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from lakehouse_dagster.errors import SqlExecutionError
from lakehouse_dagster.flink import FlinkCluster, quoting
from lakehouse_dagster.local.engines import DEFAULT_ENGINE
from lakehouse_dagster.sql.lineage import query_lineage
from lakehouse_dagster.sql.model import Certainty, ColumnOrigin
from tests.conftest import RunningFlink
from tests.sql.lineage_queries import queries
from tests.sql.lineage_rules import Difference, Rule, Told, explanation
from tests.sql.lineage_samples import AGENTS, DECLARATIONS, lookup, parsed
from tests.sql.test_lineage import QUERIES
from tests.support.compiled_plan import Made, Planner, lineage

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

STATEMENTS = 200
FEWER_STATEMENTS = 40
"""On the engines other than the default: the plans differ little."""
ALIKE = 2
"""How many statements of the same make-up may count."""

FLINK_REFUSES = {
    "expressions": "a function that it does not know",
    "names with database and catalog": "the catalog has another name there",
    "names are case sensitive": "no such column",
    "functions of no column": "$rowtime is a column of other versions",
    "fields are found by their own name": "two relations have the field",
    "a name that two relations have": "ambiguous",
    "over, written out and by name": "several windows in one query",
    "unnest": "WITH ORDINALITY is not right yet",
    "table function": "a function that it does not know",
    "table function without names": "a function that it does not know",
    "function of a table": "a function that it does not know",
    "a WITH in a WITH": "1.20 cannot read its own text of such a view",
    "a CTE that hides the table that it reads": "",
}


@pytest.fixture(scope="module")
def planner(
    flink_stack: RunningFlink, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planner]:
    folder: Path = tmp_path_factory.mktemp("plans")
    cluster = FlinkCluster(
        rest_url=flink_stack.rest_url, sql_gateway_url=flink_stack.sql_gateway_url
    )
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session("test-lineage")
        options = {"type": "paimon", "warehouse": (folder / "warehouse").as_uri()}
        session.execute(quoting.create_catalog("lineage", options))
        session.execute(AGENTS.format(catalog="lineage"))
        for declaration in DECLARATIONS:
            session.execute(declaration)
        yield Planner(session, folder)
        session.delete()


def pairs(origins: tuple[ColumnOrigin, ...]) -> Made:
    return frozenset((o.table.table if o.table else o.relation, o.column) for o in origins)


def told(query: str) -> tuple[list[str], Told]:
    """The names of a query's columns, and what we say of it."""
    found = query_lineage(parsed(query), lookup)
    assert found.columns is not None
    assert all(column.certainty is not Certainty.UNKNOWN for column in found.columns)
    return [column.column for column in found.columns], Told(
        tuple(pairs(column.origins) for column in found.columns),
        tuple(column.certainty is Certainty.AT_MOST for column in found.columns),
        pairs(found.row_filters),
    )


def explained(query: str, planner: Planner) -> set[Rule]:
    """Compare with Flink; return the rules that explain the differences, if there are any.

    Raises:
        AssertionError: There is a difference without a rule.
    """
    names, plan = planner.compile(query)
    (planned,) = lineage(plan)
    our_names, ours = told(query)
    assert our_names == names, query
    compared = [*zip(ours.columns, planned.columns, ours.at_most, strict=True)]
    compared.append((ours.filters, planned.filters, False))
    rules = set()
    for mine, flinks, at_most in compared:
        if mine == flinks:
            continue
        rule = explanation(Difference(mine, flinks, at_most, ours, query, plan))
        assert rule is not None, f"We say {sorted(mine)}, Flink {sorted(flinks)}, of: {query}"
        rules.add(rule)
    return rules


def test_generated_statements_have_the_lineage_of_the_compiled_plan(
    planner: Planner, flink_engine: str
) -> None:
    statements = STATEMENTS if flink_engine == DEFAULT_ENGINE else FEWER_STATEMENTS
    made_up: Counter[tuple[str, ...]] = Counter()
    outcome: Counter[str] = Counter()
    kinds: Counter[str] = Counter()

    @settings(
        max_examples=statements,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(queries())
    def compare(made: tuple[str, tuple[str, ...]]) -> None:
        query, parts = made
        assume(made_up[parts] < ALIKE)
        try:
            rules = explained(query, planner)
        except SqlExecutionError:
            outcome["refused by Flink"] += 1
            assume(False)
        made_up[parts] += 1
        kinds.update(set(parts))
        outcome.update([rule.name for rule in rules] or ["equal"])

    compare()
    print(f"{made_up.total()} statements, {len(made_up)} make-ups: {dict(outcome)}; {dict(kinds)}")
    assert made_up.total() >= statements
    assert outcome["equal"] >= statements * 0.85
    assert len(kinds) == 18 or statements < STATEMENTS


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in FLINK_REFUSES])
def test_the_answers_written_by_hand_are_those_of_the_compiled_plan(
    planner: Planner, name: str
) -> None:
    query = QUERIES[name][0].replace(" agents ", " lineage.`default`.agents ")
    explained(query, planner)

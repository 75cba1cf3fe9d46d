"""The asset checks of maintenance, run by hand or told by the maintenance sensor."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance import bounds
from lakehouse_dagster.maintenance.bounds import DESCRIPTIONS, check_names
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.launchpad import Launchpads
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.streaming.checks import ERROR, WARN, CheckOutcome
from lakehouse_dagster.streaming.events import as_evaluation, as_result
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name

if TYPE_CHECKING:
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.maintenance.survey import Looked


def evaluate(
    keeper: Keeper, policy: MaintenancePolicy, table: str, looked: "Looked | LakehouseError | None"
) -> Mapping[str, CheckOutcome]:
    """The outcome of each check of a table; one that cannot be looked at fails them all."""
    of_table = policy.for_table(table)
    if looked is None:
        absent = CheckOutcome(True, WARN, "There is no such table yet.")
        return dict.fromkeys(check_names(of_table), absent)
    if isinstance(looked, LakehouseError):
        failed = CheckOutcome(False, ERROR, f"The table cannot be looked at: {looked.message}")
        return dict.fromkeys(check_names(of_table), failed)
    return bounds.outcomes(looked, of_table, keeper.runtime.clock.now())


def evaluation(
    graph: AssetGraph,
    table: str,
    name: str,
    outcome: CheckOutcome,
    launchpads: Launchpads | None,
) -> dg.AssetCheckEvaluation:
    """An outcome as Dagster shows it, with a link to the job that mends what a check finds."""
    links = launchpads.link(name, table) if launchpads is not None else {}
    return as_evaluation(graph.key(table), name, outcome, links)


def maintenance_checks(
    keeper: Keeper, policy: MaintenancePolicy, graph: AssetGraph, tables: Sequence[str]
) -> list[dg.AssetChecksDefinition]:
    """The checks of all maintained tables, in one op: Dagster loads that many times faster."""
    names = {table: check_names(policy.for_table(table)) for table in tables}
    if not any(names.values()):
        return []

    @dg.multi_asset_check(
        name=f"{dagster_name(keeper.runtime.lakehouse)}_kept_in_shape",
        specs=[
            dg.AssetCheckSpec(name, asset=graph.key(table), description=DESCRIPTIONS[name])
            for table, of_table in names.items()
            for name in of_table
        ],
        # Whoever materialises some tables runs the checks of those.
        can_subset=True,
    )
    def kept_in_shape(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from lakehouse_dagster.maintenance.survey import survey

        launchpads = Launchpads.of_run(context.run, keeper.runtime.lakehouse)
        selected = context.selected_asset_check_keys
        chosen = {
            table: [
                name for name in of_table if dg.AssetCheckKey(graph.key(table), name) in selected
            ]
            for table, of_table in names.items()
        }
        wanted = [table for table, of_table in chosen.items() if of_table]
        for table, looked in survey(keeper, policy, wanted):
            outcomes = evaluate(keeper, policy, table, looked)
            for name in chosen[table]:
                told = evaluation(graph, table, name, outcomes[name], launchpads)
                yield as_result(told)

    return [kept_in_shape]

"""The asset checks of maintenance, run by hand or told by the maintenance sensor."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import dagster as dg

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance.bounds import DESCRIPTIONS, check_names, outcomes
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.streaming.checks import ERROR, CheckOutcome
from lakehouse_dagster.streaming.events import as_result
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name

if TYPE_CHECKING:
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.maintenance.survey import Looked


def evaluate(
    keeper: Keeper, policy: MaintenancePolicy, table: str, looked: "Looked | LakehouseError"
) -> Mapping[str, CheckOutcome]:
    """The outcome of each check of a table; one that cannot be looked at fails them all."""
    of_table = policy.for_table(table)
    if isinstance(looked, LakehouseError):
        failed = CheckOutcome(False, ERROR, f"The table cannot be looked at: {looked.message}")
        return dict.fromkeys(check_names(of_table), failed)
    return outcomes(looked, of_table, keeper.runtime.clock.now())


def evaluation(key: dg.AssetKey, name: str, outcome: CheckOutcome) -> dg.AssetCheckEvaluation:
    """An outcome as Dagster shows it."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=name,
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity[outcome.severity_word],
        description=outcome.text,
        metadata=dict(outcome.figures),
    )


def maintenance_checks(
    keeper: Keeper, policy: MaintenancePolicy, graph: AssetGraph, tables: tuple[str, ...]
) -> list[dg.AssetChecksDefinition]:
    """The checks of all maintained tables."""
    return [
        _checks_of(keeper, policy, graph.key(table), table)
        for table in tables
        if check_names(policy.for_table(table))
    ]


def _checks_of(
    keeper: Keeper, policy: MaintenancePolicy, key: dg.AssetKey, table: str
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{dagster_name(keeper.runtime.lakehouse)}_maintenance__{dagster_name(table)}",
        specs=[
            dg.AssetCheckSpec(name, asset=key, description=DESCRIPTIONS[name])
            for name in check_names(policy.for_table(table))
        ],
        can_subset=True,
    )
    def kept_in_shape(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from lakehouse_dagster.maintenance.situation import past_of_tables
        from lakehouse_dagster.maintenance.survey import look_at

        looked: Looked | LakehouseError
        try:
            looked = look_at(keeper, policy.for_table(table), table, past_of_tables(keeper))
        except LakehouseError as error:
            looked = error
        chosen = {check.name for check in context.selected_asset_check_keys}
        for name, outcome in evaluate(keeper, policy, table, looked).items():
            if name in chosen:
                yield as_result(evaluation(key, name, outcome))

    return kept_in_shape

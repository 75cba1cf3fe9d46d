"""Which assets are partitioned, and what their dependencies on each other mean."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import dagster as dg

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.paimon import TableSchema
from lakehouse_dagster.sql.model import TableDefinition
from lakehouse_dagster.streaming.partition_keys import PartitionKeys
from lakehouse_dagster.streaming.table_settings import TableSettings, settings_of


def partition_keys(
    table: str,
    asset: dg.AssetKey,
    settings: Mapping[str, TableSettings],
    definition: TableDefinition | None,
    in_catalog: TableSchema | None,
) -> PartitionKeys | None:
    """The partitions of a table's asset; None where none were declared for it.

    A pattern's partitions hold for the partitioned tables among those that it names.

    Args:
        table: ``database.table``.
        asset: the key of its asset.
        settings: of the project's tables, by name and pattern.
        definition: its ``CREATE TABLE``, where a script has it.
        in_catalog: what the last discovery found of it.

    Raises:
        ConfigurationError: what was declared does not fit the table.
    """
    declared = settings_of(settings, table).partitions
    if declared is None:
        return None
    readable = definition is not None and (definition.columns_known or definition.partition_keys)
    known = definition if readable else in_catalog
    if known is None:
        raise ConfigurationError(
            f"tables.{table}.partitions is given, but the columns of {table} are not known.",
            remedy="Let a script declare the table with all its columns, or run: "
            "lakehouse discover",
        )
    by_name = table in settings and settings[table].partitions is not None
    if not known.partition_keys and not by_name:
        return None
    types = {column.name: column.type for column in known.columns}
    columns = {column: types.get(column, "") for column in known.partition_keys}
    return PartitionKeys(table, declared, columns, asset.to_user_string())


def dependency(
    above: dg.AssetKey,
    of_above: dg.PartitionsDefinition | None,
    of_below: dg.PartitionsDefinition | None,
) -> dg.AssetDep:
    """A dependency between two tables of the project, whatever the partitions of both are.

    Dagster's own choice fails to load for most pairs of different kinds, and refuses to look
    before the beginning of the upstream table. A stream may read any partition, so where time does
    not tell which, all are meant.
    """
    if of_above is None or of_below is None or of_above == of_below:
        return dg.AssetDep(above)
    times = dg.TimeWindowPartitionsDefinition
    if isinstance(of_above, times) and isinstance(of_below, times):
        with warnings.catch_warnings():  # Dagster calls this option beta at every use
            warnings.simplefilter("ignore", dg.BetaWarning)
            same_time = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
        return dg.AssetDep(above, partition_mapping=same_time)
    return dg.AssetDep(above, partition_mapping=dg.AllPartitionMapping())

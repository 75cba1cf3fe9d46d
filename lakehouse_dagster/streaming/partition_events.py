"""Partitions as Dagster sees them: their events, and the check that names those it cannot see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import dagster as dg

from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.streaming.cursor import in_turn
from lakehouse_dagster.streaming.events import DATA_VERSION, as_result
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.partition_keys import PartitionKeys, in_words
from lakehouse_dagster.streaming.partition_progress import (
    OUTSIDE_NAMED,
    PartitionCursor,
    PartitionReader,
    Pending,
    due,
    outside_now,
    room_for_each,
    shared_out,
    told,
)
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import ProgressPolicy

PARTITIONS_OUTSIDE = "partitions_outside"
NAMED = 10
"""At most so many partitions are named in a text."""
READING_SECONDS = 15
"""After so long the tables that are left are read in the next tick: Dagster waits 60 s for one."""
EVENTS_AT_ONCE = 200
"""So many events of partitions are asked for at once."""


@dataclass(frozen=True)
class PartitionNews:
    """What one tick tells of partitions; ``cursors`` are kept once it was told."""

    events: tuple[dg.AssetMaterialization, ...]
    checks: tuple[dg.AssetCheckEvaluation, ...]
    cursors: Mapping[str, PartitionCursor]
    problems: Mapping[str, str]
    left_over: int


class PartitionReporter:
    """Turns what changed in partitioned tables into events; lives as long as its sensor."""

    def __init__(self, runtime: Runtime, graph: AssetGraph, policy: ProgressPolicy) -> None:
        self._runtime = runtime
        self._graph = graph
        self._policy = policy
        self._reader = PartitionReader(policy)
        self._turn = 0

    def news(
        self, instance: dg.DagsterInstance, cursors: Mapping[str, PartitionCursor], now: datetime
    ) -> PartitionNews:
        """The events of the partitions that are due, upstream tables first.

        Dynamic partitions are added to the instance here: of what a sensor returns, Dagster would
        record the events before it adds the partitions.
        """
        after, problems = self._caught_up(instance, cursors, now)
        waiting = {
            table: due(after[table], keys, now=now, policy=self._policy)
            for table, keys in self._graph.partitions.items()
        }
        chosen = shared_out(waiting, self._policy.partition_events_per_tick)
        events: list[dg.AssetMaterialization] = []
        for table, keys in chosen.items():
            events += self._events(instance, table, keys, after[table].pending)
            after[table] = told(after[table], keys)
        checks: list[dg.AssetCheckEvaluation] = []
        for table, cursor in after.items():
            if cursor.seen and cursor.outside != cursor.outside_told:
                checks.append(self.outside(table, cursor.outside, cursor.outside_count))
                after[table] = cursor.model_copy(update={"outside_told": cursor.outside})
        left_over = sum(map(len, waiting.values())) - sum(map(len, chosen.values()))
        return PartitionNews(tuple(events), tuple(checks), after, problems, left_over)

    def outside(self, table: str, names: Sequence[str], count: int) -> dg.AssetCheckEvaluation:
        """The result of looking for partitions that the definition does not have."""
        return outside_evaluation(self._graph.key(table), names, count)

    def _caught_up(
        self, instance: dg.DagsterInstance, cursors: Mapping[str, PartitionCursor], now: datetime
    ) -> tuple[dict[str, PartitionCursor], dict[str, str]]:
        tables = self._graph.partitions
        after = {table: cursors.get(table, PartitionCursor()) for table in tables}
        problems: dict[str, str] = {}
        if not tables:
            return after, problems
        catalog = self._runtime.catalog.open()
        enough = self._runtime.clock.deadline(READING_SECONDS)
        self._turn += 1
        # Each tick begins with another table, so that none waits for ever behind busy ones.
        for table in in_turn(list(tables), self._turn, len(tables) + 1):
            asset = self._graph.key(table)
            try:
                after[table] = self._reader.catch_up(
                    catalog.table(table),
                    tables[table],
                    after[table],
                    now=now,
                    room=room_for_each(len(tables)),
                    known=partial(instance.get_materialized_partitions, asset),
                    enough=enough,
                )
            except CatalogError as error:
                problems[table] = error.message
        return after, problems

    def _events(
        self,
        instance: dg.DagsterInstance,
        table: str,
        keys: Sequence[str],
        pending: Mapping[str, Pending],
    ) -> list[dg.AssetMaterialization]:
        """The events of these partitions, without those that Dagster has already."""
        asset, of_table = self._graph.key(table), self._graph.partitions[table]
        versions = _versions(instance, asset, keys)
        fresh = [key for key in keys if versions.get(key) != str(pending[key].snapshot)]
        dynamic = of_table.dynamic(fresh)
        if dynamic is not None and fresh:
            instance.add_dynamic_partitions(*dynamic)
        return [
            partition_materialization(asset, of_table, key, pending[key].snapshot, pending[key])
            for key in fresh
        ]


def partition_materialization(
    asset: dg.AssetKey,
    keys: PartitionKeys,
    key: str,
    snapshot: int,
    changes: Pending | None = None,
) -> dg.AssetMaterialization:
    """The event of one partition; its data version is the newest snapshot that changed it."""
    metadata: dict[str, dg.MetadataValue] = {
        "snapshot": dg.MetadataValue.int(snapshot),
        "paimon_partition": dg.MetadataValue.text(in_words(keys.partition_of(key))),
    }
    if changes is not None:
        metadata["changed_at"] = dg.MetadataValue.timestamp(changes.changed_at)
        metadata["late_data"] = dg.MetadataValue.bool(changes.late)
    return dg.AssetMaterialization(
        asset_key=asset,
        partition=keys.event_key(key),
        description=f"Snapshot {snapshot}.",
        metadata=metadata,
        tags={DATA_VERSION: str(snapshot)},
    )


def _versions(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Sequence[str]
) -> dict[str, str | None]:
    """The data version of the newest event of each partition that has one."""
    versions: dict[str, str | None] = {}
    wanted, cursor = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=keys), None
    while True:
        page = instance.fetch_materializations(wanted, limit=EVENTS_AT_ONCE, cursor=cursor)
        for event in (record.asset_materialization for record in page.records):
            if event is not None and event.partition is not None:
                versions.setdefault(event.partition, (event.tags or {}).get(DATA_VERSION))
        if not page.has_more or len(versions) == len(keys):
            return versions
        cursor = page.cursor


def outside_evaluation(
    asset: dg.AssetKey, names: Sequence[str], count: int
) -> dg.AssetCheckEvaluation:
    """Whether all partitions of a table can be seen in Dagster; some of the others by name."""
    if not names:
        text = "Every partition of the table is one of the asset's."
    else:
        more = f" and {count - NAMED} more" if count > NAMED else ""
        many = f"at least {count}" if count > OUTSIDE_NAMED else str(count)
        text = (
            f"{many} partition{'s' if count > 1 else ''} of the table cannot be seen in Dagster, "
            "because the definition does not have "
            f"{'them' if count > 1 else 'it'}: {', '.join(names[:NAMED])}{more}."
        )
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=PARTITIONS_OUTSIDE,
        passed=not names,
        severity=dg.AssetCheckSeverity.WARN,
        description=text,
        metadata={"partitions_outside": count},
    )


def outside_checks(runtime: Runtime, graph: AssetGraph) -> list[dg.AssetChecksDefinition]:
    """The check of each partitioned asset, which can also be run by hand."""
    return [_outside_check(runtime, graph.key(t), t, keys) for t, keys in graph.partitions.items()]


def _outside_check(
    runtime: Runtime, asset: dg.AssetKey, table: str, keys: PartitionKeys
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        name=PARTITIONS_OUTSIDE,
        asset=asset,
        description="Every partition of the table is one of the asset's.",
    )
    def partitions_outside() -> dg.AssetCheckResult:
        found = outside_now(runtime.catalog.open().table(table), keys, runtime.clock.now())
        return as_result(outside_evaluation(asset, found, len(found)))

    return partitions_outside

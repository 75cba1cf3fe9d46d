"""How many rows and keys each partition of a table has, counted by a batch query of Flink's."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lakehouse_dagster.flink import identifier, qualified
from lakehouse_dagster.maintenance.actions import Partition
from lakehouse_dagster.maintenance.flink_calls import gateway_session
from lakehouse_dagster.maintenance.held import HeldTables
from lakehouse_dagster.paimon.file_facts import TableFacts

_SECONDS = 3600.0


def row_counts(
    held: HeldTables, facts: TableFacts, log: logging.Logger
) -> dict[Partition, tuple[int, int]]:
    """Rows and distinct keys by partition; a table without partitions has one, ``()``.

    More rows than keys are rows that exist twice. Without a primary key both numbers are the rows.
    """
    schema = held.runtime.catalog.open().table(facts.table).schema()
    text = counting(facts.table, facts.partition_keys, schema.primary_key)
    with gateway_session(held.runtime, f"counting {facts.table}", log) as session:
        result = session.execute(
            text,
            config={"execution.runtime-mode": "batch"},
            timeout_seconds=_SECONDS,
            on_wait=held.runtime.clock.on_wait,
        )
    return {
        tuple(
            (column, None if value is None else str(value))
            for column, value in zip(facts.partition_keys, row, strict=False)
        ): (int(row[-2] or 0), int(row[-1] or 0))
        for row in result.rows
    }


def counting(table: str, partition_keys: Sequence[str], primary_key: Sequence[str]) -> str:
    """The query: partition columns, rows, distinct keys."""
    name = qualified(*table.split(".", 1))
    by = [identifier(column) for column in partition_keys]
    counted = name
    columns = [*by, "COUNT(*)", "COUNT(*)"]
    if primary_key:
        key = ", ".join(dict.fromkeys([*by, *map(identifier, primary_key)]))
        counted = f"(SELECT {key}, COUNT(*) AS `n` FROM {name} GROUP BY {key})"  # noqa: S608
        columns = [*by, "SUM(`n`)", "COUNT(*)"]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    return f"SELECT {', '.join(columns)} FROM {counted}{group}"  # noqa: S608

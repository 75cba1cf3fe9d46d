"""Facts as the tests of decisions need them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from lakehouse_dagster.paimon.file_facts import BucketFacts, TableFacts, TableKind

NOW = datetime(2026, 11, 30, 3, 30, tzinfo=timezone.utc)
MIB = 1024**2


def bucket(number: int = 0, partition: str | None = "", **changes: Any) -> BucketFacts:
    """One file of 100 MiB on the highest level, but for the changes."""
    made = BucketFacts(
        partition=() if partition == "" else (("dt", partition),),
        bucket=number,
        files=1,
        size_bytes=100 * MIB,
        records=1000,
        level0_files=0,
        level0_bytes=0,
        small_files=0,
        small_bytes=0,
        settled_bytes=100 * MIB,
        levels=1,
    )
    return replace(made, **changes)


def table(
    *buckets: BucketFacts, kind: TableKind = TableKind.PRIMARY_KEY, **more: Any
) -> TableFacts:
    """A table whose only snapshot is a minute old."""
    partitioned = any(b.partition for b in buckets)
    made = TableFacts(
        "ods.orders",
        kind=kind,
        snapshot_id=100,
        schema_id=0,
        buckets=buckets,
        total_buckets=2,
        partition_keys=("dt",) if partitioned else (),
        oldest_snapshot_id=100,
        oldest_snapshot_at=NOW - timedelta(minutes=1),
        newest_snapshot_at=NOW - timedelta(minutes=1),
        snapshot_count=1,
        manifest_files=3,
    )
    return replace(made, **more)

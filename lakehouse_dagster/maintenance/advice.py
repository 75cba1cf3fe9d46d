"""What a person could do about a table; nothing here is done by itself."""

from __future__ import annotations

import math

from lakehouse_dagster.maintenance.actions import ActionKind, Situation
from lakehouse_dagster.paimon.file_facts import POSTPONED_BUCKETS, TableFacts

RESTARTS = 3
"""So many restarts of writers are worth a word."""
BUCKET_BYTES = 1024**3
"""A bucket is read, written and compacted by one task: Paimon's page on data distribution advises
about 1 GB at most."""


def advice_on(facts: TableFacts, situation: Situation) -> tuple[str, ...]:
    """All advice on a table."""
    return (
        *on_its_compaction_job(facts, situation),
        *_on_restarts(facts, situation),
        *_on_its_buckets(facts),
    )


def on_its_compaction_job(facts: TableFacts, situation: Situation) -> tuple[str, ...]:
    """Why a table does not get the compaction that is declared, ``compaction: dedicated``."""
    table, job = facts.table, situation.compaction_job
    if job is None and situation.compacts_by_itself:
        return (
            "Its compaction job runs on, though compaction: dedicated is declared no more. Run "
            f"`lakehouse tables undedicate {table}` to end it, or declare it again.",
        )
    if job is None:
        return ()
    if facts.total_buckets == POSTPONED_BUCKETS:
        return (
            "compaction: dedicated is declared, but only batch compaction puts rows into the "
            "buckets of a table with 'bucket' = '-2': it goes on. Write compaction: batch.",
        )
    if not facts.write_only:
        return (
            "compaction: dedicated is declared, but its writers compact it still: run `lakehouse "
            f"tables dedicate {table}`, or write compaction: batch.",
        )
    if not situation.compacts_by_itself:
        return (
            f"Nobody compacts it: it is write-only, and its compaction job {job} is not to run. "
            f"Run `lakehouse jobs start {job}`, or `lakehouse tables undedicate {table}`.",
        )
    return ()


def _on_restarts(facts: TableFacts, situation: Situation) -> tuple[str, ...]:
    """What batch compactions cost the writers beside which they run."""
    kinds = (ActionKind.COMPACT, ActionKind.COMPACT_FULL)
    restarts = sum(situation.of(kind).writer_restarts for kind in kinds)
    if restarts < RESTARTS or not facts.compacted_by_writers:
        return ()
    return (
        f"Batch compactions on record made its writers restart {restarts} times: compaction: "
        "dedicated spares them that; higher bounds in compact, or a window (cron), make it rarer.",
    )


def _on_its_buckets(facts: TableFacts) -> tuple[str, ...]:
    if facts.total_buckets <= 0 or not facts.buckets:
        return ()
    large = [bucket for bucket in facts.buckets if bucket.size_bytes > BUCKET_BYTES]
    if not large:
        return ()
    largest = max(bucket.size_bytes for bucket in large)
    wanted = math.ceil(facts.total_buckets * largest / BUCKET_BYTES)
    return (
        f"{len(large)} of {len(facts.buckets)} buckets hold more than 1 GB, the largest "
        f"{largest / BUCKET_BYTES:.1f} GB: about {wanted} buckets instead of "
        f"{facts.total_buckets} would hold 1 GB each (lakehouse tables rescale {facts.table} "
        f"--buckets {wanted}).",
    )

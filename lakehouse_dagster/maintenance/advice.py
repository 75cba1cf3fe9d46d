"""What a person could do about the layout of a table; nothing here is done by itself."""

from __future__ import annotations

import math

from lakehouse_dagster.paimon.file_facts import TableFacts

BUCKET_BYTES = 1024**3
"""A bucket is read, written and compacted by one task: Paimon's page on data distribution advises
about 1 GB at most."""


def advice_on(facts: TableFacts) -> tuple[str, ...]:
    """Advice on a table's number of buckets, if it has a fixed one."""
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

"""Compaction jobs: a streaming job that merges files, so that the writers of a table need not.

It is a CALL of Paimon's that never ends. It keeps no state that matters: whatever it has not
merged, or merged without committing, is found in the table again.
"""

from __future__ import annotations

from lakehouse_dagster.errors import CatalogError, StreamingJobError
from lakehouse_dagster.streaming.runtime import HeldJob

WRITE_ONLY = "write-only"
_POSTPONED = "-2"


def refuse_unfit_tables(held: HeldJob) -> None:
    """Raise ``StreamingJobError`` if a table's writers compact it themselves, or nobody can so.

    Two that compact one table undo each other's work, and each time the writer restarts.
    """
    catalog = held.runtime.catalog.open()
    for table in held.job.compacts:
        try:
            options = catalog.table(table).schema().options
        except CatalogError:
            continue  # Flink may reach what cannot be read from here
        if options.get("bucket") == _POSTPONED:
            raise StreamingJobError(
                f"{held.name} cannot compact {table}: rows of a table with 'bucket' = '-2' are put "
                "into buckets by batch compaction only.",
                remedy="Write compaction: batch for it.",
            )
        if options.get(WRITE_ONLY, "false").lower() != "true":
            raise StreamingJobError(
                f"{held.name} is not started beside writers of {table} that compact it "
                "themselves: the table is not 'write-only'.",
                remedy=f"Run `lakehouse tables dedicate {table}`, which makes it so and keeps "
                "its writers' state.",
            )

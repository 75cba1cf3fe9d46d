"""Tables as people name them: those that exist, and what to say of those that do not."""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse_dagster.errors import TableNotFoundError
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.listing import tables_meant


def existing(lake: LoadedLakehouse, names: Iterable[str]) -> tuple[str, ...]:
    """The tables, each once; raises ``TableNotFoundError`` for the first that does not exist."""
    chosen = tuple(dict.fromkeys(names))
    for name in absent(lake, chosen):
        if name not in lake.graph.tables:
            raise TableNotFoundError(
                f"There is no table {name}.",
                remedy=tables_meant(name, lake.graph.tables),
            )
        writers = [n for n, job in lake.runtime.jobs.items() if name in job.sink_keys]
        raise TableNotFoundError(
            f"Scripts declare the table {name}, but the catalog has none: it was not made yet, or "
            "dropped.",
            remedy=f"It is made when a job that writes it starts: {', '.join(sorted(writers))}."
            if writers
            else None,
        )
    return chosen


def absent(lake: LoadedLakehouse, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the tables that the catalog does not have."""
    catalog = lake.runtime.catalog.open()
    return tuple(name for name in names if not catalog.table(name).exists())

"""Links from a table's page to the launchpads of the jobs that maintain it, filled in for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

import dagster as dg

from lakehouse_dagster.maintenance.bounds import (
    COMPACTION_BACKLOG,
    EXPIRY_LAG,
    ORPHAN_FILES,
    SMALL_FILES,
)
from lakehouse_dagster.streaming.names import dagster_name

_HELPS = {
    SMALL_FILES: "compact",
    COMPACTION_BACKLOG: "compact",
    EXPIRY_LAG: "expire",
    ORPHAN_FILES: "clean_up",
}
"""By check: the job that mends what it finds."""


@dataclass(frozen=True)
class Launchpads:
    """Those of one code location; only a tick or a run knows how Dagster calls that."""

    repository: str
    location: str
    lakehouse: str

    @classmethod
    def of_tick(cls, context: dg.SensorEvaluationContext, lakehouse: str) -> Launchpads | None:
        """As a sensor's tick knows them; None in a tick that no daemon made."""
        origin, repository = context.code_location_origin, context.repository_name
        if origin is None or repository is None:
            return None
        return cls(repository, origin.location_name, lakehouse)

    @classmethod
    def of_run(cls, run: dg.DagsterRun, lakehouse: str) -> Launchpads | None:
        """As a run knows them; None in one that was not launched from a code location."""
        if run.remote_job_origin is None:
            return None
        origin = run.remote_job_origin.repository_origin
        return cls(origin.repository_name, origin.code_location_origin.location_name, lakehouse)

    def link(self, check: str, table: str) -> dict[str, dg.MetadataValue]:
        """Metadata with the launchpad of the job that mends what a check finds at a table.

        The address is relative to the page that shows it.
        """
        job = f"{dagster_name(self.lakehouse)}_{_HELPS[check]}"
        # A person reads it: in the address, and in the launchpad.
        tables = f"{{tables: [{json.dumps(table)}]}}"
        config = quote_plus(f"{{ops: {{{job}_tables: {{config: {tables}}}}}}}", safe=":{}[],")
        place = f"{quote(self.repository)}@{quote(self.location, safe='')}"
        address = f"/locations/{place}/jobs/{job}/playground/setup?config={config}"
        return {f"launch {job}": dg.MetadataValue.url(address)}

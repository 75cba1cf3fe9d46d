"""The code location that the demo and the README run: the work-order pipeline."""

import os
from pathlib import Path

import dagster as dg

from lakehouse_dagster import (
    ExpireSpec,
    FlinkCluster,
    Lakehouse,
    MaintenancePolicy,
    PaimonCatalog,
    TablePolicy,
)

lake = Lakehouse(
    catalog=PaimonCatalog(warehouse=os.environ.get("LAKE_WAREHOUSE", "warehouse")),
    flink=FlinkCluster(
        rest_url=os.environ.get("FLINK_REST_URL", "http://localhost:8081"),
        sql_gateway_url=os.environ.get("FLINK_SQL_GATEWAY_URL", "http://localhost:8083"),
    ),
    # Snapshots go after a few minutes, so that one sees it happen. The story's writers compact
    # their tables themselves, at every checkpoint: they keep a lookup changelog.
    maintenance=MaintenancePolicy(
        TablePolicy(compact=None, expire=ExpireSpec(keep_at_least=20, keep_for="5m"))
    ),
)


@dg.definitions
def defs() -> dg.Definitions:
    """Made when Dagster or a command asks: the modules beside need no scripts to be read."""
    return lake.definitions(scripts=Path(__file__).parent / "sql", start="on_load")

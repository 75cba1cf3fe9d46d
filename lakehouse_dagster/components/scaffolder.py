"""What ``dg scaffold defs`` writes: a ``defs.yaml`` and one script, both working as they are."""

from __future__ import annotations

from typing import Any

import dagster as dg

_ATTRIBUTES = {
    "catalog": {"warehouse": '{{ env("LAKE_WAREHOUSE", "warehouse") }}'},
    "flink": {
        "rest_url": '{{ env("FLINK_REST_URL", "http://localhost:8081") }}',
        "sql_gateway_url": '{{ env("FLINK_SQL_GATEWAY_URL", "http://localhost:8083") }}',
    },
    "scripts": "sql/**/*.sql",
}

_SCRIPT = """\
-- Ordinary Flink SQL. The table becomes an asset, the INSERT a streaming job, which runs once you
-- materialise the asset.

CREATE DATABASE IF NOT EXISTS demo;

CREATE TABLE IF NOT EXISTS demo.tick (
  id      BIGINT COMMENT 'counts from 1',
  seen_at TIMESTAMP(3),
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1');

CREATE TEMPORARY TABLE ticks (
  id      BIGINT,
  seen_at AS CAST(CURRENT_TIMESTAMP AS TIMESTAMP(3))
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '1',
  'fields.id.kind' = 'sequence',
  'fields.id.start' = '1',
  'fields.id.end' = '100000'
);

SET 'pipeline.name' = 'demo_tick';
SET 'execution.checkpointing.interval' = '10s';

INSERT INTO demo.tick
SELECT id, seen_at FROM ticks;
"""


_PYTHON = """\
import os

import dagster as dg
from lakehouse_dagster import FlinkCluster, LakehouseComponent, PaimonCatalog


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> LakehouseComponent:
    return LakehouseComponent(
        catalog=PaimonCatalog(warehouse=os.environ.get("LAKE_WAREHOUSE", "warehouse")),
        flink=FlinkCluster(
            rest_url=os.environ.get("FLINK_REST_URL", "http://localhost:8081"),
            sql_gateway_url=os.environ.get("FLINK_SQL_GATEWAY_URL", "http://localhost:8083"),
        ),
        scripts=("sql/**/*.sql",),
    )
"""


class LakehouseScaffolder(dg.Scaffolder[Any]):
    """Writes a lakehouse whose scripts lie in the folder ``sql``, with one that runs anywhere."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write ``defs.yaml`` (or ``component.py``) and ``sql/demo_tick.sql``."""
        if request.scaffold_format == "python":
            (request.target_path / "component.py").write_text(_PYTHON, encoding="utf-8")
        else:
            dg.scaffold_component(request, _ATTRIBUTES)
        folder = request.target_path if request.target_path.is_dir() else request.target_path.parent
        script = folder / "sql" / "demo_tick.sql"
        if not script.exists():
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(_SCRIPT, encoding="utf-8")

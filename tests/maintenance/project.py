"""A project with one maintained table, ``m.t``, for tests that need it in processes of its own."""

from __future__ import annotations

from pathlib import Path

from tests.maintenance.cases import T, small_files
from tests.maintenance.tables import Tables
from tests.support.laboratory import Laboratory

ROOT = Path(__file__).parents[2]
ROWS = [(str(number),) for number in range(6)]
_MODULE = """\
from dataclasses import replace
from lakehouse_dagster import *
from tests.support.laboratory import QUICK

defs = Lakehouse(
    catalog=PaimonCatalog({folder!r} + "/warehouse"),
    flink=FlinkCluster({rest_url!r}, {gateway_url!r}),
    name="lake",
    system_database=SystemDatabase("sqlite:///" + {folder!r} + "/lakehouse.db"),
    supervision=replace(QUICK, lease="4s"),
    maintenance={policy},
).definitions({folder!r} + "/sql", base_folder={folder!r})
"""
_SCRIPT = """\
CREATE TABLE IF NOT EXISTS m.t (id STRING NOT NULL) WITH ('bucket' = '-1');
CREATE TEMPORARY TABLE nothing (id STRING) WITH ('connector' = 'datagen');
SET 'pipeline.name' = '{job}';
INSERT INTO m.t SELECT id FROM nothing;
"""


def write_project(lab: Laboratory, module: str, policy: str = "MaintenancePolicy()") -> Tables:
    """Write the project into the laboratory's folder; its table has six rows in six small files."""
    lab.lakehouse = "lake"
    (lab.folder / "sql").mkdir()
    (lab.folder / "sql" / "t.sql").write_text(_SCRIPT.format(job=lab.job))
    (lab.folder / f"{module}.py").write_text(
        _MODULE.format(
            folder=str(lab.folder),
            rest_url=lab.rest_url,
            gateway_url=lab.sql_gateway_url,
            policy=policy,
        )
    )
    tables = Tables(lab)
    small_files(tables, T)
    return tables

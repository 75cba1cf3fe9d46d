"""Flink takes what the reader makes of messy scripts: each job's setup, then its statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.flink import FlinkCluster, create_catalog, use_catalog
from lakehouse_dagster.flink.execution_plan import explain
from lakehouse_dagster.sql import as_one_statement, substitute
from lakehouse_dagster.sql.model import Project
from tests.conftest import RunningFlink
from tests.sql.in_process import read_files

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

INIT = """Flink SQL> SET table.sql-dialect=default;
[INFO] Session property has been set.
CREATE DATABASE IF NOT EXISTS ods
USE ods
CREATE TEMPORARY TABLE ev (id BIGINT, name STRING, up AS UPPER(name), p AS PROCTIME())
WITH ('connector' = 'datagen', ${RATE})
"""
SCRIPTS = {
    "prompts": """$ ./bin/sql-client.sh -f x.sql
# tables, don't drop
Flink SQL> CREATE TABLE IF NOT EXISTS {{ table }} (id BIGINT, name STRING)
> WITH ('bucket' = '${BUCKETS:--1}');
SOURCE 'included/view.sql';
Flink SQL> INSERT INTO {{ table }}
> SELECT id, name FROM v
> WHERE id > 1;
[INFO] Submitting SQL update statement to the cluster...
""",
    "sets": """BEGIN STATEMENT SET;
SET 'pipeline.name' = 'both';
CREATE TABLE IF NOT EXISTS b1 (id BIGINT, up STRING);
CREATE TABLE IF NOT EXISTS b2 LIKE b1 (EXCLUDING OPTIONS);
INSERT INTO b1 SELECT id, CASE WHEN id > 1 THEN up END FROM ev
INSERT INTO b2 SELECT id, up FROM ev
END;
""",
    "own_catalog": """CREATE TABLE src (i INT) WITH ('connector' = 'datagen');
CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 'file:///nowhere');
USE CATALOG lake;
CREATE TABLE IF NOT EXISTS ods.c (i INT);
INSERT INTO ods.c SELECT i FROM default_catalog.default_database.src
""",
}
VARIABLES = {"table": "ods.`pro``mpts`", "RATE": "'rows-per-second' = '1'"}


def read() -> Project:
    files = {f"{name}.sql": text for name, text in SCRIPTS.items()}
    view = "CREATE TEMPORARY VIEW IF NOT EXISTS v AS SELECT id, up AS name FROM ev"
    return read_files(
        {**files, "init.sql": INIT, "included/view.sql": view},
        session=["init.sql"],
        variables=VARIABLES,
    )


def test_messy_scripts_are_read_wholly() -> None:
    found = read()
    assert found.errors == ()
    assert {job.name: [s.key for s in job.sinks] for job in found.jobs} == {
        "own_catalog": ["ods.c"],
        "prompts": ["ods.pro`mpts"],
        "both": ["ods.b1", "ods.b2"],
    }
    assert all(job.dependencies_known and job.flows[0].columns for job in found.jobs)


@pytest.mark.parametrize("name", ["prompts", "both", "own_catalog"])
def test_flink_takes_the_setup_and_the_statement_of_a_job(
    flink_stack: RunningFlink, tmp_path: Path, name: str
) -> None:
    (job,) = [job for job in read().jobs if job.name == name]
    cluster = FlinkCluster(
        rest_url=flink_stack.rest_url, sql_gateway_url=flink_stack.sql_gateway_url
    )
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session(f"test-read-{name}")
        session.execute(create_catalog("lake", {"type": "paimon", "warehouse": tmp_path.as_uri()}))
        session.execute(use_catalog("lake"))
        for statement in job.setup:
            session.execute(substitute(as_one_statement(statement), VARIABLES))
        plan = explain(session, substitute(as_one_statement(job.statement), VARIABLES), {})
        session.delete()
    assert len(plan.nodes) >= 2

"""Flink itself is asked: what we take for ordinary it takes, and what we write means the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import sqlglot

from lakehouse_dagster.errors import SqlExecutionError
from lakehouse_dagster.flink import FlinkCluster, quoting
from lakehouse_dagster.flink.sql_gateway import Session
from lakehouse_dagster.sql import as_one_statement, read_script, split
from lakehouse_dagster.sql.dialect import Flink
from tests.conftest import RunningFlink
from tests.sql.samples import DECLARATIONS, INSERTS, SETS

pytestmark = [pytest.mark.flink]


def rewritten(sql: str) -> str:
    return sqlglot.parse_one(sql, dialect=Flink).sql(Flink)


@cache
def plan(session: Session, sql: str) -> str:
    explained = re.sub(r"^\s*EXECUTE\s+", "", sql)
    return str(session.execute(f"EXPLAIN {explained}").rows[0][0])


@pytest.fixture(scope="module")
def sessions(
    flink_stack: RunningFlink, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Session]]:
    """Two sessions: one with the declarations as written, one with what the dialect writes."""
    cluster = FlinkCluster(
        rest_url=flink_stack.rest_url, sql_gateway_url=flink_stack.sql_gateway_url
    )
    with cluster.sql_gateway() as gateway:
        opened = []
        for name, write in (("as-written", str), ("rewritten", rewritten)):
            session = gateway.open_session(f"test-sql-{name}")
            opened.append(session)
            folder: Path = tmp_path_factory.mktemp(name)
            options = {"type": "paimon", "warehouse": folder.as_uri()}
            session.execute(quoting.create_catalog("lake", options))
            session.execute("USE CATALOG lake")
            for declaration in DECLARATIONS:
                session.execute(write(declaration))
        yield opened[0], opened[1]
        for session in opened:
            session.delete()


@pytest.mark.parametrize("name", INSERTS)
def test_flink_plans_what_we_write_like_the_original(
    sessions: tuple[Session, Session], name: str
) -> None:
    sql = INSERTS[name][0]
    assert plan(sessions[1], rewritten(sql)) == plan(sessions[0], sql)


@pytest.mark.parametrize("name", INSERTS)
def test_flink_scans_the_tables_that_we_say_are_read(
    sessions: tuple[Session, Session], name: str
) -> None:
    sql = INSERTS[name][0]
    scanned = {
        (database, table.split("$")[0])
        for database, table in re.findall(
            r"LogicalTableScan\(table=\[\[lake, (\w+), ([^],]+)", plan(sessions[0], sql)
        )
    }
    script = read_script("x.sql", text=";\n".join([*DECLARATIONS, sql]))
    job = script.jobs[0]
    names = {source.asset_key: source.name for source in script.sources}
    told = {(t.database, t.table) for t in job.reads}
    told |= {(t.database, t.table) for t in job.sinks if job.reads_itself}
    told |= {(names[key].database, names[key].table) for key in job.sources}
    assert told == scanned
    assert job.dependencies_known


@pytest.mark.parametrize("sql", SETS)
def test_flink_plans_statement_sets_in_the_form_for_the_gateway(
    sessions: tuple[Session, Session], sql: str
) -> None:
    as_given = plan(sessions[0], as_one_statement(split(sql)[0]))
    assert as_given.count("LogicalSink") == 2
    assert plan(sessions[1], rewritten(sql)) == as_given


def test_flink_too_knows_tables_as_we_describe_them(sessions: tuple[Session, Session]) -> None:
    script = read_script("x.sql", text=";\n".join(DECLARATIONS))
    for table in script.tables:
        described = sessions[0].execute(f"DESCRIBE {quoting.qualified(*_parts(table.name))}")
        rows = [dict(zip(described.columns, row, strict=True)) for row in described.rows]
        assert [(row["name"], row["null"]) for row in rows] == [
            (column.name, column.nullable) for column in table.columns
        ]
        key = ", ".join(table.primary_key)
        assert {row["key"] for row in rows} == ({f"PRI({key})", None} if key else {None}) - (
            {None} if len(table.primary_key) == len(rows) else set()
        )


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "a" FROM app.numbers',
        "SELECT * FROM app.numbers SORT BY id",
        "CREATE TABLE app.x (a INT) WITH ('a' = b)",
        "CREATE TABLE app.x (a)",
    ],
)
def test_flink_too_refuses_what_the_dialect_refuses(
    sessions: tuple[Session, Session], sql: str
) -> None:
    with pytest.raises(SqlExecutionError):
        sessions[0].execute(sql)


def _parts(name: object) -> tuple[str, str, str]:
    catalog, database, table = str(name).split(".")
    return catalog, database, table

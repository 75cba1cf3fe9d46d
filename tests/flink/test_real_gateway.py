"""Statements on a real SQL Gateway: values, types, errors, and what outlives what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest

from lakehouse_dagster.errors import NotFoundError, OperationTimeoutError, SqlExecutionError
from lakehouse_dagster.flink import (
    FlinkCluster,
    OperationStatus,
    Session,
    SqlGateway,
    capabilities_of,
)
from tests.conftest import RunningFlink

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

DATUM = "Ann O'Hara 4711"
FAIL_AT_ONCE = {"execution.runtime-mode": "batch", "restart-strategy.type": "none"}


@pytest.fixture
def cluster(flink_stack: RunningFlink) -> FlinkCluster:
    return FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url)


@pytest.fixture
def gateway(cluster: FlinkCluster) -> Iterator[SqlGateway]:
    with cluster.sql_gateway() as gateway:
        yield gateway


@pytest.fixture
def session(gateway: SqlGateway) -> Iterator[Session]:
    session = gateway.open_session("flink-room")
    try:
        yield session
    finally:
        session.delete()


def test_the_gateway_and_its_engine_tell_their_versions(
    cluster: FlinkCluster, gateway: SqlGateway
) -> None:
    product, version = gateway.info()
    assert product == "Apache Flink"
    assert version.split(".")[0] == capabilities_of(cluster).flink_version.split(".")[0]


def test_values_and_types_arrive_as_they_are(session: Session) -> None:
    result = session.execute(
        """SELECT 1 AS i, CAST(NULL AS STRING) AS s, CAST(9223372036854775807 AS BIGINT) AS b,
        CAST('12345678901234567890.123456789' AS DECIMAL(38, 9)) AS dc, DATE '2026-01-31' AS d,
        TIMESTAMP '2026-01-31 10:00:00.123456' AS ts, CURRENT_TIMESTAMP AS now, TRUE AS t,
        ARRAY['x', 'y'] AS a, MAP['k', 1] AS m, X'00FF' AS bin, 1.5E0 AS f""",
        config={"execution.runtime-mode": "batch"},
        timeout_seconds=180,
    )
    assert result.columns == ("i", "s", "b", "dc", "d", "ts", "now", "t", "a", "m", "bin", "f")
    assert result.column_types == (
        *("INT", "STRING", "BIGINT", "DECIMAL(38, 9)", "DATE", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"),
        *("BOOLEAN", "ARRAY<CHAR(1)>", "MAP<CHAR(1), INT>", "BINARY(2)", "DOUBLE"),
    )
    (row,) = result.rows
    assert row[:6] == (
        *(1, None, 9223372036854775807, Decimal("12345678901234567890.123456789")),
        *(date(2026, 1, 31), datetime(2026, 1, 31, 10, 0, 0, 123456)),
    )
    assert abs(datetime.now(timezone.utc) - row[6]) < timedelta(minutes=1)
    assert row[7:] == (True, ("x", "y"), {"k": 1}, b"\x00\xff", 1.5)
    assert len(result.job_id or "") == 32


def test_changes_keep_their_kinds(session: Session) -> None:
    result = session.execute(
        "SELECT k, SUM(v) FROM (VALUES ('a', 1), ('a', 2)) AS t(k, v) GROUP BY k",
        timeout_seconds=180,
    )
    assert result.rows == (("a", 1), ("a", 1), ("a", 3))
    assert result.row_kinds == ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER")


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("SELECT nope FROM (VALUES (1)) AS t(a)", "Column 'nope' not found in any table"),
        ("SELECT * FROM nowhere", "Object 'nowhere' not found"),
        ("SELEKT 1", "Non-query expression encountered in illegal context"),
        ("SELECT 1 FROM", 'ParseException: Encountered "<EOF>"'),
        ("SELECT 1; SELECT 2", "only single statement supported"),
        ("CREATE CATALOG c WITH ('type'='none-such')", "none-such"),
    ],
)
def test_a_wrong_statement_tells_its_root_cause_in_short(
    session: Session, statement: str, cause: str
) -> None:
    with pytest.raises(SqlExecutionError) as caught:
        session.execute(statement)
    assert cause in caught.value.root_cause
    assert "\n" not in str(caught.value)
    assert "\tat " not in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("kind", ["INT", "TIMESTAMP(3)", "DATE", "DECIMAL(10, 2)", "BOOLEAN"])
def test_a_cast_that_fails_does_not_tell_the_value(session: Session, kind: str) -> None:
    value = DATUM.replace("'", "''")
    with pytest.raises(SqlExecutionError) as caught:
        session.execute(
            f"SELECT CAST(v AS {kind}) FROM (VALUES ('{value}')) AS t(v)",
            config=FAIL_AT_ONCE,
            timeout_seconds=180,
        )
    assert not any(part in str(caught.value) for part in ("Ann", "Hara", "4711"))


@pytest.mark.parametrize(
    ("data_format", "line"),
    [("json", f'{{"id": "{DATUM}"}}'), ("json", DATUM), ("csv", DATUM), ("debezium-json", DATUM)],
)
def test_a_broken_record_is_not_told(
    session: Session, tmp_path: Path, data_format: str, line: str
) -> None:
    (tmp_path / "data").write_text(line + "\n")
    session.execute(
        f"CREATE TABLE broken (id INT) WITH ('connector'='filesystem', "
        f"'path'='file://{tmp_path}', 'format'='{data_format}')"
    )
    config = {**FAIL_AT_ONCE, "execution.runtime-mode": "streaming"}
    with pytest.raises(SqlExecutionError) as caught:
        session.execute("SELECT * FROM broken", config=config, timeout_seconds=180)
    assert not any(part in str(caught.value) for part in ("Ann", "Hara", "4711"))


def test_a_query_without_end_gives_its_first_rows_and_its_job_is_cancelled(
    cluster: FlinkCluster, session: Session
) -> None:
    session.execute(
        "CREATE TABLE endless (a INT) WITH ('connector'='datagen', 'rows-per-second'='50')"
    )
    result = session.execute("SELECT a FROM endless", max_rows=3, timeout_seconds=180)
    assert len(result.rows) == 3
    assert result.truncated
    assert result.job_id is not None
    assert ended(cluster, result.job_id) == "CANCELED"


def test_a_query_that_outlasts_its_bound_is_cancelled(
    cluster: FlinkCluster, session: Session
) -> None:
    name = f"flink-room-{uuid4().hex}"
    session.execute(
        "CREATE TABLE endless (a INT) WITH ('connector'='datagen', 'rows-per-second'='1')"
    )
    waited: list[float] = []
    with pytest.raises(OperationTimeoutError, match="the rows of SELECT"):
        session.execute(
            "SELECT a FROM endless WHERE a < -2147483647",
            config={"pipeline.name": name},
            timeout_seconds=15,  # of which planning and submitting take some on a busy machine
            on_wait=waited.append,
        )
    assert waited
    with cluster.job_manager() as job_manager:
        (job_id,) = [job.job_id for job in job_manager.jobs() if job.name == name]
    assert ended(cluster, job_id) == "CANCELED"


def test_a_page_of_rows_can_be_asked_for_again(session: Session) -> None:
    """Why a GET of rows may be repeated: the gateway keeps the last page it gave."""
    operation = session.submit("SHOW CATALOGS")
    operation.wait(60)
    first = operation._page(0)
    assert first["results"]["data"]
    assert operation._page(0) == first
    assert operation.result().rows == (("default_catalog",),)


def test_a_session_is_found_again_by_another_client(cluster: FlinkCluster) -> None:
    with cluster.sql_gateway() as first:
        handle = first.open_session("flink-room").handle
        first.session(handle).execute("CREATE TABLE mine (a INT) WITH ('connector'='blackhole')")
    with cluster.sql_gateway() as second:
        session = second.session(handle)
        session.heartbeat()
        assert session.execute("SHOW TABLES").rows == (("mine",),)
        assert session.delete() is True


def test_a_session_that_is_gone_is_told_by_every_call(gateway: SqlGateway) -> None:
    session = gateway.open_session("flink-room")
    operation = session.submit("SHOW TABLES")
    operation.wait(30)
    assert operation.status() is OperationStatus.FINISHED
    assert session.delete() is True
    assert session.delete() is True
    operation.cancel()
    for call in (
        lambda: session.execute("SHOW TABLES"),
        lambda: session.heartbeat(),
        lambda: operation.status(),
        lambda: operation.result(),
    ):
        with pytest.raises(NotFoundError, match="does not exist"):
            call()


def test_properties_and_settings_live_as_long_as_the_session(gateway: SqlGateway) -> None:
    session = gateway.open_session("flink-room", {"pipeline.name": "from-properties"})
    try:
        settings = dict(session.execute("SET").rows)
        assert settings["pipeline.name"] == "from-properties"
        session.execute("SET 'pipeline.name' = 'from-set'")
        assert dict(session.execute("SET").rows)["pipeline.name"] == "from-set"
    finally:
        session.delete()


def ended(cluster: FlinkCluster, job_id: str) -> str:
    deadline = time.monotonic() + 120
    with cluster.job_manager() as job_manager:
        while time.monotonic() < deadline:
            job = job_manager.job(job_id)
            if job is not None and job.status.is_terminal:
                return job.status.value
            time.sleep(0.2)
    raise AssertionError(f"job {job_id} goes on")

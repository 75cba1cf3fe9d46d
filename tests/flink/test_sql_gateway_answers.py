"""How a statement is followed to its end, against a scripted gateway."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import httpx
import pytest

from lakehouse_dagster.errors import (
    AnswerLostError,
    ClusterUnreachableError,
    ConfigurationError,
    NotFoundError,
    OperationTimeoutError,
    SqlExecutionError,
)
from lakehouse_dagster.flink import OperationStatus, Session
from lakehouse_dagster.flink.logical_types import python_value, type_name
from tests.flink.answers import OPERATION, SESSION, Recorder, always, flink_error, sql_gateway

BIGINT = {"type": "BIGINT", "nullable": True}
CLOSE = f"DELETE /v3/sessions/{SESSION}/operations/{OPERATION}/close"
GONE = f"org.apache.flink.SqlGatewayException: Session '{SESSION}' does not exist."


def page(kind: str, values: Iterable[int] = (), *, next_token: int = 1) -> dict[str, Any]:
    return {
        "resultType": kind,
        "jobID": "ab" * 16,
        "results": {
            "columns": [{"name": "n", "logicalType": BIGINT}],
            "data": [{"kind": "INSERT", "fields": [n]} for n in values],
        },
        # As behind a proxy: the gateway's own path, which is not the one that we reach it by.
        "nextResultUri": f"/internal/v3/sessions/s/operations/o/result/{next_token}?rowFormat=JSON",
    }


class ScriptedGateway(Recorder):
    """Accepts any statement; gives these states one after another, and these result pages."""

    def __init__(
        self, states: list[str], pages: list[dict[str, Any] | httpx.Response] | None = None
    ) -> None:
        self._states = states
        self._pages = pages or [page("EOS")]
        super().__init__(self._reply)

    def _reply(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/statements"):
            return httpx.Response(200, json={"operationHandle": OPERATION})
        if path.endswith("/status"):
            state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
            return httpx.Response(200, json={"status": state})
        if "/result/" in path:
            answer = self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]
            return (
                answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)
            )
        return httpx.Response(200, json={"status": "CLOSED"})

    @property
    def session(self) -> Session:
        return sql_gateway(self).session(SESSION)

    @property
    def posts(self) -> list[str]:
        return [request for request in self.sent if request.startswith("POST")]


def test_a_statement_is_posted_once_with_its_own_options() -> None:
    gateway = ScriptedGateway(["FINISHED"])
    gateway.session.submit("INSERT INTO a SELECT 1", config={"pipeline.name": "a"})
    assert gateway.sent == [f"POST /v3/sessions/{SESSION}/statements"]
    assert json.loads(gateway.requests[0].read()) == {
        "statement": "INSERT INTO a SELECT 1",
        "executionConfig": {"pipeline.name": "a"},
    }


def test_a_submitted_statement_s_session_is_never_deleted_by_us() -> None:
    gateway = ScriptedGateway(["RUNNING"])
    with sql_gateway(gateway) as door:
        operation = door.session(SESSION).submit("INSERT INTO a SELECT 1")
        with pytest.raises(OperationTimeoutError, match="INSERT INTO"):
            operation.wait(0.05)
    assert not any(request.startswith("DELETE") for request in gateway.sent)


def test_all_pages_are_read_and_the_operation_is_closed() -> None:
    gateway = ScriptedGateway(
        ["PENDING", "RUNNING", "FINISHED"],
        [
            {"resultType": "NOT_READY", "nextResultUri": "/v3/x/result/0"},
            page("PAYLOAD", next_token=1),
            page("PAYLOAD", [1, 2], next_token=7),
            page("EOS", [3]),
        ],
    )
    waited: list[float] = []
    result = gateway.session.execute("SELECT n FROM t", on_wait=waited.append)
    assert result.columns == ("n",)
    assert result.column_types == ("BIGINT",)
    assert result.rows == ((1,), (2,), (3,))
    assert result.row_kinds == ("INSERT",) * 3
    assert (result.job_id, result.truncated) == ("ab" * 16, False)
    assert waited == sorted(waited)
    assert len(waited) == 4
    tokens = [request.rpartition("/")[2] for request in gateway.sent if "/result/" in request]
    assert tokens == ["0", "0", "1", "7"]
    assert gateway.sent[-1] == CLOSE


@pytest.mark.parametrize(("rows", "truncated"), [([1, 2, 3], True), ([1, 2], False)])
def test_rows_beyond_the_bound_are_left_and_said_to_be(rows: list[int], truncated: bool) -> None:
    gateway = ScriptedGateway(["FINISHED"], [page("PAYLOAD", rows), page("EOS")])
    result = gateway.session.execute("SELECT n FROM t", max_rows=2)
    assert result.rows == ((1,), (2,))
    assert result.truncated is truncated
    assert gateway.sent[-1] == CLOSE


def test_a_query_without_end_is_broken_off_at_the_bound() -> None:
    gateway = ScriptedGateway(["FINISHED"], [page("PAYLOAD", [1])])
    with pytest.raises(OperationTimeoutError, match="the rows of SELECT"):
        gateway.session.execute("SELECT n FROM t", timeout_seconds=0.2)
    assert gateway.sent[-1] == CLOSE


def test_an_interrupt_while_waiting_stops_the_operation() -> None:
    gateway = ScriptedGateway(["RUNNING"])

    def interrupt(waited_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gateway.session.execute("CALL sys.compact()", on_wait=interrupt)
    assert gateway.sent[-1] == CLOSE


def test_a_failure_tells_the_root_cause_and_not_the_secret_of_the_statement() -> None:
    failed = flink_error(
        500, "a.SqlGatewayException: x", "Caused by: a.LoginException: hunter2 is wrong for ann"
    )
    gateway = ScriptedGateway(["ERROR"], [failed])
    statement = "/* c */ CREATE TABLE t (a INT) WITH ('password'='hunter2')"
    with pytest.raises(SqlExecutionError) as caught:
        gateway.session.execute(statement)
    assert caught.value.root_cause == "LoginException: **** is wrong for ann"
    assert str(caught.value) == f"CREATE TABLE failed: {caught.value.root_cause}."


def test_a_secret_of_an_earlier_statement_is_not_told_by_a_later_one() -> None:
    failed = flink_error(500, "a.AccessException: hunter2 has no access to the bucket")
    gateway = ScriptedGateway(["FINISHED", "ERROR"], [page("EOS"), failed])
    session = gateway.session
    session.execute("CREATE CATALOG lake WITH ('s3.secret-key'='hunter2')")
    with pytest.raises(SqlExecutionError, match=r"\*\*\*\* has no access") as caught:
        session.execute("INSERT INTO a SELECT 1")
    assert "hunter2" not in str(caught.value)


def test_a_job_s_own_words_about_sessions_are_not_taken_for_the_gateway_s() -> None:
    failed = flink_error(500, "a.B: x", "Caused by: a.DbException: Session 'x' does not exist.")
    with pytest.raises(SqlExecutionError, match="DbException"):
        ScriptedGateway(["ERROR"], [failed]).session.execute("SELECT 1")


@pytest.mark.parametrize("state", ["CANCELED", "CLOSED", "TIMEOUT"])
def test_an_operation_that_did_not_finish_is_no_success(state: str) -> None:
    with pytest.raises(SqlExecutionError, match=state):
        ScriptedGateway([state]).session.execute("SHOW TABLES")


def test_an_error_without_a_reason_is_still_an_error() -> None:
    with pytest.raises(SqlExecutionError, match="no reason"):
        ScriptedGateway(["ERROR"], [page("EOS")]).session.execute("SHOW TABLES")


def test_a_session_that_the_gateway_does_not_know_is_not_found() -> None:
    session = sql_gateway(Recorder(lambda request: flink_error(500, GONE))).session(SESSION)
    assert session.delete() is True
    session.operation(OPERATION).cancel()
    for call in (
        lambda: session.submit("SELECT 1"),
        lambda: session.heartbeat(),
        lambda: session.operation(OPERATION).status(),
        lambda: session.operation(OPERATION).result(),
    ):
        with pytest.raises(NotFoundError, match="does not exist"):
            call()


def test_an_operation_is_found_again_by_its_handle() -> None:
    gateway = ScriptedGateway(["FINISHED"])
    assert gateway.session.operation(OPERATION).status() is OperationStatus.FINISHED
    assert gateway.sent == [f"GET /v3/sessions/{SESSION}/operations/{OPERATION}/status"]


def test_what_is_no_handle_never_becomes_part_of_an_address() -> None:
    gateway = sql_gateway(always(json={}))
    with pytest.raises(ConfigurationError, match="UUID"):
        gateway.session("../config")
    with pytest.raises(ConfigurationError, match="UUID"):
        gateway.session(SESSION).operation("")


@pytest.mark.parametrize("answer", [{}, {"operationHandle": None}, {"operationHandle": "x/../y"}])
def test_a_statement_accepted_without_a_handle_is_a_lost_answer(answer: dict[str, Any]) -> None:
    transport = always(json=answer)
    with pytest.raises(AnswerLostError, match="operationHandle"):
        sql_gateway(transport).session(SESSION).submit("INSERT INTO a SELECT 1")
    assert len(transport.requests) == 1


def test_exchanged_addresses_are_noticed() -> None:
    with pytest.raises(ClusterUnreachableError, match="may be exchanged"):
        sql_gateway(always(json={"jobs": []})).info()


@pytest.mark.parametrize(
    ("logical_type", "name"),
    [
        ({"type": "VARCHAR", "length": 2147483647}, "STRING"),
        ({"type": "VARCHAR", "length": 20}, "VARCHAR(20)"),
        ({"type": "VARBINARY", "length": 2147483647}, "BYTES"),
        ({"type": "DECIMAL", "precision": 10, "scale": 2}, "DECIMAL(10, 2)"),
        ({"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 3}, "TIMESTAMP(3)"),
        ({"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 6}, "TIMESTAMP_LTZ(6)"),
        ({"type": "ARRAY", "elementType": {"type": "INTEGER"}}, "ARRAY<INT>"),
        ({"type": "MULTISET", "elementType": {"type": "DATE"}}, "MULTISET<DATE>"),
        ({"type": "MAP", "keyType": BIGINT, "valueType": BIGINT}, "MAP<BIGINT, BIGINT>"),
        ({"type": "ROW", "fields": [{"name": "a`b", "fieldType": BIGINT}]}, "ROW<`a``b` BIGINT>"),
    ],
)
def test_types_have_their_sql_names(logical_type: dict[str, Any], name: str) -> None:
    assert type_name(logical_type) == name


@pytest.mark.parametrize(
    ("root", "value", "expected"),
    [
        ("DECIMAL", Decimal("12345678901234567890.12"), Decimal("12345678901234567890.12")),
        ("DOUBLE", Decimal("1.5"), 1.5),
        ("DATE", "2026-01-31", date(2026, 1, 31)),
        ("DATE", "12026-01-31", "12026-01-31"),
        ("TIME_WITHOUT_TIME_ZONE", "10:00:00.5", time(10, 0, 0, 500_000)),
        (
            "TIMESTAMP_WITHOUT_TIME_ZONE",
            "2026-01-31T10:00:00.123456789",
            datetime(2026, 1, 31, 10, 0, 0, 123_456),
        ),
        (
            "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
            "2026-01-31T10:00:00Z",
            datetime(2026, 1, 31, 10, tzinfo=timezone.utc),
        ),
        ("BINARY", "AQI=", b"\x01\x02"),
        ("BOOLEAN", True, True),
        ("BIGINT", None, None),
    ],
)
def test_values_are_python_s_own_or_stay_as_they_came(root: str, value: Any, expected: Any) -> None:
    assert python_value(value, {"type": root}) == expected

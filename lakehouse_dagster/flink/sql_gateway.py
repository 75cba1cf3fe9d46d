"""The SQL Gateway's REST API, version 3: sessions, statements and their results.

A statement is posted exactly once. A session outlives the ``Session`` object and the connection,
so that another process can attach to it again by its handle: deleting a session while it still
submits a job kills the submission, so only ``delete()`` does it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    ConfigurationError,
    FlinkError,
    FlinkRequestError,
    NotFoundError,
    OperationTimeoutError,
    SqlExecutionError,
)
from lakehouse_dagster.flink.cluster import FlinkCluster
from lakehouse_dagster.flink.logical_types import python_value, type_name
from lakehouse_dagster.flink.redaction import secrets_in
from lakehouse_dagster.flink.rest_client import RestClient
from lakehouse_dagster.flink.types import OperationStatus, StatementResult

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 1.0
_HANDLE = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

OnWait = Callable[[float], None]
"""Called while waiting, with the seconds waited so far; raising in it ends the wait."""


class SqlGateway:
    """One SQL Gateway; a context manager that closes its connections (never a session).

    Every method can raise ClusterUnreachableError (nobody answered, or not a gateway) and
    FlinkRequestError (the gateway answered with an error).
    """

    def __init__(
        self, cluster: FlinkCluster, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.cluster = cluster
        self._rest = RestClient(cluster, cluster.sql_gateway_url, "SQL Gateway", transport)

    def __enter__(self) -> SqlGateway:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; sessions stay open on the gateway."""
        self._rest.close()

    def info(self) -> tuple[str, str]:
        """The product's name and version, such as ``("Apache Flink", "2.0.2")``."""
        answer = self._rest.get("/v3/info")
        try:
            return str(answer["productName"]), str(answer["version"])
        except (KeyError, TypeError) as error:
            raise _not_a_gateway(self.cluster, "GET /v3/info") from error

    def open_session(self, name: str, properties: Mapping[str, str] | None = None) -> Session:
        """A new session.

        The gateway closes it after ``sql-gateway.session.idle-timeout`` (10 minutes by default)
        without a request, unless ``heartbeat()`` is called or an operation runs.

        Args:
            name: shown in the gateway's log; need not be unique.
            properties: Flink options in force for all statements of the session.

        Raises:
            AnswerLostError: no answer came; a session without statements may be left, which the
                gateway closes by itself.
        """
        properties = dict(properties or {})
        answer = self._rest.post(
            "/v3/sessions",
            {"sessionName": name, "properties": properties},
            secrets=secrets_in("", properties),
        )
        return Session(self, _handle_in(answer, "sessionHandle", self.cluster, "POST /v3/sessions"))

    def session(self, handle: str) -> Session:
        """The session of this handle, without asking whether it still exists."""
        return Session(self, handle)


class Session:
    """One session: its catalogs, temporary tables and settings live as long as it does."""

    def __init__(self, gateway: SqlGateway, handle: str) -> None:
        self.handle = _checked_handle(handle, "session")
        self._gateway = gateway
        self._rest = gateway._rest
        self._path = f"/v3/sessions/{self.handle}"

    def __repr__(self) -> str:
        return f"Session({self.handle!r})"

    def execute(
        self,
        statement: str,
        *,
        config: Mapping[str, str] | None = None,
        timeout_seconds: float = 60.0,
        on_wait: OnWait | None = None,
        max_rows: int | None = None,
    ) -> StatementResult:
        """Run one statement to its end and return what it returned.

        For whatever ends within the bound: DDL, SHOW, SET, USE, bounded queries, CALLs. (A
        streaming job is started with ``submit``.) When the wait is broken off, by the bound or by
        an exception such as KeyboardInterrupt, the operation is cancelled; a Flink job that an
        INSERT or CALL has already started is not stopped by that, so give it a job id beforehand
        (``$internal.pipeline.job-id``) and cancel it by that.

        Args:
            statement: one statement of Flink SQL.
            config: Flink options for this statement alone.
            timeout_seconds: bound on the whole of it.
            on_wait: called at every poll with the seconds waited.
            max_rows: stop reading after this many rows and cancel the query.

        Raises:
            SqlExecutionError: the gateway or the job failed.
            OperationTimeoutError: not done within the bound.
            AnswerLostError: the statement was sent, but no answer came.
            NotFoundError: the gateway does not know the session (any more).
        """
        deadline = _Deadline(timeout_seconds, on_wait)
        operation = self.submit(statement, config=config)
        try:
            operation._wait(deadline)
            return operation._result(max_rows, deadline)
        finally:
            # Frees the gateway's memory, stops a statement that is still carried out, and cancels
            # the job of a query whose rows are not wanted (any more). Cancelling would not do: a
            # query's operation is FINISHED, and refuses it, while its job still runs.
            operation._close_quietly()

    def submit(self, statement: str, *, config: Mapping[str, str] | None = None) -> Operation:
        """Post one statement, exactly once, and return its operation without waiting for it.

        The gateway takes a statement before it parses it, so a wrong one fails in the operation.

        Raises:
            ClusterUnreachableError: it was not sent.
            AnswerLostError: it was sent, but no answer came: it may run, or not.
            NotFoundError: the gateway does not know the session (any more); it does not run.
        """
        config = dict(config or {})
        secrets = secrets_in(statement, config)
        answer = self._rest.post(
            f"{self._path}/statements",
            {"statement": statement, "executionConfig": config},
            secrets=secrets,
        )
        handle = _handle_in(answer, "operationHandle", self._gateway.cluster, "POST …/statements")
        return Operation(self, handle, description=_first_words(statement), secrets=secrets)

    def operation(self, handle: str) -> Operation:
        """The operation of this handle, without asking whether it still exists."""
        return Operation(self, handle)

    def heartbeat(self) -> None:
        """Keep the session from being closed for idleness.

        Raises:
            NotFoundError: the gateway does not know the session (any more).
        """
        self._rest.post(f"{self._path}/heartbeat")

    def delete(self) -> bool:
        """Close the session on the gateway, and with it whatever it is still submitting.

        True when the session is known to be gone, also when it was gone before. A job that it has
        submitted goes on; a submission on its way is killed, or shows on the cluster within about a
        second (measured on Flink 2.0 without load).

        Raises:
            ClusterUnreachableError: no answer: nothing is known, ask again.
        """
        try:
            self._rest.delete(self._path)
        except NotFoundError as error:
            if not _says_it_is_gone(error):
                raise
        return True


class Operation:
    """One statement that was posted: wait for it, read its result, cancel it."""

    def __init__(
        self,
        session: Session,
        handle: str,
        *,
        description: str = "statement",
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self.handle = _checked_handle(handle, "operation")
        self.session = session
        self._rest = session._rest
        self._path = f"{session._path}/operations/{self.handle}"
        self._description = description
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"Operation({self.handle!r}, {self._description})"

    def status(self) -> OperationStatus:
        """How far the operation is.

        Raises:
            NotFoundError: the gateway does not know the session or the operation (any more).
        """
        answer = self._rest.get(f"{self._path}/status")
        try:
            return OperationStatus(answer["status"])
        except (KeyError, TypeError, ValueError) as error:
            raise _not_a_gateway(
                self.session._gateway.cluster, f"GET {self._path}/status"
            ) from error

    def wait(self, timeout_seconds: float, on_wait: OnWait | None = None) -> None:
        """Wait until the statement has been carried out; for an INSERT, until it is submitted.

        The operation goes on when the wait is broken off.

        Raises:
            SqlExecutionError: it failed, or was cancelled.
            OperationTimeoutError: it has not ended within the bound.
            NotFoundError: the gateway does not know it (any more).
        """
        self._wait(_Deadline(timeout_seconds, on_wait))

    def result(
        self,
        max_rows: int | None = None,
        *,
        timeout_seconds: float = 60.0,
        on_wait: OnWait | None = None,
    ) -> StatementResult:
        """All rows of the result, or its first ``max_rows``.

        The gateway hands out each row once: a second call does not see them again.

        Raises:
            SqlExecutionError: the statement, or the job that computes the rows, failed.
            OperationTimeoutError: the rows have not come to an end within the bound.
            NotFoundError: the gateway does not know the operation (any more).
        """
        return self._result(max_rows, _Deadline(timeout_seconds, on_wait))

    def cancel(self) -> None:
        """Stop the statement, and the job of a query; the gateway then forgets the operation.

        One that has ended or is unknown is fine. The job of an INSERT that has been submitted goes
        on. (This closes the operation: the gateway's own cancel is refused for a query whose job
        runs, since its operation counts as FINISHED.)

        Raises:
            ClusterUnreachableError: no answer: nothing is known, ask again.
        """
        try:
            self._rest.delete(f"{self._path}/close")
        except NotFoundError as error:
            if not _says_it_is_gone(error):
                raise

    def _wait(self, deadline: _Deadline) -> None:
        while not (status := self.status()).is_terminal:
            deadline.pause(f"{self._description} (operation {self.handle}, {status.value})")
        if status is OperationStatus.FINISHED:
            return
        if status is OperationStatus.ERROR:
            self._raise_failure()
        raise SqlExecutionError(
            f"{self._description} did not run to its end: its operation is {status.value}.",
            root_cause=f"operation {status.value}",
        )

    def _raise_failure(self) -> None:
        """Raise what made the operation fail; the gateway tells it in place of a result."""
        self._page(0)
        raise SqlExecutionError(
            f"{self._description} failed, and the gateway gives no reason.",
            root_cause="no reason given",
            remedy="Look into the SQL Gateway's log.",
        )

    def _result(self, max_rows: int | None, deadline: _Deadline) -> StatementResult:
        token = 0
        rows: list[tuple[Any, ...]] = []
        kinds: list[str] = []
        columns: list[Mapping[str, Any]] = []
        job_id: str | None = None
        while True:
            page = self._page(token)
            job_id = page.get("jobID") or job_id
            kind = page["resultType"]
            if kind != "NOT_READY":
                results = page["results"]
                columns = results["columns"]
                for row in results["data"]:
                    if max_rows is not None and len(rows) >= max_rows:
                        return _statement_result(columns, rows, kinds, job_id, truncated=True)
                    values = zip(row["fields"], columns, strict=True)
                    rows.append(tuple(python_value(v, c["logicalType"]) for v, c in values))
                    kinds.append(row["kind"])
                if kind == "EOS":
                    return _statement_result(columns, rows, kinds, job_id, truncated=False)
            # A page without rows says "ask again" just as NOT_READY does.
            ready = kind != "NOT_READY"
            token = _next_token(page, token) if ready else token
            what = f"the rows of {self._description} (operation {self.handle}, {len(rows)} so far)"
            if ready and results["data"]:
                deadline.check(what)
            else:
                deadline.pause(what)

    def _page(self, token: int) -> dict[str, Any]:
        path = f"{self._path}/result/{token}"
        try:
            # The gateway keeps the last page and gives it again for the same token
            # (ResultFetcher), so that repeating the GET loses nothing.
            page = self._rest.get(path, params={"rowFormat": "JSON"}, secrets=self._secrets)
        except NotFoundError:
            raise
        except FlinkRequestError as error:
            if error.status_code in (401, 403):
                raise
            raise SqlExecutionError(
                f"{self._description} failed: {error.root_cause}", root_cause=error.root_cause
            ) from error
        if not isinstance(page, dict) or page.get("resultType") not in (
            "NOT_READY",
            "PAYLOAD",
            "EOS",
        ):
            raise _not_a_gateway(self.session._gateway.cluster, f"GET {path}")
        return page

    def _close_quietly(self) -> None:
        # The outcome is known, or another exception is on its way that says more than this one.
        try:
            self.cancel()
        except FlinkError as error:
            _log.warning("Operation %s could not be closed: %s", self.handle, error)


class _Deadline:
    """One bound for all the waits of a call, with polls that grow rarer."""

    def __init__(self, timeout_seconds: float, on_wait: OnWait | None) -> None:
        self._timeout_seconds = timeout_seconds
        self._on_wait = on_wait
        self._started = time.monotonic()
        self._poll_seconds = _FIRST_POLL_SECONDS

    def check(self, what: str) -> float:
        """The seconds that are left.

        Raises:
            OperationTimeoutError: none are.
        """
        left = self._timeout_seconds - (time.monotonic() - self._started)
        if left <= 0:
            raise OperationTimeoutError(
                f"Waited {self._timeout_seconds:g} seconds for {what}.",
                remedy="Look whether the cluster has free slots, or allow more time.",
            )
        return left

    def pause(self, what: str) -> None:
        """Sleep until the next poll."""
        left = self.check(what)
        if self._on_wait is not None:
            self._on_wait(time.monotonic() - self._started)
        time.sleep(min(self._poll_seconds, left))
        self._poll_seconds = min(self._poll_seconds * 1.5, _LONGEST_POLL_SECONDS)


def _statement_result(
    columns: list[Mapping[str, Any]],
    rows: list[tuple[Any, ...]],
    kinds: list[str],
    job_id: str | None,
    *,
    truncated: bool,
) -> StatementResult:
    return StatementResult(
        columns=tuple(str(column["name"]) for column in columns),
        column_types=tuple(type_name(column["logicalType"]) for column in columns),
        rows=tuple(rows),
        row_kinds=tuple(kinds),
        job_id=job_id,
        truncated=truncated,
    )


def _next_token(page: Mapping[str, Any], token: int) -> int:
    # Only the number is taken from the address: behind a proxy its path is not ours.
    found = re.search(r"/result/(\d+)", str(page.get("nextResultUri") or ""))
    return int(found[1]) if found else token + 1


def _handle_in(answer: Mapping[str, Any], key: str, cluster: FlinkCluster, request: str) -> str:
    handle = answer.get(key)
    if not isinstance(handle, str) or not _HANDLE.fullmatch(handle):
        raise _not_a_gateway(cluster, request)
    return handle


def _checked_handle(handle: str, what: str) -> str:
    # Checked before it becomes part of an address.
    if not _HANDLE.fullmatch(handle):
        raise ConfigurationError(
            f"{handle!r} is not the handle of a SQL Gateway {what}.", remedy="It is a UUID."
        )
    return handle


def _says_it_is_gone(error: NotFoundError) -> bool:
    # A wrong path gives 404 too; only these are the gateway's own words about what it knows.
    return "does not exist" in error.root_cause or "Can not find" in error.root_cause


def _not_a_gateway(cluster: FlinkCluster, request: str) -> ClusterUnreachableError:
    return ClusterUnreachableError(
        f"The SQL Gateway of cluster {cluster.name!r} at {cluster.sql_gateway_url} answered "
        f"{request} with JSON of another shape than a gateway's.",
        remedy="Look at the address: sql_gateway_url and rest_url may be exchanged.",
    )


def _first_words(statement: str) -> str:
    """What a statement is called in messages: ``INSERT INTO``, not its text, which has secrets."""
    bare = re.sub(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", "", statement, flags=re.DOTALL)
    words = re.match(r"[A-Za-z]+(?:\s+[A-Za-z]+)?", bare)
    return " ".join(words[0].split()).upper() if words else "Statement"

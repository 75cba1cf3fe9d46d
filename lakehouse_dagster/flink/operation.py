"""One statement on the SQL Gateway, once it was posted: waiting for it, its result, its end."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import (
    AnswerLostError,
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
from lakehouse_dagster.flink.types import OperationStatus, StatementResult

if TYPE_CHECKING:
    from lakehouse_dagster.flink.sql_gateway import Session

_log = logging.getLogger(__name__)

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 1.0
_HANDLE = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

OnWait = Callable[[float], None]
"""Called while waiting, with the seconds waited so far; raising in it ends the wait."""


class Operation:
    """One statement that was posted: wait for it, read its result, cancel it."""

    def __init__(
        self,
        session: Session,
        handle: str,
        *,
        description: str = "Statement",
    ) -> None:
        self.handle = checked_handle(handle, "operation")
        self.session = session
        self._rest = session._rest
        self._path = f"{session._path}/operations/{self.handle}"
        self._description = description

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
            raise not_a_gateway(
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
        self.wait_until(Deadline(timeout_seconds, on_wait))

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
        return self.result_until(max_rows, Deadline(timeout_seconds, on_wait))

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
            if not says_it_is_gone(error):
                raise

    def wait_until(self, deadline: Deadline) -> None:
        """``wait``, within a bound that is shared with other waits."""
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

    def result_until(self, max_rows: int | None, deadline: Deadline) -> StatementResult:
        """``result``, within a bound that is shared with other waits."""
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
            page: dict[str, Any] = self._rest.get(
                path, params={"rowFormat": "JSON"}, secrets=self.session._secrets
            )
        except NotFoundError:
            raise
        except FlinkRequestError as error:
            if error.status_code in (401, 403):
                raise
            raise SqlExecutionError(
                f"{self._description} failed: {error.root_cause}.", root_cause=error.root_cause
            ) from error
        kind = page.get("resultType") if isinstance(page, dict) else None
        complete = kind in ("PAYLOAD", "EOS") and "results" in page
        if kind != "NOT_READY" and not complete:
            raise not_a_gateway(self.session._gateway.cluster, f"GET {path}")
        return page

    def close_quietly(self) -> None:
        """``cancel``, with a failure logged instead of raised."""
        # The outcome is known, or another exception is on its way that says more than this one.
        try:
            self.cancel()
        except FlinkError as error:
            _log.warning("Operation %s could not be closed: %s", self.handle, error)


class Deadline:
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


def handle_in(answer: Mapping[str, Any], key: str, request: str) -> str:
    """The handle in the answer to a POST.

    Raises:
        AnswerLostError: there is none, so that what the POST made cannot be told.
    """
    handle = answer.get(key)
    if not isinstance(handle, str) or not _HANDLE.fullmatch(handle):
        raise AnswerLostError(
            f"The answer to {request} holds no {key}.",
            remedy="Look on the cluster whether it took effect before sending it again.",
        )
    return handle


def checked_handle(handle: str, what: str) -> str:
    """The handle, when it is one.

    Raises:
        ConfigurationError: it is not.
    """
    # Checked before it becomes part of an address.
    if not _HANDLE.fullmatch(handle):
        raise ConfigurationError(
            f"{handle!r} is not the handle of a SQL Gateway {what}.", remedy="It is a UUID."
        )
    return handle


def says_it_is_gone(error: NotFoundError) -> bool:
    """Whether the gateway itself says that it does not know the session or operation."""
    # A wrong path gives 404 too; only these are the gateway's own words about what it knows.
    return "does not exist" in error.root_cause or "Can not find" in error.root_cause


def not_a_gateway(cluster: FlinkCluster, request: str) -> ClusterUnreachableError:
    """The exception for JSON that no gateway writes."""
    return ClusterUnreachableError(
        f"The SQL Gateway of cluster {cluster.name!r} at {cluster.sql_gateway_url} answered "
        f"{request} with JSON of another shape than a gateway's.",
        remedy="Look at the address: sql_gateway_url and rest_url may be exchanged.",
    )

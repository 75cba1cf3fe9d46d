"""The SQL Gateway's REST API, version 3: sessions, statements and their results.

A statement is posted exactly once. A session outlives the ``Session`` object and the connection,
so that another process can attach to it again by its handle: deleting a session while it still
submits a job kills the submission, so only ``delete()`` does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import NotFoundError
from lakehouse_dagster.flink.cluster import FlinkCluster
from lakehouse_dagster.flink.endpoint import Endpoint
from lakehouse_dagster.flink.operation import (
    Deadline,
    OnWait,
    Operation,
    checked_handle,
    handle_in,
    not_a_gateway,
    says_it_is_gone,
)
from lakehouse_dagster.flink.redaction import secrets_in
from lakehouse_dagster.flink.types import StatementResult

if TYPE_CHECKING:
    import httpx


class SqlGateway(Endpoint):
    """One SQL Gateway; a context manager that closes its connections (never a session).

    Every method can raise ClusterUnreachableError (nobody answered, or not a gateway) and
    FlinkRequestError (the gateway answered with an error).
    """

    def __init__(
        self, cluster: FlinkCluster, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        super().__init__(cluster, cluster.sql_gateway_url, "SQL Gateway", transport)

    def info(self) -> tuple[str, str]:
        """The product's name and version, such as ``("Apache Flink", "2.0.2")``."""
        answer = self._rest.get("/v3/info")
        try:
            return str(answer["productName"]), str(answer["version"])
        except (KeyError, TypeError) as error:
            raise not_a_gateway(self.cluster, "GET /v3/info") from error

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
        handle = handle_in(answer, "sessionHandle", "POST /v3/sessions")
        session = Session(self, handle)
        session._secrets |= secrets_in("", properties)
        return session

    def session(self, handle: str) -> Session:
        """The session of this handle, without asking whether it still exists."""
        return Session(self, handle)


class Session:
    """One session: its catalogs, temporary tables and settings live as long as it does."""

    def __init__(self, gateway: SqlGateway, handle: str) -> None:
        self.handle = checked_handle(handle, "session")
        self._gateway = gateway
        self._rest = gateway._rest
        self._path = f"/v3/sessions/{self.handle}"
        # A later statement's error may repeat what an earlier one gave, such as a catalog's key.
        self._secrets: frozenset[str] = frozenset()

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
        deadline = Deadline(timeout_seconds, on_wait)
        operation = self.submit(statement, config=config)
        try:
            operation.wait_until(deadline)
            return operation.result_until(max_rows, deadline)
        finally:
            # Frees the gateway's memory, stops a statement that is still carried out, and cancels
            # the job of a query whose rows are not wanted (any more). Cancelling would not do: a
            # query's operation is FINISHED, and refuses it, while its job still runs.
            operation.close_quietly()

    def submit(self, statement: str, *, config: Mapping[str, str] | None = None) -> Operation:
        """Post one statement, exactly once, and return its operation without waiting for it.

        The gateway takes a statement before it parses it, so a wrong one fails in the operation.

        Raises:
            ClusterUnreachableError: it was not sent.
            AnswerLostError: it was sent, but no answer came: it may run, or not.
            NotFoundError: the gateway does not know the session (any more); it does not run.
        """
        config = dict(config or {})
        self._secrets |= secrets_in(statement, config)
        answer = self._rest.post(
            f"{self._path}/statements",
            {"statement": statement, "executionConfig": config},
            secrets=self._secrets,
        )
        handle = handle_in(answer, "operationHandle", f"POST {self._path}/statements")
        return Operation(self, handle, description=_first_words(statement))

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
            if not says_it_is_gone(error):
                raise
        return True


def _first_words(statement: str) -> str:
    """What a statement is called in messages: ``INSERT INTO``, not its text, which has secrets."""
    bare = re.sub(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", "", statement, flags=re.DOTALL)
    words = re.match(r"[A-Za-z]+(?:\s+[A-Za-z]+)?", bare)
    return " ".join(words[0].split()).upper() if words else "Statement"

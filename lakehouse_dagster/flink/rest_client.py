"""HTTP to a Flink REST endpoint: time-outs, one pool of connections, errors that say who failed.

What may be repeated is repeated here and nowhere else: a GET, a few times, when no connection came
about or a proxy had no server behind it. A POST is sent once. Whether it took effect when no answer
came is the caller's question, and the exception says which case it is.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import (
    AnswerLostError,
    ClusterUnreachableError,
    ConfigurationError,
    FlinkRequestError,
    NotFoundError,
)
from lakehouse_dagster.flink.cluster import BasicAuth, BearerAuth, FlinkCluster
from lakehouse_dagster.flink.redaction import root_cause

if TYPE_CHECKING:
    import httpx

GET_ATTEMPTS = 3
_MAX_CONNECTIONS = 16
_MAX_ADDRESSES = 4096
_NO_SERVER_BEHIND = (502, 503, 504)
_REMEDY_UNREACHABLE = "Look whether it runs and can be reached from here, then try again."
_REMEDY_NOT_FLINK = "Look at the address: a proxy or another program seems to answer there."

# The SQL Gateway answers 500, not 404, for a session or operation that it does not know
# (SessionManagerImpl.getSession and OperationManager.getOperation, seen on Flink 2.0). Only as the
# root cause of its own class: the same words could stand in the error of a user's job.
_UNKNOWN_TO_GATEWAY = re.compile(
    r"SqlGatewayException: (?:Session '[^']*' does not exist"
    r"|Can not find the submitted operation in the OperationManager)"
)


class _NoAnswerYetError(ClusterUnreachableError):
    """Nobody answered, at once rather than after a long wait: a GET may be tried again."""


class RestClient:
    """One Flink REST endpoint; its connections are reused and may be used from several threads.

    Args:
        cluster: gives authentication, TLS and time-outs.
        base_url: which of the cluster's addresses.
        endpoint: what the address is called in messages.
        transport: replaces the network; for tests.
    """

    def __init__(
        self,
        cluster: FlinkCluster,
        base_url: str,
        endpoint: str,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._cluster = cluster
        self._base_url = base_url
        self._endpoint = f"{endpoint} of cluster {cluster.name!r} at {base_url}"
        self._transport = transport
        self._client: httpx.Client | None = None
        self._direct: httpx.BaseTransport | None = None
        self._time_outs: dict[str, Any] = {}
        self._addresses: dict[str, httpx.URL] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
    ) -> Any:
        """GET a JSON value; sent at most GET_ATTEMPTS times while nobody answers.

        Raises:
            ClusterUnreachableError: no answer, or one that Flink did not write.
            NotFoundError, FlinkRequestError: Flink answered with an error.
        """
        try:
            return self._idempotent("GET", path, params, secrets)
        except _NoAnswerYetError:
            return self._get_again(path, params, secrets)

    def _get_again(
        self, path: str, params: Mapping[str, str] | None, secrets: Iterable[str]
    ) -> Any:
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            stop_after_delay,
            wait_random_exponential,
        )

        retrying = Retrying(
            retry=retry_if_exception_type(_NoAnswerYetError),
            stop=stop_after_attempt(GET_ATTEMPTS - 1)
            | stop_after_delay(self._cluster.connect_timeout_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1.0),
            reraise=True,
        )
        return retrying(self._idempotent, "GET", path, params, secrets)

    def delete(self, path: str) -> Any:
        """DELETE, sent once. Harmless to repeat, so no answer is ClusterUnreachableError."""
        return self._idempotent("DELETE", path)

    def patch(self, path: str, *, params: Mapping[str, str]) -> Any:
        """PATCH (which cancels jobs), sent once. No answer is ClusterUnreachableError."""
        return self._idempotent("PATCH", path, params)

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        secrets: Iterable[str] = (),
    ) -> dict[str, Any]:
        """POST, sent exactly once.

        Raises:
            ClusterUnreachableError: no connection came about: it certainly had no effect.
            AnswerLostError: it was sent, and no readable answer of Flink came: it may have had one.
            NotFoundError, FlinkRequestError: Flink refused it.
        """
        import httpx

        request = f"POST {path}"
        try:
            response = self._http().request("POST", path, json=dict(body or {}))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ClusterUnreachableError(
                self._no_answer_to(request, error), remedy=_REMEDY_UNREACHABLE
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._answer_lost(request, _reason(error)) from error
        if response.status_code >= 300:
            failure = self._failure(request, response, secrets)
            # A 5xx that Flink did not write may come from a proxy that had passed the request on.
            if isinstance(failure, ClusterUnreachableError):
                raise self._answer_lost(request, f"HTTP {response.status_code}, not from Flink")
            raise failure
        answer = _json_of(response)
        if not isinstance(answer, dict):
            raise self._answer_lost(request, "what came cannot be read")
        return answer

    def _idempotent(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
    ) -> Any:
        import httpx

        request = f"{method} {path}"
        try:
            response = self._exchange(method, path, params)
        except httpx.ReadTimeout as error:
            # A hanging server is not asked again: the bound would be three times the one given.
            raise ClusterUnreachableError(
                self._no_answer_to(request, error), remedy=_REMEDY_UNREACHABLE
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _NoAnswerYetError(
                self._no_answer_to(request, error), remedy=_REMEDY_UNREACHABLE
            ) from error
        if response.status_code >= 300:
            raise self._failure(request, response, secrets)
        answer = _json_of(response)
        if answer is _UNREADABLE:
            raise ClusterUnreachableError(
                f"The {self._endpoint} answered {request} with something that is not whole JSON.",
                remedy=_REMEDY_NOT_FLINK,
            )
        return answer

    def _failure(
        self, request: str, response: httpx.Response, secrets: Iterable[str]
    ) -> FlinkRequestError | ClusterUnreachableError:
        """The exception for an answer that is not 2xx."""
        status = response.status_code
        cause = _flink_error(response)
        if status in (401, 403):
            return FlinkRequestError(
                f"The {self._endpoint} refused {request}: HTTP {status}.",
                status_code=status,
                root_cause="not authorised",
                remedy="Give the cluster the right auth=BasicAuth(…) or BearerAuth(…).",
            )
        if cause is None:
            # Not Flink's words, so nothing is known about what was asked for: above all, a
            # proxy's 404 does not say that a job is gone.
            kind = _NoAnswerYetError if status in _NO_SERVER_BEHIND else ClusterUnreachableError
            return kind(
                f"The {self._endpoint} answered {request} with HTTP {status}, "
                "in words that are not Flink's.",
                remedy=_REMEDY_NOT_FLINK,
            )
        reason = root_cause(cause, secrets=secrets)
        message = f"The {self._endpoint} answered {request} with HTTP {status}: {reason}."
        if status == 503 and not request.startswith("POST "):
            # "Service temporarily unavailable due to an ongoing leader election."
            return _NoAnswerYetError(message, remedy="Try again in a moment.")
        if status == 404 or _UNKNOWN_TO_GATEWAY.match(reason):
            return NotFoundError(message, status_code=status, root_cause=reason)
        return FlinkRequestError(message, status_code=status, root_cause=reason)

    def _no_answer_to(self, request: str, error: Exception) -> str:
        return f"The {self._endpoint} gave no answer to {request}: {_reason(error)}."

    def _answer_lost(self, request: str, reason: str) -> AnswerLostError:
        return AnswerLostError(
            f"{request} was sent to the {self._endpoint}, but its answer was lost ({reason}).",
            remedy="Look on the cluster whether it took effect before sending it again.",
        )

    def _exchange(self, method: str, path: str, params: Mapping[str, str] | None) -> httpx.Response:
        """One request and its whole answer.

        A GET goes past httpx's client where that has nothing to add, no cookies and no proxies: it
        costs as much as everything else, and a look at a thousand jobs asks a lot.
        """
        import httpx

        client = self._http()
        address, direct = self._address(client, path), self._direct
        if direct is None or method != "GET" or params or client.cookies:
            return client.request(method, address, params=params)
        request = httpx.Request(method, address, headers=client.headers, extensions=self._time_outs)
        response = direct.handle_request(request)
        try:
            response.read()
        except BaseException:
            response.close()
            raise
        if "set-cookie" in response.headers:
            response.request = request
            client.cookies.extract_cookies(response)
        return response

    def _address(self, client: httpx.Client, path: str) -> httpx.URL:
        """The whole address of a path; the same ones are asked for at every look."""
        address = self._addresses.get(path)
        if address is None:
            if len(self._addresses) >= _MAX_ADDRESSES:
                self._addresses.clear()  # ids of jobs that are long gone
            address = self._addresses[path] = client.build_request("GET", path).url
        return address

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> httpx.Client:
        import httpx

        cluster, tls = self._cluster, self._tls()
        limits = httpx.Limits(
            max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS
        )
        time_outs = httpx.Timeout(
            cluster.read_timeout_seconds, connect=cluster.connect_timeout_seconds
        )
        self._time_outs = {"timeout": time_outs.as_dict()}
        # With proxies in the environment the client decides by address how each request goes.
        self._direct = self._transport or (
            None if _proxies() else httpx.HTTPTransport(verify=tls, limits=limits)
        )
        return httpx.Client(
            base_url=self._base_url,
            headers={"Accept": "application/json", **_authorization(cluster.auth)},
            verify=tls,
            timeout=time_outs,
            limits=limits,
            # Following one would send credentials, or repeat a POST, to an address nobody declared.
            follow_redirects=False,
            transport=self._direct,
        )

    def _tls(self) -> ssl.SSLContext | bool:
        verify = self._cluster.verify
        if not self._base_url.startswith("https:"):
            return False  # loading the system's certificates takes tens of milliseconds
        if isinstance(verify, bool):
            return verify
        try:
            if os.path.isdir(verify):
                return ssl.create_default_context(capath=verify)
            return ssl.create_default_context(cafile=verify)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"The CA bundle {verify!r} of cluster {self._cluster.name!r} cannot be read: "
                f"{error.strerror or error}.",
                remedy="Give verify= the path of a PEM file.",
            ) from error


def _authorization(auth: BasicAuth | BearerAuth | None) -> dict[str, str]:
    if auth is None:
        return {}
    if isinstance(auth, BearerAuth):
        return {"Authorization": f"Bearer {auth.token}"}
    pair = f"{auth.username}:{auth.password}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode()}"}


def _proxies() -> bool:
    """Whether the environment names proxies, as httpx looks for them."""
    from urllib.request import getproxies  # with httpx: it takes long to load

    found = getproxies()
    return any(found.get(scheme) for scheme in ("http", "https", "all"))


_UNREADABLE = object()
# Decimal keeps all digits of DECIMAL values in statement results.
_DECODER = json.JSONDecoder(parse_float=Decimal)


def _json_of(response: httpx.Response) -> Any:
    if not response.content or response.content.isspace():
        return {}
    try:
        return _DECODER.decode(response.content.decode())
    except ValueError:
        return _UNREADABLE


def _flink_error(response: httpx.Response) -> str | None:
    """The text of Flink's own error answer, ``{"errors": [...]}``; None if it is not one."""
    answer = _json_of(response)
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if not isinstance(errors, list) or not errors:
        return None
    return "\n".join(str(error) for error in errors)


def _reason(error: Exception) -> str:
    import httpx

    if isinstance(error, httpx.ConnectTimeout):
        return "no connection within the time-out"
    if isinstance(error, httpx.TimeoutException):
        return "time-out"
    return f"{type(error).__name__} {error}".strip()

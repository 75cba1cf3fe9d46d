"""Faults at the HTTP level: canned answers, and a server that breaks off, hangs or counts."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from lakehouse_dagster.flink import FlinkCluster, JobManager, SqlGateway

JOB = "0123456789abcdef0123456789abcdef"
SESSION = "11111111-2222-3333-4444-555555555555"
OPERATION = "66666666-7777-8888-9999-000000000000"
CLUSTER = FlinkCluster("http://jobmanager:8081", "http://gateway:8083", connect_timeout_seconds=0.5)

Answer = Callable[[httpx.Request], httpx.Response]


class Recorder(httpx.MockTransport):
    """Answers every request with the given function and remembers the requests."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[httpx.Request] = []

        def recorded(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return answer(request)

        super().__init__(recorded)

    @property
    def sent(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.requests]


def always(status: int = 200, **content: Any) -> Recorder:
    return Recorder(lambda request: httpx.Response(status, **content))


def failing(error: type[httpx.TransportError]) -> Recorder:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error("broken on purpose", request=request)

    return Recorder(answer)


def flink_error(status: int, *lines: str) -> httpx.Response:
    return httpx.Response(status, json={"errors": ["\n".join(lines)]})


def job_manager(transport: httpx.BaseTransport, cluster: FlinkCluster = CLUSTER) -> JobManager:
    return JobManager(cluster, transport=transport)


def sql_gateway(transport: httpx.BaseTransport, cluster: FlinkCluster = CLUSTER) -> SqlGateway:
    return SqlGateway(cluster, transport=transport)


class RawServer:
    """Accepts connections, reads one request each, and does with it what it was told to."""

    def __init__(self, reply: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._reply = reply
        self._tls = tls
        self._stopped = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                while request := connection.recv(65536):
                    self.requests.append(request)
                    if self._reply is None:
                        self._stopped.wait(10)
                        return
                    connection.sendall(self._reply)
                    if b"Connection: close" in self._reply or not self._reply:
                        return
        except OSError:
            return

    def stop(self) -> None:
        self._stopped.set()
        self._socket.close()


@contextmanager
def raw_server(reply: bytes | None, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """``reply`` is sent as it is to every request; None: never answer; empty: hang up."""
    server = RawServer(reply, tls)
    try:
        yield server
    finally:
        server.stop()


def http_reply(body: bytes, *, length: int | None = None, close: bool = False) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length or len(body)}\r\n"
    if close:
        head += "Connection: close\r\n"
    return head.encode() + b"\r\n" + body


def cluster_at(port: int, *, scheme: str = "http", **settings: Any) -> FlinkCluster:
    url = f"{scheme}://127.0.0.1:{port}"
    return FlinkCluster(url, url, **settings)


OVERVIEW: dict[str, Any] = {
    "taskmanagers": 2,
    "slots-total": 8,
    "slots-available": 5,
    "jobs-running": 3,
    "jobs-finished": 1,
    "jobs-cancelled": 4,
    "jobs-failed": 6,
    "flink-version": "2.0.2",
    "flink-commit": "a2a1e27",
}

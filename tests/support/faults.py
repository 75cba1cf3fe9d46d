"""Faults made on purpose: a proxy that loses answers, files held back, processes that are killed.

The proxy listens on a real socket in front of one REST endpoint. It passes everything on until it
is told to do otherwise with some requests, and remembers all that it saw.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from lakehouse_dagster.local.processes import alive
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.local.state import read_state
from tests.support.laboratory import until


class Does(str, Enum):
    """What the proxy does with a request."""

    PASS_ON = "pass on"
    LOSE_ANSWER = "pass on, then hang up without the answer"
    LOSE_REQUEST = "hang up without passing on"
    ANSWER_503 = "answer 503 as a proxy without a server behind it"
    ANSWER_ITSELF = "answer with the fault's own body"
    DOUBLE = "pass on twice, as a proxy that tries again does, and answer with the second answer"
    TRUNCATE_ANSWER = "pass on, then send half of the answer and hang up"
    HANG = "neither pass on nor answer until the proxy is healed"


_PASS_ON = (Does.PASS_ON, Does.LOSE_ANSWER, Does.DOUBLE, Does.TRUNCATE_ANSWER)

STATEMENT = r"/v3/sessions/[^/]+/statements"
"""The path of a statement POST; the statement itself stands in the body."""

CALL = r'"CALL sys\.'
"""Of any of Paimon's procedures."""

INSERT = r'"statement":\s*"(INSERT|EXECUTE STATEMENT SET)'


@dataclass
class Fault:
    """What happens to requests whose path and body match, ``times`` times."""

    method: str
    """``*`` for any."""
    path: str
    does: Does
    body: str = ""
    times: int = 1
    skip: int = 0
    """So many requests that match pass before it begins."""
    delay_seconds: float = 0.0
    """Before the request is passed on."""
    answer_delay_seconds: float = 0.0
    """After the endpoint has answered."""
    before: Callable[[], None] | None = None
    """Called before anything else, for example to kill a process at exactly this moment."""
    after: Callable[[], None] | None = None
    """Called when the endpoint has answered, before the answer is passed on or lost."""
    answer: bytes = b"{}"

    def matches(self, request: Seen) -> bool:
        return (
            self.times > 0
            and self.method in ("*", request.method)
            and re.search(self.path, request.path) is not None
            and re.search(self.body, request.body) is not None
        )


@dataclass(frozen=True)
class Seen:
    """One request that reached the proxy."""

    method: str
    path: str
    body: str = field(repr=False)
    passed_on: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked was killed or hung up: nothing to tell of."""


class FaultyProxy:
    """A context manager; ``url`` stands for the endpoint at ``target``."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._host, self._port = str(address.hostname), int(address.port or 80)
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._healed = threading.Event()
        self.seen: list[Seen] = []
        self.sessions: dict[str, list[str]] = {}
        """The gateway sessions that were opened, with the operations submitted in each."""
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Forget all faults; what hangs is hung up."""
        with self._lock:
            self._faults.clear()
            self._healed.set()
            self._healed = threading.Event()

    def requests(self, method: str, path: str = "", body: str = "") -> list[Seen]:
        """What was seen so far; a statement is found by what stands in its body."""
        with self._lock:
            return [
                one
                for one in self.seen
                if one.method == method and re.search(path, one.path) and re.search(body, one.body)
            ]

    @property
    def inserts(self) -> list[Seen]:
        """The INSERTs that were posted, whether they were passed on or not."""
        return self.requests("POST", STATEMENT, INSERT)

    def _fault_for(self, request: Seen) -> Fault:
        with self._lock:
            for fault in self._faults:
                if not fault.matches(request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return Fault(request.method, "", Does.PASS_ON)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Seen(self.command, self.path, body.decode())
                fault, healed = proxy._fault_for(request), proxy._healed
                if fault.before is not None:
                    fault.before()
                # A broken proxy answers at once when it is healed, as a restarted one would.
                if fault.delay_seconds:
                    healed.wait(fault.delay_seconds)
                does = fault.does
                passes_on = does in _PASS_ON
                with proxy._lock:
                    proxy.seen.append(
                        Seen(request.method, request.path, request.body, passed_on=passes_on)
                    )
                if passes_on:
                    try:
                        for _ in range(2 if does is Does.DOUBLE else 1):
                            status, content = proxy._forward(request, body)
                    except OSError:
                        does = Does.LOSE_REQUEST  # there is no server behind us
                if does is Does.HANG:
                    healed.wait(120)
                    does = Does.LOSE_REQUEST
                if fault.after is not None:
                    fault.after()
                if fault.answer_delay_seconds:
                    healed.wait(fault.answer_delay_seconds)
                if does in (Does.LOSE_ANSWER, Does.LOSE_REQUEST):
                    self.close_connection = True
                    return
                if does is Does.ANSWER_503:
                    status, content = 503, b"<html>Service Unavailable</html>"
                elif does is Does.ANSWER_ITSELF:
                    status, content = 200, fault.answer
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    if does is Does.TRUNCATE_ANSWER:
                        content = content[: len(content) // 2]
                        self.close_connection = True
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True  # whoever asked is dead or waits no longer

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        return Handler

    def _forward(self, request: Seen, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(request.method, request.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            self._remember(request, content)
            return answer.status, content
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def _remember(self, request: Seen, content: bytes) -> None:
        """Note the handles of sessions and of the INSERTs in them, also when answers get lost."""
        if request.method != "POST":
            return
        session = re.search(r'"sessionHandle":"([^"]+)"', content.decode(errors="replace"))
        operation = re.search(r'"operationHandle":"([^"]+)"', content.decode(errors="replace"))
        with self._lock:
            if session is not None:
                self.sessions[session[1]] = []
            elif operation is not None and re.search(INSERT, request.body):
                self.sessions.setdefault(request.path.split("/")[3], []).append(operation[1])


class HeldFile:
    """A file that nobody gets open before it is let go, so that whoever needs it stands still.

    It is a lease of Linux's on a file that nobody has open; whoever opens the file waits, in this
    process too. The kernel itself lets it go after 45 s (``/proc/sys/fs/lease-break-time``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def __enter__(self) -> HeldFile:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.let_go()

    def take(self) -> None:
        """From now on whoever opens it waits."""
        descriptor = os.open(self.path, os.O_RDWR)
        # The kernel tells us of who comes by a signal; this one is ignored unless asked for.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        self._descriptor = descriptor

    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        descriptor = self._descriptor
        # A lease that is being broken shows as what it will be.
        return descriptor is not None and fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def wait_until_wanted(self) -> None:
        """Return when somebody stands still for it: what they do is certainly under way.

        Whatever comes before may take long; only then do the kernel's 45 s begin, after which it
        takes the file away from us.
        """
        until(self.is_wanted, f"somebody who opens {self.path.name}", seconds=180)

    def let_go(self) -> None:
        """Let all go on who wait; nothing happens when it was let go already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_cancelled_for_good(rest_url: str, job_id: str) -> bool:
    """Whether all tasks of a Flink job that still live know that it is cancelled.

    Then nothing of it is committed any more, though a task may stand still before it ends. The
    JobManager cannot tell what its tasks know; a task that knows has a thread that interrupts it
    (Flink's ``Task.TaskInterrupter``).
    """

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"{rest_url}{path}", timeout=10) as answer:
            return json.load(answer)

    job = ask(f"/jobs/{job_id}")
    if job["state"] != "CANCELLING":
        return bool(job["state"] == "CANCELED")
    ended = ("FINISHED", "CANCELED")
    left = [vertex["name"] for vertex in job["vertices"] if vertex["status"] not in ended]
    threads = [
        thread["threadName"]
        for task_manager in ask("/taskmanagers")["taskmanagers"]
        for thread in ask(f"/taskmanagers/{task_manager['id']}/thread-dump")["threadInfos"]
    ]
    told = [name for name in threads if name.startswith("Canceler/Interrupts for")]
    return all(any(task in name for name in told) for task in left)


def kill(stack: LocalStack, service: Service) -> None:
    """``kill -9`` one process of a stack of ours and wait until it is gone; up() restarts it."""
    state = read_state(stack.folder)
    assert state is not None
    record = state.processes[service]
    assert alive(record) is not None, f"{service.label} does not run"
    os.kill(record.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive(record) is not None:
        assert time.monotonic() < deadline, f"{service.label} outlives kill -9"
        time.sleep(0.02)

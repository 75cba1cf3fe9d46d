"""A JobManager of canned answers on a free port: what no cluster answers to order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.streaming.making import NOW

MILLIS = int(NOW.timestamp() * 1000)
_NO_CHECKPOINTS = {
    "counts": {"completed": 0, "failed": 0, "in_progress": 0, "restored": 0, "total": 0},
    "latest": {"completed": None, "savepoint": None, "failed": None, "restored": None},
}


def overview_entry(job_id: str, status: str = "RUNNING", **values: Any) -> dict[str, Any]:
    """One job of ``GET /jobs/overview``, with one task that runs if the job does."""
    running = int(status == "RUNNING")
    return {
        "jid": job_id,
        "name": "job",
        "state": status,
        "start-time": MILLIS,
        "end-time": -1,
        "duration": 1000,
        "tasks": {"total": 1, "running": running, "finished": 0},
        **values,
    }


def completed_checkpoint(number: int) -> dict[str, Any]:
    """The answer of ``GET /jobs/:id/checkpoints`` after so many checkpoints."""
    newest = {
        "id": number,
        "external_path": f"file:/checkpoints/chk-{number}",
        "latest_ack_timestamp": MILLIS,
        "trigger_timestamp": MILLIS,
        "end_to_end_duration": 5,
        "state_size": 10,
        "is_savepoint": False,
    }
    return {
        "counts": {**_NO_CHECKPOINTS["counts"], "completed": number, "total": number},
        "latest": {**_NO_CHECKPOINTS["latest"], "completed": newest},
    }


@dataclass
class Overview:
    """What the server answers, and what it was asked."""

    rest_url: str = ""
    jobs: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    status_code: int = 200
    body: bytes | None = None
    requests: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.body is not None or self.status_code != 200:
            return self.status_code, self.body or b'{"errors": ["not now"]}'
        if path == "/jobs/overview":
            return 200, json.dumps({"jobs": self.jobs}).encode()
        job_id = path.split("/")[2]
        return 200, json.dumps(self.checkpoints.get(job_id, _NO_CHECKPOINTS)).encode()


@contextmanager
def overview_server() -> Iterator[Overview]:
    """Serve until the block ends."""
    overview = Overview()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = overview.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    overview.rest_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield overview
    finally:
        server.shutdown()
        server.server_close()

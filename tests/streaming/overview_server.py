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


def as_flink_shows_it(parameters: str) -> dict[str, str]:
    """Global job parameters, as ``GET /jobs/:id/config`` shows what was set."""
    return dict(entry.split(":", 1) for entry in parameters.split(","))  # type: ignore[misc]


def completed_checkpoint(number: int, *, after_ms: int = 0) -> dict[str, Any]:
    """The answer of ``GET /jobs/:id/checkpoints`` after so many checkpoints."""
    newest = {
        "id": number,
        "external_path": f"file:/checkpoints/chk-{number}",
        "latest_ack_timestamp": MILLIS + after_ms,
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
    left_out: set[str] = field(default_factory=set)
    """Ids of those that ``/jobs/overview`` lacks, and ``/jobs/:id`` shows."""
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    exceptions: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """By job: milliseconds since NOW and stack trace of each."""
    markers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By job: the global job parameters that it was submitted with."""
    configuration: dict[str, str] = field(default_factory=dict)
    """The JobManager's own."""
    slots_available: int = 4
    task_managers: int = 1
    status_code: int = 200
    body: bytes | None = None
    requests: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.body is not None or self.status_code != 200:
            return self.status_code, self.body or b'{"errors": ["not now"]}'
        if path == "/jobs/overview":
            shown = [job for job in self.jobs if job["jid"] not in self.left_out]
            return 200, json.dumps({"jobs": shown}).encode()
        if path == "/jobmanager/config":
            shown = [{"key": k, "value": v} for k, v in self.configuration.items()]
            return 200, json.dumps(shown).encode()
        if path == "/overview":
            return 200, json.dumps(self._cluster()).encode()
        job_id = path.split("/")[2]
        if path == f"/jobs/{job_id}":
            job = next((job for job in self.jobs if job["jid"] == job_id), None)
            if job is None:
                return 404, json.dumps({"errors": [f"Job {job_id} not found"]}).encode()
            tasks = {"RUNNING": job["tasks"]["running"], "FINISHED": job["tasks"]["finished"]}
            tasks["SCHEDULED"] = job["tasks"]["total"] - sum(tasks.values())
            return 200, json.dumps({**job, "vertices": [{"tasks": tasks}]}).encode()
        if path.endswith("/exceptions"):
            return 200, json.dumps(self._exceptions(job_id)).encode()
        if path.endswith("/config"):
            user_config = self.markers.get(job_id, {})
            shown = {"jid": job_id, "name": "job", "execution-config": {"user-config": user_config}}
            return 200, json.dumps(shown).encode()
        return 200, json.dumps(self.checkpoints.get(job_id, _NO_CHECKPOINTS)).encode()

    def _exceptions(self, job_id: str) -> dict[str, Any]:
        entries = [
            {"stacktrace": text, "timestamp": MILLIS + at, "exceptionName": "x"}
            for at, text in self.exceptions.get(job_id, [])
        ]
        return {"exceptionHistory": {"entries": entries, "truncated": False}}

    def _cluster(self) -> dict[str, Any]:
        return {
            "flink-version": "2.0.2",
            "taskmanagers": self.task_managers,
            "slots-total": 4 * self.task_managers,
            "slots-available": self.slots_available,
            "jobs-running": len(self.jobs),
            "jobs-finished": 0,
            "jobs-cancelled": 0,
            "jobs-failed": 0,
        }


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

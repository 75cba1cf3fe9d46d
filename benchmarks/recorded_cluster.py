"""A JobManager that answers from a record: an overview of many healthy jobs, and their checkpoints.

``python -m benchmarks.recorded_cluster JOBS`` prints its port and serves until it is killed, in a
process of its own, so that its CPU time is nobody's whom we measure. It imports none of our code.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_NAMESPACE = uuid.UUID("6f1d0f0a-3c58-5b0e-9d57-0a6e4c1d7b21")
_TASKS = (
    "scheduled",
    "running",
    "deploying",
    "reconciling",
    "initializing",
    "finished",
    "created",
    "failed",
    "canceling",
    "canceled",
    "pending",
)


def job_name(number: int) -> str:
    """The name of the n-th job, from 0."""
    return f"job_{number:05d}"


def job_id(identity: str, number: int) -> str:
    """The id of the first incarnation of the n-th job."""
    return uuid.uuid5(_NAMESPACE, f"{identity}/{job_name(number)}/1").hex


def overview(identity: str, jobs: int) -> bytes:
    """``GET /jobs/overview`` as Flink 2.0 answers it for so many jobs that run."""
    now = int(time.time() * 1000)
    entries: list[dict[str, Any]] = [
        {
            "jid": job_id(identity, n),
            "name": job_name(n),
            "start-time": now - 3_600_000,
            "end-time": -1,
            "duration": 3_600_000 + n,
            "state": "RUNNING",
            "last-modification": now - 3_500_000,
            "tasks": {"total": 4, **{t: 4 if t == "running" else 0 for t in _TASKS}},
            "pending-operators": 0,
        }
        for n in range(jobs)
    ]
    return json.dumps({"jobs": entries}).encode()


def checkpoints(completed: int) -> bytes:
    """``GET /jobs/:id/checkpoints`` of a job whose n-th checkpoint completed just now."""
    now = int(time.time() * 1000)
    size = {"min": 1, "max": 9, "avg": 5, "p50": 5, "p90": 9, "p95": 9, "p99": 9, "p999": 9}
    checkpoint = {
        "className": "completed",
        "id": completed,
        "status": "COMPLETED",
        "is_savepoint": False,
        "savepointFormat": None,
        "trigger_timestamp": now - 900,
        "latest_ack_timestamp": now - 800,
        "checkpointed_size": 5_000,
        "state_size": 5_000,
        "end_to_end_duration": 100,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": 4,
        "num_acknowledged_subtasks": 4,
        "checkpoint_type": "CHECKPOINT",
        "tasks": {},
        "external_path": f"file:/checkpoints/chk-{completed}",
        "discarded": False,
    }
    counts = {"restored": 0, "in_progress": 0, "failed": 0}
    counts |= {"total": completed, "completed": completed}
    summary = dict.fromkeys(
        ("checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered"), size
    )
    latest = {"completed": checkpoint, "savepoint": None, "failed": None, "restored": None}
    answer = {
        "counts": counts,
        "summary": summary,
        "latest": latest,
        "history": [checkpoint] * 7,
    }
    return json.dumps(answer).encode()


def serve(identity: str, jobs: int) -> None:
    """Serve on a free port, printed first, until killed."""
    whole = overview(identity, jobs)
    # Whoever asks about a job after a round finds a newer checkpoint than the last time.
    numbers = itertools.count(7)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet, as Flink's server sends them

        def do_GET(self) -> None:
            body = whole if self.path == "/jobs/overview" else checkpoints(next(numbers))
            self.send_response(200)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))

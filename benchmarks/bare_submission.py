"""The baseline of ``failover``: a job submitted by hand, from a checkpoint; none of our code.

    python -m benchmarks.bare_submission GATEWAY_URL REST_URL STATEMENTS.json

The file is a JSON object of ``statements`` and ``settings``, with which the last one is sent. The
job is started from nothing, and then, for every line on stdin, from the newest checkpoint of its
last life, which was cancelled before; the seconds from the first request to its start are printed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import httpx

from benchmarks.bare_ingest import submit


def run(gateway_url: str, rest_url: str, statements: list[str], settings: dict[str, str]) -> None:
    with httpx.Client(timeout=60) as client:
        job_id = submit(client, gateway_url, statements, settings)
        checkpoint = _ended_after_a_checkpoint(client, rest_url, job_id)
        for _ in sys.stdin:
            restored = {**settings, "execution.state-recovery.path": checkpoint}
            began = time.time()
            job_id = submit(client, gateway_url, statements, restored)
            started = client.get(f"{rest_url}/jobs/{job_id}").json()["start-time"] / 1000
            sys.stdout.write(f"{started - began}\n")
            sys.stdout.flush()
            checkpoint = _ended_after_a_checkpoint(client, rest_url, job_id)


def _ended_after_a_checkpoint(client: httpx.Client, rest_url: str, job_id: str) -> str:
    """Cancel the job once it has completed a checkpoint; the checkpoint's path."""
    job = f"{rest_url}/jobs/{job_id}"
    while not (done := client.get(f"{job}/checkpoints").json()["latest"]["completed"]):
        time.sleep(0.2)
    client.patch(job)
    while client.get(job).json()["state"] != "CANCELED":
        time.sleep(0.1)
    return str(done["external_path"])


if __name__ == "__main__":
    task = json.loads(Path(sys.argv[3]).read_text())
    run(sys.argv[1], sys.argv[2], task["statements"], task["settings"])

"""The baseline of ``ingest``: a script sent to a SQL Gateway by hand; imports none of our code.

    python benchmarks/bare_ingest.py GATEWAY_URL REST_URL STATEMENTS.json

Runs the statements (a JSON list; the last one starts the job), waits until the job has finished and
prints its own duration in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx


def submit(
    client: httpx.Client,
    gateway_url: str,
    statements: Sequence[str],
    settings: Mapping[str, str] | None = None,
) -> str:
    """Send the statements in one session, the last one with ``settings``; its job's id."""
    session = client.post(f"{gateway_url}/v3/sessions", json={}).json()["sessionHandle"]
    base = f"{gateway_url}/v3/sessions/{session}"
    job_id = ""
    for statement in statements:
        body: dict[str, object] = {"statement": statement}
        if settings and statement == statements[-1]:
            body["executionConfig"] = dict(settings)
        operation = client.post(f"{base}/statements", json=body).json()["operationHandle"]
        while True:
            answer = client.get(f"{base}/operations/{operation}/result/0").json()
            if "errors" in answer:
                raise SystemExit("\n".join(answer["errors"])[-2000:])
            if answer["resultType"] != "NOT_READY":
                break
            time.sleep(0.05)
        job_id = answer.get("jobID", job_id)
    return job_id


def run(gateway_url: str, rest_url: str, statements: list[str]) -> float:
    with httpx.Client(timeout=60) as client:
        job_id = submit(client, gateway_url, statements)
        while True:
            job = client.get(f"{rest_url}/jobs/{job_id}").json()
            if job["state"] == "FINISHED":
                return float(job["duration"]) / 1000
            if job["state"] in ("FAILED", "CANCELED"):
                raise SystemExit(f"the job is {job['state']}")
            time.sleep(0.2)


if __name__ == "__main__":
    seconds = run(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text()))
    sys.stdout.write(f"{seconds}\n")

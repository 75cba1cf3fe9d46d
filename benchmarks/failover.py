"""``failover``: from a job's death to its next submission, against two ticks and a bare one.

The job is cancelled behind our back, at another moment between two ticks each time; what looks,
claims and starts is what the sensor and its run do. The clock stops at the new job's start-time as
the JobManager tells it. The bare submission sends the same SQL by hand, restored from a checkpoint
too. How long it takes when the JobManager is killed is only told: that waits for Flink to come up
and for the job to count as lost.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.child import child
from benchmarks.goal import Goal, say
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SystemDatabase
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.streaming.supervise import SupervisorCursor, claim, look

PAIRS = 5
TICK_SECONDS = 2.0
JOB = "failover"

DATABASE = "CREATE DATABASE IF NOT EXISTS bench"
TABLE = "CREATE TABLE IF NOT EXISTS bench.{name} (id BIGINT, v BIGINT)"
SOURCE = """CREATE TEMPORARY TABLE gen (id BIGINT, v BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '20')"""
INSERT = "INSERT INTO bench.{name} SELECT id, v FROM gen"
INTERVAL = ("execution.checkpointing.interval", "1s")
KEEP = ("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")


def run() -> list[Goal]:
    """Interleaved pairs; the median of the ratios counts."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        stack = LocalStack(home / "stack", slots=2)
        try:
            status = stack.up()
            cluster = FlinkCluster(status.rest_url, status.sql_gateway_url)
            ours = _Supervised.started(home, cluster)
            with _bare(home, cluster) as bare:
                for pair in range(PAIRS):
                    measured = ours.cancelled(after_seconds=TICK_SECONDS * (pair + 0.5) / PAIRS)
                    submission = bare("")
                    ratios.append(measured / (2 * TICK_SECONDS + submission))
                    say(
                        f"failover: submitted again {measured:.2f} s after it was cancelled; "
                        f"{submission:.2f} s to submit it bare, ticks every {TICK_SECONDS:g} s, "
                        f"pair {pair + 1}"
                    )
            seconds = ours.left_by_the_job_manager(stack)
            say(f"failover: submitted again {seconds:.1f} s after the JobManager was killed")
        finally:
            stack.down()
    return [Goal("failover", ratios, at_most=1.0)]


class _Supervised:
    """A job of the project, and the supervisor's ticks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._client = httpx.Client(base_url=runtime.cluster.rest_url, timeout=60)
        self._cursor = SupervisorCursor()
        self._job_id = ""

    @classmethod
    def started(cls, home: Path, cluster: FlinkCluster) -> _Supervised:
        """The job, started by a person."""
        script = home / f"{JOB}.sql"
        option = "SET '{}' = '{}'".format(*INTERVAL)
        parts = [DATABASE, TABLE.format(name=JOB), SOURCE, option, INSERT.format(name=JOB)]
        script.write_text(";\n".join(parts) + ";\n")
        lake = Lakehouse(
            catalog=PaimonCatalog(str(home / "warehouse")),
            flink=cluster,
            name=JOB,
            system_database=SystemDatabase(f"sqlite:///{home}/system.db"),
            supervision=SupervisionPolicy(tick_interval=f"{TICK_SECONDS:g}s"),
        ).load(script)
        supervised = cls(lake.runtime)
        (applied,) = apply(lake.runtime, [(JOB, verb("start"))], holder="benchmark")
        if applied.error is not None:
            raise applied.error
        assert isinstance(applied.outcome, StartOutcome)
        supervised._job_id = applied.outcome.flink_job_id
        return supervised

    def cancelled(self, *, after_seconds: float) -> float:
        """Seconds from a cancellation, so long after a tick, to the start of the next job."""
        return self._died(after_seconds, lambda: self._client.patch(f"/jobs/{self._job_id}"))

    def left_by_the_job_manager(self, stack: LocalStack) -> float:
        """Seconds from the death of the JobManager, which comes back empty, to the next job."""
        pids = {process.name: process.pid for process in stack.status().processes}
        pid = pids[Service.JOB_MANAGER.value]
        assert pid is not None
        back = threading.Thread(target=stack.up)

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            back.start()

        seconds = self._died(TICK_SECONDS / 2, kill)
        back.join()
        return seconds

    def _died(self, after_seconds: float, kill: Callable[[], object]) -> float:
        self._has_a_checkpoint()
        # Each death is the first: earlier ones do not back it off.
        self._runtime.memory.reset_attempts(JOB)
        next_tick = time.monotonic()
        assert self._tick() is None
        time.sleep(after_seconds)
        killed = time.time()
        kill()
        outcome = None
        while outcome is None:
            next_tick += TICK_SECONDS
            time.sleep(max(0.0, next_tick - time.monotonic()))
            outcome = self._tick()
        assert outcome.restored_from is not None
        self._job_id = outcome.flink_job_id
        started: float = self._client.get(f"/jobs/{self._job_id}").json()["start-time"] / 1000
        return started - killed

    def _tick(self) -> StartOutcome | None:
        """What the sensor does, and the run that it asks for."""
        runtime = self._runtime
        seen = look(runtime, SupervisorCursor.parse(self._cursor.model_dump_json()))
        self._cursor = seen.cursor
        if not seen.actions:
            return None
        claim(runtime, seen.actions)
        work = [(action.job, verb(action.verb.value)) for action in seen.actions]
        (applied,) = apply(runtime, work, holder="benchmark")
        if applied.error is not None:
            raise applied.error
        assert isinstance(applied.outcome, StartOutcome)
        return applied.outcome

    def _has_a_checkpoint(self) -> None:
        while True:
            counts = self._client.get(f"/jobs/{self._job_id}/checkpoints").json()["counts"]
            if counts["completed"] >= 2:
                return
            time.sleep(0.2)


@contextmanager
def _bare(home: Path, cluster: FlinkCluster) -> Iterator[Callable[[str], float]]:
    """Submits the same SQL, for a table of its own, by hand; seconds of each submission."""
    name = "bare"
    task = home / "bare.json"
    create = f"CREATE CATALOG lake WITH ('type'='paimon','warehouse'='file://{home}/warehouse')"
    statements = [create, "USE CATALOG lake", DATABASE, TABLE.format(name=name), SOURCE]
    statements.append(INSERT.format(name=name))
    settings = {"pipeline.name": name, **dict([INTERVAL, KEEP])}
    task.write_text(json.dumps({"statements": statements, "settings": settings}))
    urls = (cluster.sql_gateway_url, cluster.rest_url)
    with child("-m", "benchmarks.bare_submission", *urls, str(task)) as submission:
        yield submission

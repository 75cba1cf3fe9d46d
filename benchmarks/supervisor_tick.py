"""``supervisor_tick``: CPU time of one look at 1,000 healthy jobs, against fetching it bare.

The baseline fetches and parses, with the same HTTP library and none of our code, what the look
fetches: the overview and the details of the jobs whose turn it is. Ours also compares all with the
system database and with what was reported before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.child import child
from benchmarks.goal import Goal, say
from benchmarks.recorded_cluster import job_id, job_name
from lakehouse_dagster import FlinkCluster, PaimonCatalog, SystemDatabase
from lakehouse_dagster.sql.model import JobDefinition, Location, Statement, StatementKind
from lakehouse_dagster.streaming.reported import changes
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.spec import StreamingJob, SupervisionPolicy
from lakehouse_dagster.streaming.supervise import SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState

JOBS = 1_000
TURNS = 41
TICKS = 6

_BARE = """
import httpx, sys, time
url, ids = sys.argv[1], sys.argv[2].split(",")
client = httpx.Client(base_url=url)
def tick(details):
    client.get("/jobs/overview").json()
    for n in range(details):
        client.get(f"/jobs/{ids[n]}/checkpoints").json()
tick(len(ids))
for line in sys.stdin:
    details, ticks = map(int, line.split())
    began = time.process_time()
    for _ in range(ticks):
        tick(details)
    print(time.process_time() - began, flush=True)
"""


def run() -> list[Goal]:
    """Short turns of two processes, one after the other; the median of the ratios counts."""
    policy = SupervisionPolicy()
    with tempfile.TemporaryDirectory() as folder:
        identity = _runtime(Path(folder), "http://127.0.0.1:1", policy).identity
        with _recorded_cluster(identity) as url:
            runtime = _runtime(Path(folder), url, policy)
            _everything_runs(replace(runtime, clock=Clock()))
            _seen_within_half_its_bound(policy)
            turns = _turns(runtime, url, policy.details_per_tick)
    ours, bare, alone = (statistics.median(column) * 1000 for column in zip(*turns, strict=True))
    say(
        f"supervisor_tick: {ours:.1f} ms of CPU a tick for {JOBS} jobs, {bare:.1f} ms to fetch the "
        f"same bare ({alone:.1f} ms the overview alone); medians of {TURNS} turns"
    )
    return [Goal("supervisor_tick", [ours / bare for ours, bare, _ in turns], at_most=1.5)]


def _turns(runtime: Runtime, url: str, details: int) -> list[tuple[float, float, float]]:
    """Seconds of CPU a tick in each turn: ours, bare, and bare without the details."""
    turns = []
    ids = ",".join(job_id(runtime.identity, n) for n in range(details))
    with child("-c", _BARE, url, ids) as bare:
        cursor = _tick(runtime, _tick(runtime, None))
        for _ in range(TURNS):
            began = time.process_time()
            for _ in range(TICKS):
                cursor = _tick(runtime, cursor)
            ours = (time.process_time() - began) / TICKS
            turns.append((ours, bare(f"{details} {TICKS}") / TICKS, bare(f"0 {TICKS}") / TICKS))
    return turns


def _seen_within_half_its_bound(policy: SupervisionPolicy) -> None:
    round_seconds = JOBS / policy.details_per_tick * policy.seconds("tick_interval")
    assert round_seconds <= policy.seconds("no_checkpoint_after") / 2, round_seconds


def _tick(runtime: Runtime, text: str | None) -> str:
    """As the sensor does: the cursor comes as text and goes as text, changes are looked for."""
    seen = look(runtime, SupervisorCursor.parse(text))
    assert seen.summary() == f"{JOBS} RUNNING", seen.summary()
    assert not seen.actions
    _, told = changes(runtime, seen.observations, seen.cursor.health)
    return seen.cursor.model_copy(update={"health": told}).model_dump_json()


def _everything_runs(runtime: Runtime) -> None:
    now = datetime.now(timezone.utc)
    runtime.memory.ensure_all(runtime.jobs)
    for number, (name, job) in enumerate(runtime.jobs.items()):
        runtime.memory.set_desired(name, DesiredState.RUNNING)
        runtime.memory.record(
            name,
            number=1,
            flink_job_id=job_id(runtime.identity, number),
            fingerprint=job.fingerprint,
            restored_from=None,
            fencing=1,
            session_handle=None,
        )
        runtime.memory.update(
            name, 1, state=IncarnationState.RUNNING, running_at=now, checkpoint_at=now
        )


def _runtime(folder: Path, url: str, policy: SupervisionPolicy) -> Runtime:
    return Runtime(
        lakehouse="bench",
        cluster=FlinkCluster(url, url),
        catalog=PaimonCatalog(warehouse=str(folder / "warehouse")),
        system_database=SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}"),
        jobs={job_name(n): _job(job_name(n)) for n in range(JOBS)},
        policy=policy,
        # Some minutes after all was started: in the first ones health is told more often.
        clock=Clock(now=lambda: datetime.now(timezone.utc) + timedelta(minutes=5)),
    )


def _job(name: str) -> StreamingJob:
    place = Location(f"{name}.sql", 1, 1)
    statement = Statement(f"INSERT INTO ods.{name} SELECT * FROM src", place, StatementKind.INSERT)
    return StreamingJob(
        JobDefinition(
            name=name,
            name_is_explicit=True,
            statement=statement,
            setup=(),
            settings={},
            sinks=(),
            reads=(),
            sources=(),
            reads_itself=False,
            dependencies_known=True,
            location=place,
        )
    )


@contextmanager
def _recorded_cluster(identity: str) -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.recorded_cluster", identity, str(JOBS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()

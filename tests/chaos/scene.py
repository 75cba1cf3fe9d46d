"""One fault's stage: a lakehouse of its own, processes that act on it, proxies in between."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from lakehouse_dagster.errors import FlinkError, LakehouseError, NotFoundError
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.streaming.previous import own_numbers
from lakehouse_dagster.system_db import DesiredState
from tests.chaos.stack import job_manager_log
from tests.support.actor import UNEXPECTED
from tests.support.faults import FaultyProxy, kill
from tests.support.history import JobWatcher, LogHistory, job_manager_history
from tests.support.laboratory import TABLE, Laboratory, until
from tests.support.processes import Actor, Forked
from tests.support.proof import Evidence, violations
from tests.support.rows import compare

T = TypeVar("T")

PATIENCE_SECONDS = 75.0
"""How long a job may take until it is as desired, on a slow and busy machine."""
POLICY: dict[str, Any] = {
    # Several faults share the gateway: a late submission shows up later than on an idle one.
    "late_submission_grace": "4s",
    "submission_timeout": "16s",
    "max_attempts": 50,
}


class NotRunnableError(Exception):
    """What the product lacks for this variant so far; it counts as neither passed nor failed."""


class Scene:
    """A context manager; whatever it started is gone at its end."""

    def __init__(self, folder: Path, stack: LocalStack, chances: random.Random) -> None:
        status = stack.status()
        self.stack = stack
        self.random = chances
        self.gateway = FaultyProxy(status.sql_gateway_url)
        self.rest = FaultyProxy(status.rest_url)
        self.lab = Laboratory(folder, status.rest_url, status.sql_gateway_url)
        self.actors: list[Actor] = []
        self.may_fail: set[str] = set()
        """Names of actors that the fault itself makes end otherwise than well."""
        self.foreign_ids: set[str] = set()
        self.record_is_lost = False
        """The database forgot incarnations: what is written down anew lacks what only it knew."""
        self.proved = False
        """Set by a scenario that had to prove all itself, before its stage was taken down."""
        self.moment = ""
        self.armed = threading.Event()
        """Set when a fault that waits for its moment has struck."""
        self._watcher = JobWatcher(
            self.lab.cluster, self.lab.job, every_seconds=0.25, foreign=self.foreign_ids
        )

    def __enter__(self) -> Scene:
        for part in (self.gateway, self.rest, self._watcher):
            part.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        for actor in self.actors:
            actor.kill()
        for part in (self._watcher, self.gateway, self.rest):
            part.__exit__(None, None, None)
        self.lab.clean_up()
        self._cancel_foreign()

    # -- what the fault is made of --------------------------------------------------------------

    def at(self, moment: str) -> None:
        """Note for the ledger where the fault strikes."""
        self.moment = f"{self.moment}; {moment}" if self.moment else moment

    def chance(self, *choices: T) -> T:
        return self.random.choice(choices)

    def seconds(self, least: float, most: float) -> float:
        return round(self.random.uniform(least, most), 2)

    def pause(self, least: float, most: float) -> None:
        """A random moment; said in the ledger."""
        length = self.seconds(least, most)
        self.at(f"{length:g} s later")
        time.sleep(length)

    def process(self, what: str, name: str | None = None, **differences: Any) -> Actor:
        """Another process that sees the cluster through the proxies."""
        name = name or f"{what}-{len(self.actors) + 1}"
        policy = {**POLICY, **differences.pop("policy", {})}
        addresses = {"rest_url": self.rest.url, "sql_gateway_url": self.gateway.url}
        actor = Actor.start(self.lab, what, name, policy=policy, **{**addresses, **differences})
        return self._joins(actor)

    def daemon(self) -> Actor:
        """A process that evaluates the sensors on a Dagster instance in the scene's folder."""
        from tests.support import daemon

        name = f"daemon-{len(self.actors) + 1}"
        log, stop_file = self.lab.folder / f"{name}.log", self.lab.folder / f"{name}.stop"
        process = Forked(daemon.run, log, self.lab.settings, POLICY, str(stop_file))
        return self._joins(Actor(process, log, stop_file))

    def _joins(self, actor: Actor) -> Actor:
        self.actors.append(actor)
        with (self.lab.folder / "pids").open("a") as file:
            file.write(f"{actor.process.pid}\n")
        return actor

    def supervise(self, processes: int | None = None, **differences: Any) -> list[Actor]:
        """One or two supervisors, as two code locations on one system database."""
        processes = processes or self.chance(1, 1, 2)
        return [
            self.process("supervise", f"supervisor-{i}", **differences)
            for i in range(1, processes + 1)
        ]

    def want(self, desired: DesiredState) -> None:
        """What a person decided, written down before anybody acts."""
        self.lab.books.memory.ensure(self.lab.job)
        self.lab.books.memory.set_desired(self.lab.job, desired)

    def running_job(self, rows: int = 40) -> str:
        """Start the job in this process, past the proxies, and wait for rows and a checkpoint."""
        self.lab.source.write(rows)
        outcome = self.lab.start()
        self.lab.copied(seconds=PATIENCE_SECONDS)
        self.lab.wait_for_checkpoints(outcome.flink_job_id, 1)
        return outcome.flink_job_id

    @contextmanager
    def live_rows(self, files: int = 25) -> Iterator[None]:
        """The source goes on while the block runs: a file every 0.4 s, not without end."""
        done = threading.Event()

        def write() -> None:
            for _ in range(files):
                if done.wait(0.4):
                    return
                self.lab.source.write(20)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def kill(self, service: Service) -> None:
        """``kill -9`` a process of the cluster."""
        self.at(f"{service.label} killed")
        kill(self.stack, service)

    # -- what must come of it -------------------------------------------------------------------

    def until(self, look: Callable[[], T | None], what: str, seconds: float = 45.0) -> T:
        return until(look, what, seconds=seconds)

    def desired(self) -> DesiredState:
        return self.lab.books.memory.ensure(self.lab.job).desired

    def one_runs(self) -> str | None:
        """The id of the job if exactly the newest incarnation runs, with all its tasks."""
        newest = self.lab.books.memory.latest(self.lab.job)
        try:
            alive = self.lab.on_cluster()
        except FlinkError:
            return None
        good = [j for j in alive if j.all_tasks_run and j.status.value == "RUNNING"]
        if newest is None or len(alive) != 1 or len(good) != 1:
            return None
        return good[0].job_id if good[0].job_id == newest.flink_job_id else None

    def none_runs(self) -> bool:
        try:
            return not self.lab.on_cluster()
        except FlinkError:
            return False

    def prove(self, seconds: float = PATIENCE_SECONDS) -> None:
        """The desired state is reached, stays, and nothing is doubled, lost or left behind."""
        if self.proved:
            return
        self.gateway.heal()
        self.rest.heal()
        if self.desired() is not DesiredState.RUNNING:
            self.until(self.none_runs, "the end of the job", seconds)
            self.end_actors()
            self.lab.start()
        self.until(self.one_runs, "exactly one job", seconds)
        self.lab.source.write(20)
        self.lab.copied(seconds=seconds)
        job_id = self.until(self.one_runs, "exactly one job", seconds)
        self.lab.wait_for_checkpoints(job_id, 2)
        errors = self.end_actors()
        found = violations(self.evidence(job_id, errors))
        assert not found, "; ".join(found)

    def end_actors(self) -> list[str]:
        """Let all processes end by themselves; what they say that nobody should have to read."""
        errors: list[str] = []
        for actor in self.actors:
            said = actor.end()
            lines = [line for line in said.splitlines() if line.startswith(UNEXPECTED)]
            if actor.process.returncode != 0 and actor.stop_file.stem not in self.may_fail:
                last = said.strip().splitlines()[-1:] or [""]
                lines.append(f"{actor.stop_file.stem} ended {actor.process.returncode}: {last[0]}")
            errors += lines
        self.actors.clear()
        return errors

    def evidence(
        self,
        job_id: str,
        errors: list[str],
        job: str | None = None,
        table: str = TABLE,
        history: LogHistory | None = None,
    ) -> Evidence:
        """All that is known of a job whose id is thought to be ``job_id``."""
        lab = self.lab
        job = job or lab.job
        newest = lab.books.memory.latest(job)
        assert newest is not None
        with lab.cluster.job_manager() as job_manager:
            alive = [
                j.job_id for j in job_manager.jobs() if j.name == job and not j.status.is_terminal
            ]
        restored = (newest.restored_from, lab.checkpoints(job_id).restored_path)
        if self.record_is_lost and newest.restored_from is None:
            restored = (restored[1], restored[1])
        lease = lab.books.leases.current(lab.books.memory.lease_key(job))
        return Evidence(
            job=job,
            history=history or job_manager_history(job_manager_log(self.stack)),
            most_at_once=self._watcher.most_at_once,
            foreign_ids=frozenset(self.foreign_ids),
            wanted_id=job_id,
            alive_ids=alive,
            rows=compare(lab.catalog, table, lab.source),
            restored=restored,
            posted_ids=self._posted_ids(),
            held_leases=[lease.key] if lease else [],
            running_submissions=self._running_submissions(),
            unexpected_errors=errors,
        )

    def _posted_ids(self) -> list[str]:
        found = (re.search(r"job-id\W+([0-9a-f]{32})", one.body) for one in self.gateway.inserts)
        return [match[1] for match in found if match]

    def _running_submissions(self) -> list[str]:
        """INSERTs that the gateway still carries out: their jobs could yet appear."""
        running = []
        with self.lab.cluster.sql_gateway() as gateway:
            for session, operations in self.gateway.sessions.items():
                for operation in operations:
                    try:
                        status = gateway.session(session).operation(operation).status()
                    except (NotFoundError, LakehouseError):
                        continue  # closed with its session
                    if status.value in ("RUNNING", "PENDING", "INITIALIZED"):
                        running.append(operation)
        return running

    def _cancel_foreign(self) -> None:
        try:
            with self.lab.cluster.job_manager() as job_manager:
                for job_id in self.foreign_ids:
                    job_manager.cancel(job_id)
        except FlinkError:
            return


def numbers_of(scene: Scene) -> dict[str, int]:
    """The Flink ids that incarnations of the scene's job have or could have."""
    return own_numbers(scene.lab.identity, scene.lab.job, 64)

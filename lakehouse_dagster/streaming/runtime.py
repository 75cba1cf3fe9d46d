"""What every verb of this room needs at hand: the cluster, the catalog, the memory, the clock."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import JobNotFoundError
from lakehouse_dagster.flink import FlinkCluster, JobManager
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.streaming.spec import StreamingJob, SupervisionPolicy
from lakehouse_dagster.system_db import Incarnation, IncarnationState, Lease, SystemDatabase

if TYPE_CHECKING:
    # SQLAlchemy comes with these: loading definitions does not wait for it.
    from lakehouse_dagster.streaming.observe import Observation
    from lakehouse_dagster.streaming.well import Well
    from lakehouse_dagster.system_db import Database, JobRecord, Jobs, Leases


def utc_now() -> datetime:
    """The present, in UTC."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Clock:
    """Time as the verbs see it; tests hand in their own."""

    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep
    pause: Callable[[float], None] = time.sleep
    """Waits while cleaning up: raises nothing, also when the work was cancelled."""
    monotonic: Callable[[], float] = time.monotonic

    def deadline(self, seconds: float) -> Callable[[], bool]:
        """A question that answers True once so many seconds have passed."""
        end = self.monotonic() + seconds
        return lambda: self.monotonic() >= end

    def on_wait(self, waited_seconds: float) -> None:
        """For waits of the rooms below: a cancelled run notices it at their every poll."""
        self.sleep(0)


@dataclass(frozen=True)
class Runtime:
    """The streaming jobs of one lakehouse on one cluster, and everything needed to act on them."""

    lakehouse: str
    cluster: FlinkCluster
    catalog: PaimonCatalog
    system_database: SystemDatabase
    jobs: Mapping[str, StreamingJob]
    policy: SupervisionPolicy = field(default_factory=SupervisionPolicy)
    other_catalogs: tuple[PaimonCatalog, ...] = ()
    """Catalogs that scripts may name besides the lake's own; their tables are only read."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=Clock)

    def job(self, name: str) -> StreamingJob:
        """The declared job of that name; raises ``JobNotFoundError`` naming those there are."""
        try:
            return self.jobs[name]
        except KeyError:
            known = ", ".join(sorted(self.jobs)) or "none"
            raise JobNotFoundError(
                f"No streaming job is named {name!r}.", remedy=f"Declared jobs: {known}."
            ) from None

    @property
    def identity(self) -> str:
        """The lakehouse's name and its warehouse: what job ids and records are made from.

        Two projects that both kept the default name meet on one cluster; the warehouse keeps their
        jobs apart.
        """
        digest = hashlib.sha256(self.catalog.warehouse.encode()).hexdigest()
        return f"{self.lakehouse}@{digest[:8]}"

    @cached_property
    def database(self) -> Database:
        """The open system database; opened on first use."""
        return self.system_database.connect()

    @cached_property
    def memory(self) -> Jobs:
        """What the system database knows about the jobs."""
        from lakehouse_dagster.system_db import Jobs

        return Jobs(self.database, self.identity, self.clock.now)

    @cached_property
    def leases(self) -> Leases:
        """The leases in the system database."""
        from lakehouse_dagster.system_db import Leases

        return Leases(self.database, self.clock.now)

    @cached_property
    def watcher(self) -> JobManager:
        """The JobManager, for looking at it again and again over the same connection."""
        return self.cluster.job_manager()

    @cached_property
    def well(self) -> dict[str, Well | None]:
        """The jobs that were well at the last look (``well.py``)."""
        return {}

    @cached_property
    def told(self) -> dict[str, tuple[Observation, JobRecord, str]]:
        """The last word on each job's health, and what it was made from (``reported.py``)."""
        return {}

    def with_sleep(self, sleep: Callable[[float], None]) -> Runtime:
        """The same runtime, on the same open database, that waits in another way."""
        other = replace(self, clock=replace(self.clock, sleep=sleep))
        other.__dict__["database"] = self.database
        return other

    @contextmanager
    def hold(self, job: str | StreamingJob, holder: str) -> Iterator[HeldJob]:
        """Hold the lease of a job while the block runs; released on any exception.

        A job whose script is gone is given as what is left of it (``orphans.py``).
        Raises ``LeaseHeldError`` at once when another run or command acts on the job.
        """
        held = self.job(job) if isinstance(job, str) else job
        with self.leases.held(
            self.memory.lease_key(held.name), holder, self.policy.seconds("lease")
        ) as lease:
            yield HeldJob(self, held, lease)


@dataclass(frozen=True)
class HeldJob:
    """A job that we may act on, as long as its lease is ours."""

    runtime: Runtime
    job: StreamingJob
    lease: Lease

    @property
    def name(self) -> str:
        return self.job.name

    def still_ours(self) -> None:
        """Raise ``LeaseLostError`` if someone else took over; asked before every POST."""
        self.runtime.leases.check(self.lease)

    def over(
        self,
        incarnation: Incarnation,
        reason: str,
        *,
        state: IncarnationState = IncarnationState.ENDED,
        at: datetime | None = None,
        savepoint_path: str | None = None,
    ) -> Incarnation:
        """Write down that an incarnation has ended, why, and the savepoint that it left."""
        return self.runtime.memory.update(
            self.name,
            incarnation.number,
            state=state,
            ended_at=at or self.runtime.clock.now(),
            end_reason=reason,
            savepoint_path=savepoint_path or incarnation.savepoint_path,
        )


def dagster_run(run_id: str) -> str:
    """As which a Dagster run holds leases."""
    return f"Dagster run {run_id}"


def this_process(purpose: str) -> str:
    """A name for whoever holds a lease, so that a person can find them."""
    return f"{purpose} (pid {os.getpid()} on {socket.gethostname()})"


LOGGER = logging.getLogger("lakehouse_dagster.streaming")

"""A lakehouse of its own for one test: source, scripts, catalog, system database, one job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SupervisionPolicy
from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import CheckpointStatistics, JobSummary
from lakehouse_dagster.streaming.previous import own_numbers
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.start import StartOutcome, start_or_adopt
from lakehouse_dagster.streaming.stop import StopOutcome, cancel, stop_with_savepoint
from lakehouse_dagster.streaming.upgrade import restart
from lakehouse_dagster.system_db import Incarnation, SystemDatabase
from tests.support.reading import read_by_the_same_process
from tests.support.rows import SourceFolder, assert_equal, wait_until_equal

T = TypeVar("T")

TABLE = "ods.copied"
QUICK = SupervisionPolicy(
    submission_timeout="20s",
    start_timeout="60s",
    stop_timeout="60s",
    late_submission_grace="2s",
    lost_after="1s",
    backoff_initial="1s",
    backoff_max="2s",
    lease="8s",
    max_attempts=10,
)
IMPATIENT = replace(QUICK, submission_timeout="4s")
"""Waits one second (a quarter) for a job whose INSERT got no answer."""

COPY = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '{interval}';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
{settings}
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.copied (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE incoming (id BIGINT, text STRING, amount INT) WITH (
  'connector' = 'filesystem', 'path' = '${{LAB}}/incoming', 'format' = 'json',
  'source.monitor-interval' = '200ms'
);
INSERT INTO ods.copied SELECT id, text, amount FROM incoming{where};
"""


def until(look: Callable[[], T | None], what: str, *, seconds: float = 45.0) -> T:
    """Wait until ``look`` gives something that counts as true."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"{what} did not come about within {seconds:g} s"
        time.sleep(0.1)


@dataclass
class Laboratory:
    """Everything of one test, in one folder; ``job`` copies ``source`` into ``ods.copied``."""

    folder: Path
    rest_url: str
    sql_gateway_url: str
    lakehouse: str = field(default_factory=lambda: f"lab-{uuid4().hex[:8]}")
    job: str = field(default_factory=lambda: f"copy-{uuid4().hex[:8]}")
    database: str = ""
    """URL of the system database; a SQLite file in the folder unless told otherwise."""

    @property
    def identity(self) -> str:
        """What the Flink ids of the lab's jobs are made from."""
        return self.runtime().identity

    def __post_init__(self) -> None:
        self.source = SourceFolder(self.folder / "incoming")
        self.catalog = PaimonCatalog(str(self.folder / "warehouse"))
        self.cluster = FlinkCluster(self.rest_url, self.sql_gateway_url)
        self.script = self.folder / "copy.sql"
        if not self.script.exists():
            self.write_script()

    @classmethod
    def opened(cls, settings: Mapping[str, str]) -> Laboratory:
        """The laboratory of another process, by what it was made of."""
        return cls(**{**settings, "folder": Path(settings["folder"])})  # type: ignore[arg-type]

    @property
    def settings(self) -> dict[str, str]:
        """What ``opened`` makes the same laboratory of."""
        names = ("folder", "rest_url", "sql_gateway_url", "lakehouse", "job", "database")
        return {name: str(getattr(self, name)) for name in names}

    @property
    def database_file(self) -> Path:
        """The system database, where it is a SQLite file."""
        return Path(self.database.removeprefix("sqlite:///") or self.folder / "lakehouse.db")

    # -- what is declared ---------------------------------------------------------------------

    def write_script(self, *, where: str = "", settings: str = "", interval: str = "500ms") -> Path:
        text = COPY.format(name=self.job, where=where, settings=settings, interval=interval)
        self.script.write_text(text)
        return self.script

    def runtime(
        self,
        *scripts: Path,
        rest_url: str | None = None,
        sql_gateway_url: str | None = None,
        policy: SupervisionPolicy = QUICK,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        start: str = "on_demand",
        read_timeout_seconds: float = 30.0,
    ) -> Runtime:
        """A runtime as a process of its own would have it, with its own open database."""
        lake = Lakehouse(
            catalog=self.catalog,
            flink=FlinkCluster(
                rest_url or self.rest_url,
                sql_gateway_url or self.sql_gateway_url,
                read_timeout_seconds=read_timeout_seconds,
            ),
            name=self.lakehouse,
            system_database=SystemDatabase(self.database or f"sqlite:///{self.database_file}"),
            supervision=policy,
        )
        with read_by_the_same_process(kept_in=self.folder / "read"):
            loaded = lake.load(list(scripts) or self.script, start=start, base_folder=self.folder)
        return replace(
            loaded.runtime,
            clock=clock or Clock(),
            environ={"LAB": str(self.folder), **(environ or {})},
        )

    # -- acting, under a lease as every caller does -------------------------------------------

    def start(
        self, runtime: Runtime | None = None, *, job: str | None = None, allow_empty: bool = False
    ) -> StartOutcome:
        runtime = runtime or self.runtime()
        with runtime.hold(job or self.job, "test") as held:
            return start_or_adopt(held, allow_empty_start=allow_empty)

    def stop(self, runtime: Runtime | None = None, *, job: str | None = None) -> StopOutcome:
        runtime = runtime or self.runtime()
        with runtime.hold(job or self.job, "test") as held:
            return stop_with_savepoint(held)

    def cancel(self, runtime: Runtime | None = None) -> StopOutcome:
        runtime = runtime or self.runtime()
        with runtime.hold(self.job, "test") as held:
            return cancel(held)

    def restart(self, runtime: Runtime | None = None) -> StartOutcome:
        runtime = runtime or self.runtime()
        with runtime.hold(self.job, "test") as held:
            return restart(held)

    # -- looking ------------------------------------------------------------------------------

    def on_cluster(self, job: str | None = None) -> list[JobSummary]:
        """The incarnations of the job that the JobManager shows alive."""
        recorded = {incarnation.flink_job_id for incarnation in self.incarnations(job)}
        ids = recorded | set(own_numbers(self.identity, job or self.job, 20))
        with self.cluster.job_manager() as job_manager:
            return [j for j in job_manager.jobs() if j.job_id in ids and not j.status.is_terminal]

    def running(self) -> JobSummary:
        """Wait until exactly one incarnation runs with all its tasks."""

        def one() -> JobSummary | None:
            alive = self.on_cluster()
            assert len(alive) <= 1
            return next((j for j in alive if j.all_tasks_run and j.status.value == "RUNNING"), None)

        return until(one, f"{self.job} running")

    def checkpoints(self, job_id: str) -> CheckpointStatistics:
        with self.cluster.job_manager() as job_manager:
            return job_manager.checkpoints(job_id)

    def assert_restored(self, outcome: StartOutcome) -> None:
        """Flink itself says that the job started from the restore point that we chose."""
        restored = self.checkpoints(outcome.flink_job_id).restored_path
        assert restored is not None
        assert outcome.restored_from is not None
        assert _plain(restored) == _plain(outcome.restored_from)

    def wait_for_checkpoints(self, job_id: str, count: int = 2) -> None:
        """Wait until so many more checkpoints are complete."""
        wanted = self.checkpoints(job_id).completed_count + count
        until(lambda: self.checkpoints(job_id).completed_count >= wanted, f"{count} checkpoints")

    @cached_property
    def books(self) -> Runtime:
        """A runtime to look things up with, opened once."""
        return self.runtime()

    def incarnations(self, job: str | None = None) -> tuple[Incarnation, ...]:
        return self.books.memory.incarnations(job or self.job)

    def copied(self, *, seconds: float = 40.0) -> None:
        """Wait until the table holds all rows of the source, each once."""
        wait_until_equal(self.catalog, TABLE, self.source, seconds=seconds)

    def copied_exactly(self, job_id: str) -> None:
        """All rows, each once, and still so two checkpoints later."""
        self.copied()
        self.wait_for_checkpoints(job_id)
        assert_equal(self.catalog, TABLE, self.source)

    def lease_is_free(self, job: str | None = None) -> bool:
        key = self.books.memory.lease_key(job or self.job)
        return self.books.leases.current(key) is None

    def clean_up(self) -> None:
        """Cancel whatever of this laboratory still runs: its names are nobody else's."""
        try:
            with self.cluster.job_manager() as job_manager:
                for summary in job_manager.jobs():
                    if summary.name.startswith(self.job) and not summary.status.is_terminal:
                        job_manager.cancel(summary.job_id)
        except FlinkError:
            return  # the cluster is gone, and its jobs with it


def _plain(path: str) -> str:
    """Flink writes ``file:/a`` for what may have been given as ``file:///a``."""
    return re.sub(r"^file:(//)?", "", path)

"""The streaming jobs of a table, stopped with savepoint while its layout is changed, then resumed.

Whatever goes wrong in between, they are resumed, unless it would harm the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from lakehouse_dagster.errors import (
    LakehouseError,
    MaintenanceError,
    MaintenanceRefusedError,
    StateWouldBeLostError,
)
from lakehouse_dagster.flink import JobManager, SqlGateway
from lakehouse_dagster.maintenance.held import HeldTables
from lakehouse_dagster.maintenance.strangers import refuse_beside_strangers
from lakehouse_dagster.paimon import TableReader
from lakehouse_dagster.streaming import examination
from lakehouse_dagster.streaming.previous import settle
from lakehouse_dagster.streaming.runtime import HeldJob, Runtime
from lakehouse_dagster.streaming.session import close, prepare
from lakehouse_dagster.streaming.start import start_or_adopt
from lakehouse_dagster.streaming.stop import stop_running
from lakehouse_dagster.system_db import DesiredState, Incarnation


@dataclass
class Paused:
    """Jobs under our leases.

    Args:
        held: the table, ours too.
        jobs: all that are held.
        alive: those that run, and are resumed.
        keep_stopped: why they must not be resumed; None as long as they may.
    """

    held: HeldTables
    jobs: tuple[HeldJob, ...]
    log: logging.Logger
    alive: list[tuple[HeldJob, Incarnation]] = field(default_factory=list)
    keep_stopped: str | None = None
    snapshot_id: int = 0
    """The table's newest when all had stopped."""
    not_resumed: dict[str, str] = field(default_factory=dict)
    """Those of them that could not be started again, and why."""
    _wanted: dict[str, DesiredState] = field(default_factory=dict)

    @property
    def resumed(self) -> tuple[str, ...]:
        """The names of the jobs that are stopped and resumed."""
        return tuple(job.name for job, _ in self.alive)

    def commits_since(self) -> list[str]:
        """Kind and user of the commits that brought or took rows since all had stopped."""
        reader = _reader(self.held)
        since = (reader.latest_snapshot_id() or 0) - self.snapshot_id
        newest = reader.newest_snapshots(since) if since > 0 else ()
        return [f"{s.commit_kind} of {s.commit_user}" for s in newest if s.moves_rows]

    def refuse_new_commits(self) -> None:
        """Raise ``MaintenanceRefusedError`` if somebody writes while our jobs stand still."""
        commits = self.commits_since()
        if commits:
            raise MaintenanceRefusedError(
                f"While the jobs of {self.held.tables[0]} stood still, somebody else wrote it: "
                f"{commits[0]}.",
                remedy="Find that job on the cluster, stop it, or take it over with `lakehouse "
                "jobs adopt`, and try again.",
            )

    def stop(self, meanwhile: DesiredState) -> None:
        """Stop all that run, and want ``meanwhile`` of those that were wanted RUNNING."""
        runtime = self.held.runtime
        with runtime.cluster.job_manager() as jm, runtime.cluster.sql_gateway() as gateway:
            for job in self.jobs:
                wanted = runtime.memory.ensure(job.name).desired
                if wanted is not DesiredState.RUNNING:
                    continue
                self._wanted[job.name] = wanted
                if meanwhile is not wanted:
                    # Should we die, this is what a person finds.
                    why = f"Stopped for {self.held.holder} to change {self.held.tables[0]}."
                    runtime.memory.set_error(job.name, why)
                    runtime.memory.set_desired(job.name, meanwhile)
            for job, _ in self.alive:
                stop_running(job, jm, gateway, self.log)
        self.snapshot_id = _reader(self.held).latest_snapshot_id() or 0

    def resume(self) -> None:
        """Resume what ran, and want of all what was wanted before.

        Those that could not be started are in ``not_resumed``; the supervisor goes on trying.
        """
        if self.keep_stopped is not None:
            for job in self.jobs:
                job.runtime.memory.set_error(job.name, self.keep_stopped)
            return
        for name, wanted in self._wanted.items():
            self.held.runtime.memory.set_desired(name, wanted)
            self.held.runtime.memory.set_error(name, None)
        for job, ran in self.alive:
            try:
                # What was edited meanwhile goes live by a person's start alone.
                edited = ran.fingerprint != job.job.fingerprint
                start_or_adopt(job, recover=edited, log=self.log)
            except LakehouseError as error:
                self.log.error("%s", error)
                job.runtime.memory.set_error(job.name, str(error))
                self.not_resumed[job.name] = error.message

    def stands(self) -> str:
        """What has become of the jobs, for people."""
        if self.keep_stopped is not None:
            names = ", ".join(job.name for job in self.jobs)
            return f"Not resumed: {names}." if names else ""
        told = [name for name in self.resumed if name not in self.not_resumed]
        text = f"Resumed where they were: {', '.join(told)}." if told else ""
        for name, why in self.not_resumed.items():
            text += f" Not resumed: {name}, which the supervisor goes on trying: {why}"
        return text.strip()


@contextmanager
def paused(
    held: HeldTables,
    names: Sequence[str],
    *,
    meanwhile: DesiredState,
    with_options: Mapping[str, str] | None = None,
    log: logging.Logger,
) -> Iterator[Paused]:
    """Stop the jobs while the block runs.

    Args:
        held: the one table that is changed.
        names: jobs of ours that write or compact it.
        meanwhile: what is wanted of them: RUNNING, so that the supervisor brings them back should
            we die; SUSPENDED where that would harm the table.
        with_options: what the table's options will be then; a job whose state does not fit what it
            becomes by them is refused before anything is stopped.

    Raises:
        ClusterUnreachableError: the cluster or gateway does not answer; nothing was done.
        LeaseHeldError: somebody else acts on one of the jobs.
        MaintenanceRefusedError: somebody else writes the table, or state does not fit.
        StreamingJobError: a job cannot be stopped; all run on.
    """
    with ExitStack() as stack:
        runtime = held.runtime
        jobs = tuple(stack.enter_context(runtime.hold(name, held.holder)) for name in names)
        pause = Paused(held, jobs, log)
        with runtime.cluster.job_manager() as jm, runtime.cluster.sql_gateway() as gateway:
            gateway.info()  # else they would be stopped, and could not be started again
            refuse_beside_strangers(runtime, held.tables[0], [job.name for job in jobs], jm)
            for job in jobs:
                settled = settle(job, jm, gateway, log)
                if settled.alive and settled.incarnation is not None:
                    pause.alive.append((job, settled.incarnation))
            for job, ran in pause.alive if with_options else ():
                _refuse_unless_it_fits(job, ran, with_options or {}, jm, gateway, log)
        try:
            pause.stop(meanwhile)
            yield pause
        except BaseException as error:
            _resume_after_failure(pause)
            if isinstance(error, LakehouseError):
                error.message = f"{error.message} {pause.stands()}".strip()
            elif pause.stands():
                log.warning("%s", pause.stands())
            raise
        pause.resume()
        if pause.not_resumed:
            raise MaintenanceError(f"{held.tables[0]} was changed as asked. {pause.stands()}")


def _resume_after_failure(pause: Paused) -> None:
    patient = without_interruption(pause.held.runtime)
    pause.alive = [(replace(job, runtime=patient), ran) for job, ran in pause.alive]
    try:
        pause.resume()
    except LakehouseError as error:
        pause.log.error("%s", error)
        pause.not_resumed |= dict.fromkeys(pause.resumed, error.message)


def without_interruption(runtime: Runtime) -> Runtime:
    """For what must be done though the work was cancelled: no wait of it is cut short."""
    return runtime.with_sleep(runtime.clock.pause)


def _refuse_unless_it_fits(
    job: HeldJob,
    ran: Incarnation,
    options: Mapping[str, str],
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> None:
    """Compare what runs with what the same script becomes by the table's new options."""
    if not job.job.keeps_state:
        return
    catalog = job.runtime.catalog.name
    dynamic = {
        f"paimon.{catalog}.{sink.key}.{option}": value
        for sink in job.job.definition.sinks
        for option, value in options.items()
    }
    definition = job.job.definition
    changed = replace(definition, settings={**definition.settings, **dynamic})
    prepared = prepare(replace(job, job=replace(job.job, definition=changed)), gateway, log)
    close(prepared.session, log)
    holds = examination.newest_checkpoint(job_manager, ran.flink_job_id)
    findings = examination.examine(job, ran, prepared.plan, holds=holds)
    try:
        examination.decide(job, findings, verb="restart", allow_state_loss=False)
    except StateWouldBeLostError as error:
        raise MaintenanceRefusedError(
            f"By the table's new options {job.name} would become another job. {error.message}",
            remedy="Leave the table as it is; or stop the job, give it another name "
            "(SET 'pipeline.name'), change the table, and start it from nothing.",
        ) from error


def _reader(held: HeldTables) -> TableReader:
    return held.runtime.catalog.open().table(held.tables[0])

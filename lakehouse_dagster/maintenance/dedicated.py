"""Give a running table a compaction job of its own, or take it away, without losing state.

Writers read a table's options when they start. So they are stopped with savepoint, the table is
altered, and they go on from there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakehouse_dagster.errors import LakehouseError, MaintenanceRefusedError
from lakehouse_dagster.maintenance.altering import altered
from lakehouse_dagster.maintenance.compaction_jobs import compaction_job_name, compaction_jobs
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.paused import paused, without_interruption
from lakehouse_dagster.paimon.file_facts import POSTPONED_BUCKETS, TableFacts
from lakehouse_dagster.sql.model import StatementKind
from lakehouse_dagster.streaming.compacting import WRITE_ONLY
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob, Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.start import start_or_adopt
from lakehouse_dagster.streaming.stop import cancel
from lakehouse_dagster.system_db import DesiredState

__all__ = ["Moved", "compaction_jobs", "dedicate", "undedicate"]


@dataclass(frozen=True)
class Moved:
    """A table whose compaction is done by somebody else now.

    Args:
        write_only: whether its writers leave compaction to others now.
        writers: the jobs that were stopped with savepoint and resumed.
        compaction_job: the job that compacts it, or did.
        notes: what a person should know.
    """

    table: str
    write_only: bool
    writers: tuple[str, ...]
    compaction_job: str | None
    notes: tuple[str, ...] = ()


def dedicate(keeper: Keeper, table: str, *, holder: str, log: logging.Logger = LOGGER) -> Moved:
    """Make a table ``write-only`` and start its compaction job; its writers go on where they were.

    If anything fails, the table and its writers are as before.

    Raises:
        MaintenanceRefusedError: the policy gives it no compaction job, somebody else writes it, or
            a writer's state would not fit.
        LeaseHeldError: somebody else acts on the table or one of the jobs.
        LakehouseError: whatever went wrong.
    """
    runtime = keeper.runtime
    with keeper.hold([table], holder) as held:
        facts = keeper.facts(table)
        compactor = compactor_to_begin(runtime, facts)
        notes = (*_freshness(facts), *_scripts_that_differ(runtime, table, write_only=True))
        if facts.write_only:
            _start(runtime, compactor.name, holder, log)
            return Moved(table, True, (), compactor.name, notes)
        with paused(
            held,
            _writers(runtime, table),
            meanwhile=DesiredState.RUNNING,
            with_options={WRITE_ONLY: "true"},
            log=log,
        ) as pause:
            with altered(held, WRITE_ONLY, "true", log):
                pause.refuse_new_commits()
                _start(runtime, compactor.name, holder, log)
        return Moved(table, True, pause.resumed, compactor.name, notes)


def undedicate(keeper: Keeper, table: str, *, holder: str, log: logging.Logger = LOGGER) -> Moved:
    """Cancel a table's compaction job and let its writers compact it themselves again.

    If anything fails, the table and its jobs are as before. Raises what ``dedicate`` raises.
    """
    runtime = keeper.runtime
    compactor = compactor_to_end(runtime, table)
    with runtime.cluster.sql_gateway() as gateway:
        gateway.info()  # else the compaction job would end, and the table stay as it is
    with keeper.hold([table], holder) as held:
        facts = keeper.facts(table)
        notes = _scripts_that_differ(runtime, table, write_only=False)
        with _without(runtime, compactor, holder, log):
            if not facts.write_only:
                return Moved(table, False, (), compactor.name if compactor else None, notes)
            with (
                paused(
                    held,
                    _writers(runtime, table),
                    meanwhile=DesiredState.RUNNING,
                    with_options={WRITE_ONLY: "false"},
                    log=log,
                ) as pause,
                altered(held, WRITE_ONLY, "false", log),
            ):
                pause.refuse_new_commits()
        return Moved(table, False, pause.resumed, compactor.name if compactor else None, notes)


def _writers(runtime: Runtime, table: str) -> list[str]:
    return sorted(name for name, job in runtime.jobs.items() if table in job.sink_keys)


def _declared_compactor(runtime: Runtime, table: str) -> StreamingJob | None:
    return next((job for job in runtime.jobs.values() if table in job.compacts), None)


def compactor_to_begin(runtime: Runtime, facts: TableFacts) -> StreamingJob:
    """The job that is declared to compact a table, if it can; else ``MaintenanceRefusedError``."""
    compactor = _declared_compactor(runtime, facts.table)
    if compactor is None:
        raise MaintenanceRefusedError(
            f"No compaction job is declared for {facts.table}.",
            remedy="Write compaction: dedicated for it in the maintenance policy, and reload.",
        )
    if facts.total_buckets == POSTPONED_BUCKETS:
        raise MaintenanceRefusedError(
            f"Rows of {facts.table} are put into buckets by batch compaction only ('bucket' = "
            "'-2').",
            remedy="Write compaction: batch for it.",
        )
    return compactor


def compactor_to_end(runtime: Runtime, table: str) -> StreamingJob | None:
    """The job that compacts the table, also when the policy has dropped it already.

    Raises ``MaintenanceRefusedError`` when it compacts other tables as well.
    """
    job = _declared_compactor(runtime, table)
    name = compaction_job_name(table)
    if job is None and runtime.memory.get(name) is not None:
        job = job_or_orphan(runtime, name)
    others = [] if job is None else [other for other in job.compacts if other != table]
    if job is not None and others:
        raise MaintenanceRefusedError(
            f"{job.name} compacts {', '.join(others)} as well, so it is not ended for {table}.",
            remedy=f"Take {table} out of the group in the maintenance policy, reload, and run "
            f"`lakehouse jobs restart {job.name}`; then try again.",
        )
    return job


def _start(runtime: Runtime, name: str, holder: str, log: logging.Logger) -> None:
    """Start the compaction job; if that fails it must not run, should it show up after all."""
    with runtime.hold(name, holder) as job:
        try:
            start_or_adopt(job, log=log)
        except BaseException:
            runtime.memory.set_desired(name, DesiredState.CANCELED)
            raise


@contextmanager
def _without(
    runtime: Runtime, compactor: StreamingJob | None, holder: str, log: logging.Logger
) -> Iterator[None]:
    """Cancel the compaction job; it runs again if the block fails."""
    if compactor is None:
        yield
        return
    with runtime.hold(compactor, holder) as job:
        before = runtime.memory.ensure(job.name).desired
        cancel(job, log=log)
        try:
            yield
        except BaseException:
            if before is DesiredState.RUNNING:
                _bring_back(job, log)
            raise


def _bring_back(job: HeldJob, log: logging.Logger) -> None:
    patient = replace(job, runtime=without_interruption(job.runtime))
    try:
        start_or_adopt(patient, recover=True, log=log)
    except LakehouseError as error:
        job.runtime.memory.set_desired(job.name, DesiredState.RUNNING)  # for the supervisor
        log.error("%s", error)


def _freshness(facts: TableFacts) -> tuple[str, ...]:
    if not facts.changelog_by_compaction:
        return ()
    return (
        f"The changelog of {facts.table} (changelog-producer {facts.changelog_producer}) comes "
        "from the compaction job now: streaming readers get nothing new until it has compacted it, "
        "at each of its checkpoints at the earliest, and nothing at all while it does not run.",
    )


def _scripts_that_differ(runtime: Runtime, table: str, *, write_only: bool) -> tuple[str, ...]:
    """The table's own options count; a script that says otherwise would make a new table so."""
    name = table.split(".", 1)[1]
    creates = re.compile(rf"CREATE\s+TABLE[^(]*[.`\s]{re.escape(name)}[`\s(]", re.I)
    says = re.compile(r"'write-only'\s*=\s*'true'", re.I)
    notes: dict[str, None] = {}
    for job in runtime.jobs.values():
        if table not in job.sink_keys:
            continue
        scripts = (job.definition.setup, *(s.statements for s in job.declared_elsewhere))
        for statement in (s for script in scripts for s in script):
            creating = statement.kind is StatementKind.CREATE_TABLE
            if (
                creating
                and creates.search(statement.text)
                and write_only != bool(says.search(statement.text))
            ):
                should = "true" if write_only else "false"
                notes[
                    f"{statement.location} makes it otherwise. The table's own option counts; "
                    f"write 'write-only' = '{should}' there, so that a new table is made alike."
                ] = None
    return tuple(notes)

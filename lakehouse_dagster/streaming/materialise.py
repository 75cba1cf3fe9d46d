"""Materialise a streaming table: its job runs, and its next snapshot is there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.errors import OperationTimeoutError, StreamingJobError
from lakehouse_dagster.flink import JobManager
from lakehouse_dagster.paimon import CatalogReader
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.progress import ProgressEvent, describe
from lakehouse_dagster.streaming.runtime import LOGGER, Runtime
from lakehouse_dagster.streaming.start import StartedHow, StartOutcome
from lakehouse_dagster.streaming.waiting import Waiting

QUIET_AFTER_CHECKPOINTS = 2
"""A table without a new snapshot after so many checkpoints has no new data."""


@dataclass(frozen=True)
class Materialised:
    """One table whose job runs: the snapshots that came (None: no new data), the newest id."""

    table: str
    event: ProgressEvent | None
    newest_snapshot: int


def materialise(
    runtime: Runtime,
    job: str,
    tables: Sequence[str],
    *,
    timeout_seconds: float,
    holder: str,
    log: logging.Logger = LOGGER,
) -> tuple[StartOutcome, tuple[Materialised, ...]]:
    """Make sure that the job runs, and wait for the next snapshot of each of its ``tables``.

    A table that gets no new data is done after two more checkpoints. If the wait is cancelled, a
    job that was started for it is cancelled too; one that ran before goes on. What is wanted of
    the job is then what it was before.
    Raises what starting raises, and ``OperationTimeoutError`` when no snapshot comes in time.
    """
    catalog = runtime.catalog.open()
    before = {table: catalog.table(table).latest_snapshot_id() or 0 for table in tables}
    desired = runtime.memory.reset_attempts(job).desired
    (applied,) = apply(runtime, [(job, verb("start"))], holder=holder, log=log)
    if applied.error is not None:
        raise applied.error
    outcome = applied.outcome
    assert isinstance(outcome, StartOutcome)
    try:
        with runtime.cluster.job_manager() as job_manager:
            newest = _wait(runtime, job_manager, outcome, catalog, before, timeout_seconds, log)
    except Exception:
        raise
    except BaseException:
        if outcome.how is StartedHow.STARTED:
            log.warning("Cancelled: stopping %s, which was started for this.", job)
            apply(runtime, [(job, verb("cancel"))], holder=holder, log=log)
            runtime.memory.set_desired(job, desired)
        raise
    return outcome, tuple(
        Materialised(
            table,
            describe(catalog.table(table), before[table], newest[table])
            if newest[table] > before[table]
            else None,
            newest[table],
        )
        for table in tables
    )


def _wait(
    runtime: Runtime,
    job_manager: JobManager,
    outcome: StartOutcome,
    catalog: CatalogReader,
    before: Mapping[str, int],
    timeout_seconds: float,
    log: logging.Logger,
) -> dict[str, int]:
    """Wait until every table has a newer snapshot than before, or certainly no new data."""
    clock = runtime.clock
    too_late = clock.deadline(timeout_seconds)
    waiting_long = Waiting(clock, log)
    first = job_manager.checkpoints(outcome.flink_job_id).completed_count
    while True:
        newest = {table: catalog.table(table).latest_snapshot_id() or 0 for table in before}
        waiting = [table for table in before if newest[table] <= before[table]]
        if not waiting:
            return newest
        checkpoints = job_manager.checkpoints(outcome.flink_job_id).completed_count - first
        if checkpoints > QUIET_AFTER_CHECKPOINTS and all(newest[t] for t in waiting):
            log.info("No new data for %s in %d checkpoints.", ", ".join(waiting), checkpoints)
            return newest
        if too_late():
            break
        waiting_long.say(
            f"a snapshot of {', '.join(waiting)}", f"{checkpoints} checkpoints completed"
        )
        clock.sleep(0.3)
    cause = next((e.root_cause for e in job_manager.exceptions(outcome.flink_job_id)), None)
    if cause is not None:
        raise StreamingJobError(
            f"Streaming job {outcome.job} commits nothing to {', '.join(waiting)}: {cause}",
            remedy="Correct the cause; the job is left as it is.",
        )
    raise OperationTimeoutError(
        f"No snapshot of {', '.join(waiting)} within {in_words(timeout_seconds)}; "
        f"{checkpoints} checkpoints of {outcome.job} completed meanwhile.",
        remedy="The job runs on. Does its source have data, and is its checkpoint interval short "
        "enough?",
    )

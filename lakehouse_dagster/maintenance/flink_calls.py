"""Runs CALLs through the SQL Gateway: each at most once, found again by the id of its Flink job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    FlinkError,
    MaintenanceConflictError,
    MaintenanceError,
    SqlExecutionError,
)
from lakehouse_dagster.flink import (
    FlinkJobStatus,
    JobManager,
    Session,
    create_catalog,
    seconds_until_lost,
    use_catalog,
)
from lakehouse_dagster.maintenance.held import HeldTables
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.session import close
from lakehouse_dagster.streaming.submission import shows_up

_POLL_SECONDS = 1.0
_CONFLICT = ("conflict", "which is not previously added")
"""What the innermost cause says of a compaction whose files somebody else merged meanwhile."""
_TOO_FEW_BUFFERS = "insufficient number of network buffers"
_GUESSES = ", possible causes: "
"""After it Paimon says what may be why a file is gone: expiry that is too fast, or a slow reader.
Neither takes a file of the newest snapshot."""


@dataclass(frozen=True)
class FlinkWork:
    """A CALL that a Flink job carries out, and what it is known by.

    Args:
        text: the CALL.
        job_id: chosen beforehand.
        name: what the job is called on the cluster.
    """

    text: str
    job_id: str
    name: str


@contextmanager
def gateway_session(runtime: Runtime, name: str, log: logging.Logger) -> Iterator[Session]:
    """A session that has the lake's catalog; deleted at the end, and what it submits with it."""
    catalog = runtime.catalog
    with runtime.cluster.sql_gateway() as gateway:
        session = gateway.open_session(name)
        try:
            for text in (
                create_catalog(catalog.name, catalog.flink_options()),
                use_catalog(catalog.name),
            ):
                session.execute(text, on_wait=runtime.clock.on_wait)
            yield session
        finally:
            close(session, log)


def call_in_gateway(
    held: HeldTables,
    session: Session,
    text: str,
    *,
    timeout_seconds: float,
    on_poll: Callable[[float], None] = lambda _: None,
) -> tuple[str, ...]:
    """Run a CALL that the gateway carries out by itself; return the first column of its rows.

    ``on_poll`` is told again and again for how many seconds it has been running.

    Raises:
        FlinkError: it failed, or nothing is known of it. Every such procedure may be called again:
            it goes on where the last one was broken off.
    """
    clock = held.runtime.clock

    def on_wait(seconds: float) -> None:
        on_poll(seconds)
        clock.on_wait(seconds)

    held.still_ours()
    result = session.execute(
        text,
        config={"execution.runtime-mode": "batch", "table.dml-sync": "true"},
        timeout_seconds=timeout_seconds,
        on_wait=on_wait,
    )
    return tuple(str(row[0]) for row in result.rows)


def run_job(
    held: HeldTables,
    session: Session,
    work: FlinkWork,
    job_manager: JobManager,
    log: logging.Logger,
    *,
    on_poll: Callable[[float, str], None] = lambda _seconds, _state: None,
) -> None:
    """Submit a CALL whose work a Flink job does, and wait for the job's end.

    Whatever else breaks this off leaves the job: ``cancel_job`` ends it. ``on_poll`` is told again
    and again for how many seconds it has been running, and in which state it is.

    Raises:
        MaintenanceConflictError: the job lost against a commit of the table's writer.
        MaintenanceError: the job failed, was cancelled by somebody else, or never came about.
        ClusterUnreachableError: nobody answers for too long; the job may run on.
    """
    held.still_ours()
    _submit(held, session, work, job_manager, log)
    status = _end_of(held.runtime, work, job_manager, on_poll)
    if status is FlinkJobStatus.FINISHED:
        return
    if status is FlinkJobStatus.FAILED:
        raise _failure(work, job_manager)
    raise MaintenanceError(
        f"The Flink job {work.job_id} ({work.name}) "
        + ("is gone from the cluster." if status is None else f"is {status.value}."),
        remedy="The next run decides anew.",
    )


def cancel_job(
    runtime: Runtime,
    job_id: str,
    job_manager: JobManager,
    log: logging.Logger,
    *,
    session: Session | None = None,
) -> bool:
    """Make sure that a Flink job of ours does not run any more; say whether that is certain.

    A submission that is still under way dies with its session, or shows up within a grace.
    """
    clock = runtime.clock
    grace = clock.deadline(runtime.policy.seconds("late_submission_grace"))
    give_up = clock.deadline(runtime.policy.seconds("start_timeout"))
    if session is not None:
        close(session, log)
    while not give_up():
        late_ones_show = grace()
        try:
            job = job_manager.job(job_id)
            if job is None and late_ones_show:
                return True
            if job is not None:
                if job.status.is_terminal:
                    return True
                job_manager.cancel(job_id)
        except FlinkError as error:
            log.warning("Flink job %s could not be cancelled yet: %s", job_id, error)
        clock.pause(0.5)
    log.error("Flink job %s may still run: cancel it by hand.", job_id)
    return False


def has_finished(job_id: str, job_manager: JobManager) -> bool:
    """Whether the cluster knows that a Flink job did all its work; False when nobody answers."""
    try:
        job = job_manager.job(job_id)
    except FlinkError:
        return False
    return job is not None and job.status is FlinkJobStatus.FINISHED


def _submit(
    held: HeldTables,
    session: Session,
    work: FlinkWork,
    job_manager: JobManager,
    log: logging.Logger,
) -> None:
    """Post the CALL once and wait until its job is on the cluster."""
    runtime = held.runtime
    config = {
        "execution.runtime-mode": "batch",
        # The CALL returns once its job is submitted: the job is watched by its id.
        "table.dml-sync": "false",
        "$internal.pipeline.job-id": work.job_id,
        "pipeline.name": work.name,
        # How often it is tried is our affair: each time it is another job.
        "restart-strategy.type": "none",
    }
    timeout = runtime.policy.seconds("submission_timeout")
    try:
        operation = session.submit(work.text, config=config)
        operation.wait(timeout, runtime.clock.on_wait)
        return
    except FlinkError as error:
        log.warning("%s: %s; looking for Flink job %s.", work.name, error.message, work.job_id)
        problem = error
    # Also a refusal is checked: the gateway may have given up on a submission that arrived.
    if shows_up(runtime, session, work.job_id, job_manager, patience_seconds=0):
        return
    text = problem.root_cause if isinstance(problem, SqlExecutionError) else problem.message
    raise MaintenanceError(f"{work.name} was not begun: {text}") from problem


def _end_of(
    runtime: Runtime,
    work: FlinkWork,
    job_manager: JobManager,
    on_poll: Callable[[float, str], None],
) -> FlinkJobStatus | None:
    """How the job ended; None when the cluster does not know it (any more)."""
    clock = runtime.clock
    began = clock.monotonic()
    lost = silent = None
    while True:
        try:
            job = job_manager.job(work.job_id)
            silent = None
            on_poll(clock.monotonic() - began, job.status.value if job else "not to be seen")
        except ClusterUnreachableError:
            silent = silent or clock.deadline(runtime.policy.seconds("stop_timeout"))
            if silent():
                raise
            clock.sleep(_POLL_SECONDS)
            continue
        if job is not None and job.status.is_terminal:
            return job.status
        if job is not None:
            lost = None
        elif lost is None:
            bound = seconds_until_lost(job_manager, runtime.policy.seconds("lost_after"))
            lost = clock.deadline(bound)
        elif lost():
            return None
        clock.sleep(_POLL_SECONDS)


def _failure(work: FlinkWork, job_manager: JobManager) -> MaintenanceError:
    exceptions = job_manager.exceptions(work.job_id)
    cause = exceptions[0].root_cause if exceptions else "no reason given"
    job = f"The Flink job {work.job_id} ({work.name})"
    said = cause.lower()
    if any(sign in said for sign in _CONFLICT):
        return MaintenanceConflictError(f"{job} met a conflict with another commit: {cause}")
    if _TOO_FEW_BUFFERS in said:
        return MaintenanceError(
            f"{job} failed: {cause}",
            remedy="Give Flink's TaskManagers more of them (taskmanager.memory.network.max), or "
            "let batch jobs need fewer (taskmanager.network.sort-shuffle.min-buffers: 64).",
        )
    if _GUESSES in said:
        cause = f"{cause[: said.index(_GUESSES)]}."
    return MaintenanceError(f"{job} failed: {cause}")

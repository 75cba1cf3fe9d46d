"""Forget a job that does not run, or give its record to a job of another name."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakehouse_dagster.errors import JobNotFoundError, StreamingJobError
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.previous import settle
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob, Runtime


@dataclass(frozen=True)
class ForgetOutcome:
    """A job of which nothing is on record any more; its files are where they were."""

    job: str
    incarnations: int


def forget(held: HeldJob, *, log: logging.Logger = LOGGER) -> ForgetOutcome:
    """Delete everything on record about a job that certainly does not run.

    Its checkpoints and savepoints stay. Started again under this name, it goes on from its newest
    retained checkpoint: the folders tell that it ran.

    Raises ``StreamingJobError`` when it runs.
    """
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        settled = settle(held, job_manager, gateway, log)
    if settled.alive:
        raise StreamingJobError(
            f"Streaming job {held.name} runs on the cluster and is not forgotten.",
            remedy=f"Stop or cancel it first: `lakehouse jobs stop {held.name}`.",
        )
    held.still_ours()
    count = len(held.runtime.memory.incarnations(held.name))
    held.runtime.memory.forget(held.name)
    log.info("Forgot %s and its %d incarnations.", held.name, count)
    return ForgetOutcome(held.name, count)


def rename(runtime: Runtime, old: str, new: str, *, holder: str) -> None:
    """Let the declared job ``new`` go on with what is on record of ``old``.

    For a script whose ``pipeline.name`` was changed: the job that runs is then known under its new
    name, and keeps its operator ids, so that its next upgrade restores its state.

    Raises ``JobNotFoundError`` (``new`` is not declared, ``old`` is not on record),
    ``StreamingJobError`` (``old`` is declared still), ``SystemDatabaseError`` (``new`` has run
    already) and ``LeaseHeldError``.
    """
    job = runtime.job(new)
    if old in runtime.jobs:
        raise StreamingJobError(
            f"A script declares {old} still, so it cannot become {new}.",
            remedy="Change its pipeline.name (or its file's name) first.",
        )
    if runtime.memory.get(old) is None:
        raise JobNotFoundError(
            f"Nothing is on record of a streaming job named {old!r}.",
            remedy="Look for its name with `lakehouse status`.",
        )
    with (
        runtime.hold(job_or_orphan(runtime, old), holder) as before,
        runtime.hold(job, holder) as after,
    ):
        before.still_ours()
        after.still_ours()
        runtime.memory.rename(old, new)

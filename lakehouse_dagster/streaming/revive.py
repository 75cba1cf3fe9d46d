"""Bring a job back that is up but not well: cancelled, and started from its newest checkpoint.

One that keeps no state is started from nothing.
"""

from __future__ import annotations

import logging

from lakehouse_dagster.streaming.previous import cancel_and_wait, settle
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.start import StartOutcome, start_or_adopt


def revive(held: HeldJob, *, log: logging.Logger = LOGGER) -> StartOutcome:
    """Cancel what runs, without a savepoint (a sick job may not give one), and start it again.

    What is wanted of the job stays RUNNING. Raises what starting raises.
    """
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        settled = settle(held, job_manager, gateway, log)
        if settled.alive and settled.incarnation is not None:
            incarnation = settled.incarnation
            log.info("Cancelling incarnation %d of %s.", incarnation.number, held.name)
            cancel_and_wait(held, job_manager, incarnation.flink_job_id)
            why = f": {incarnation.root_cause}" if incarnation.root_cause else ""
            held.over(incarnation, f"cancelled to be started again{why}")
    return start_or_adopt(held, recover=True, log=log)

"""Start a streaming job, or adopt it when it runs already: exactly one of it, whatever fails.

The order is what makes it so. The last incarnation is settled; the INSERT is explained, so that a
script which does not compile or would get another's state is refused here; the next incarnation is
written down with its Flink job id and its own gateway session; only then is the INSERT posted, once
(``submission.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import (
    ExecutionPlan,
    FlinkJobStatus,
    JobManager,
    SqlGateway,
    job_ids_with_checkpoints,
)
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming import versions
from lakehouse_dagster.streaming.commits import not_older_than_its_commits
from lakehouse_dagster.streaming.engine import refuse_unfit_engine
from lakehouse_dagster.streaming.examination import HowToRestore, decide, examine
from lakehouse_dagster.streaming.foreign import refuse_beside
from lakehouse_dagster.streaming.previous import Settled, settle
from lakehouse_dagster.streaming.restore import (
    NO_STATE,
    RestoreChoice,
    choose_restore_point,
)
from lakehouse_dagster.streaming.running import wait_until_running
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.session import Prepared, close, prepare
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.stop import see_stop_through
from lakehouse_dagster.streaming.submission import close_session, launch
from lakehouse_dagster.system_db import DesiredState


class StartedHow(str, Enum):
    """Whether a job was there already."""

    STARTED = "started"
    ADOPTED = "adopted"


@dataclass(frozen=True)
class StartOutcome:
    """One job that certainly runs now. ``restored_from`` is None for a start from nothing."""

    job: str
    how: StartedHow
    incarnation: int
    flink_job_id: str
    restored_from: str | None
    reason: str


def start_or_adopt(
    held: HeldJob,
    *,
    allow_empty_start: bool = False,
    allow_state_loss: bool = False,
    recover: bool = False,
    log: logging.Logger = LOGGER,
) -> StartOutcome:
    """Make sure that exactly one incarnation of the job runs, and return which.

    A person starts the script as it is declared now; ``recover`` starts again what ran last, also
    when the script was edited since.

    Raises ``ClusterUnreachableError`` (nothing was started), ``NoRestorePointError``,
    ``ForeignJobError``, ``StateWouldBeLostError`` (unless ``allow_state_loss``),
    ``StateIncompatibleError`` or another ``StreamingJobError``; afterwards either one incarnation
    runs or none does.
    """
    memory = held.runtime.memory
    before = memory.ensure(held.name).desired
    memory.set_desired(held.name, DesiredState.RUNNING)
    try:
        outcome = _start_or_adopt(held, allow_empty_start, allow_state_loss, recover, log)
    except Exception:
        raise
    except BaseException:
        # Cancelling a run does not change what is wanted of the job. (CANCELED: see abandon.)
        if memory.ensure(held.name).desired is DesiredState.RUNNING:
            memory.set_desired(held.name, before)
        raise
    memory.set_error(held.name, None)
    return outcome


def _start_or_adopt(
    held: HeldJob,
    allow_empty_start: bool,
    allow_state_loss: bool,
    recover: bool,
    log: logging.Logger,
) -> StartOutcome:
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        refuse_unfit_engine(held.runtime.cluster, held.runtime.catalog.warehouse)
        kept = where_state_is_kept(held, job_manager, recover=recover)
        settled = settle(held, job_manager, gateway, log, ids_with_checkpoints=kept.job_ids)
        alive = settled.incarnation if settled.alive else None
        if alive is not None and see_stop_through(held, alive, job_manager, log):
            settled = settle(held, job_manager, gateway, log, ids_with_checkpoints=kept.job_ids)
        if settled.alive:
            return _adopt(held, settled, job_manager, gateway, log)
        refuse_beside(held.name, settled.foreign)
        choice = _restore_choice(held, kept, allow_empty_start)
        ran = _what_ran(held, settled, choice, log) if recover else None
        if ran is not None:
            held = replace(held, job=ran.job)
            prepared, how = prepare(held, gateway, log, plan=ran.plan), HowToRestore()
        else:
            prepared = prepare(held, gateway, log)
            how = _as_far_as_it_fits(held, choice, prepared, allow_state_loss, log)
        if how.from_nothing:
            choice = RestoreChoice(None, "asked to start from nothing, since its sources moved")
        log.info("Starting %s: %s.", held.name, choice.reason)
        incarnation = launch(
            held,
            prepared,
            settled.highest_number + 1,
            choice,
            job_manager,
            gateway,
            log,
            ignore_unclaimed_state=how.ignore_unclaimed_state,
        )
    return StartOutcome(
        held.name,
        StartedHow.STARTED,
        incarnation.number,
        incarnation.flink_job_id,
        choice.path,
        choice.reason,
    )


def _restore_choice(held: HeldJob, kept: KeptState, allow_empty_start: bool) -> RestoreChoice:
    if not held.job.keeps_state:
        return NO_STATE
    choice = choose_restore_point(
        held.name,
        held.runtime.memory.incarnations(held.name),
        checkpoint_directory=kept.directory,
        ids_with_checkpoints=kept.job_ids,
        allow_empty_start=allow_empty_start,
    )
    return not_older_than_its_commits(held, choice, allow_empty_start=allow_empty_start)


@dataclass(frozen=True)
class _Ran:
    job: StreamingJob
    plan: ExecutionPlan | None


def _what_ran(
    held: HeldJob, settled: Settled, choice: RestoreChoice, log: logging.Logger
) -> _Ran | None:
    """The version that the state belongs to; None when that is not known.

    It is not always the newest that was submitted: an upgrade that was killed before its first
    checkpoint is so undone.
    """
    ran = choice.incarnation or settled.incarnation
    job = versions.job_of(held.runtime, ran) if ran is not None else None
    if ran is None or job is None:
        return None
    if job.fingerprint != held.job.fingerprint:
        log.info("The script of %s has changed since; what ran is started again.", held.name)
    return _Ran(job, versions.plan_of(held.runtime, ran))


def _as_far_as_it_fits(
    held: HeldJob,
    choice: RestoreChoice,
    prepared: Prepared,
    allow_state_loss: bool,
    log: logging.Logger,
) -> HowToRestore:
    if choice.path is None or choice.incarnation is None:
        return HowToRestore()
    try:
        findings = examine(held, choice.incarnation, prepared.plan, holds=choice.metadata)
        how = decide(held, findings, verb="start", allow_state_loss=allow_state_loss)
    except BaseException:
        close(prepared.session, log)
        raise
    if how.warning is not None:
        log.warning("%s", how.warning)
    return how


@dataclass(frozen=True)
class KeptState:
    """The checkpoint directory of a job, and the Flink job ids that have a folder in it."""

    directory: str
    job_ids: frozenset[str]


def where_state_is_kept(
    held: HeldJob, job_manager: JobManager, *, recover: bool = False
) -> KeptState:
    """Where the job that ran last left its checkpoints; where it will, if it never ran.

    Raises ``ConfigurationError`` when the script that is to run keeps none.
    """
    configuration = job_manager.configuration()
    ran = versions.deployed(held.runtime, held.name)
    if not recover or ran is None:
        directory = _checkpoint_directory(held, configuration)
    if ran is not None:
        directory = _checkpoint_directory(replace(held, job=ran), configuration)
    return KeptState(directory, job_ids_with_checkpoints(directory))


def _checkpoint_directory(held: HeldJob, configuration: Mapping[str, str]) -> str:
    directory = job_settings.checkpoint_directory(
        configuration, held.job.definition, held.runtime.environ
    )
    if directory is None:
        raise ConfigurationError(
            f"Neither the cluster {held.runtime.cluster.name} nor the script of {held.name} sets "
            "execution.checkpointing.dir, so nothing could be restored after a failure.",
            remedy="Set it in the cluster's configuration, or by SET in the script.",
        )
    if not job_settings.checkpoint_interval_is_set(configuration, held.job.definition):
        raise ConfigurationError(
            f"Neither the cluster {held.runtime.cluster.name} nor the script of {held.name} sets "
            "execution.checkpointing.interval; without checkpoints Paimon never commits.",
            remedy="Add SET 'execution.checkpointing.interval' = '1min'; to the script.",
        )
    return directory


def _adopt(
    held: HeldJob,
    settled: Settled,
    job_manager: JobManager,
    gateway: SqlGateway,
    log: logging.Logger,
) -> StartOutcome:
    incarnation = settled.incarnation
    assert incarnation is not None
    log.info("Incarnation %d of %s runs already.", incarnation.number, held.name)
    if settled.status is not FlinkJobStatus.RESTARTING:  # restarting is Flink's own work
        wait_until_running(held, incarnation, job_manager, log)
    close_session(held, incarnation, gateway, log)
    return StartOutcome(
        held.name,
        StartedHow.ADOPTED,
        incarnation.number,
        incarnation.flink_job_id,
        incarnation.restored_from,
        "it runs already",
    )

"""Replace a running job by its changed script, keeping its state; or by itself (restart).

Everything that can be known beforehand is found out while the old version runs. Then it is stopped
with a savepoint, the new version starts from that, and is watched until its first own checkpoint
has completed; if it does not come so far, the old version runs again from the same savepoint.

Whatever happens in between, what is wanted of the job stays RUNNING and the savepoint is on record
as that of the old version: the supervisor starts the version that the newest state belongs to.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from enum import Enum

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    LakehouseError,
    LeaseLostError,
    NotFoundError,
    StreamingJobError,
    UpgradeFailedError,
)
from lakehouse_dagster.flink import (
    ExecutionPlan,
    JobException,
    JobManager,
    SqlGateway,
    compare,
)
from lakehouse_dagster.streaming import versions
from lakehouse_dagster.streaming.engine import refuse_unfit_engine
from lakehouse_dagster.streaming.examination import (
    Findings,
    HowToRestore,
    decide,
    examine,
    newest_checkpoint,
    operators_with_state,
)
from lakehouse_dagster.streaming.previous import cancel_and_wait, now_on_cluster, settle
from lakehouse_dagster.streaming.restore import NO_STATE, RestoreChoice, choose_restore_point
from lakehouse_dagster.streaming.running import SAME_FAILURE_AT_MOST, wait_for_first_checkpoint
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.session import Prepared, close, prepare, still_open
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.start import (
    KeptState,
    StartedHow,
    StartOutcome,
    start_or_adopt,
    where_state_is_kept,
)
from lakehouse_dagster.streaming.stop import stop_running
from lakehouse_dagster.streaming.submission import abandon, launch
from lakehouse_dagster.system_db import DesiredState, Incarnation


class UpgradedHow(str, Enum):
    """What was done to bring the declared script to the cluster."""

    UPGRADED = "upgraded"
    UNCHANGED = "unchanged"
    """The script that runs is the declared one."""
    STARTED = "started"
    """It did not run."""


@dataclass(frozen=True)
class UpgradeOutcome:
    """One job that certainly runs its declared script now.

    ``changes`` says in words what differs from the version before; ``savepoint_path`` is what the
    new version started from, None where it started from nothing or was not started.
    """

    job: str
    how: UpgradedHow
    from_incarnation: int | None
    to_incarnation: int
    flink_job_id: str
    changes: tuple[str, ...] = ()
    savepoint_path: str | None = None


def upgrade(
    held: HeldJob, *, allow_state_loss: bool = False, log: logging.Logger = LOGGER
) -> UpgradeOutcome:
    """Bring the declared script to the cluster in the place of what runs, with its state.

    Raises ``StateWouldBeLostError`` (unless ``allow_state_loss``), ``StreamingJobError`` when the
    script does not compile or the old version cannot be stopped (it then runs on), and
    ``UpgradeFailedError`` when the new version did not come to work; its text says whether the old
    one runs again.
    """
    return _replace(held, "upgrade", allow_state_loss, log)


def restart(
    held: HeldJob, *, allow_state_loss: bool = False, log: logging.Logger = LOGGER
) -> StartOutcome:
    """Stop with a savepoint and start the declared script from it, under one lease.

    The same as ``upgrade``, also when the script has not changed.
    """
    outcome = _replace(held, "restart", allow_state_loss, log)
    return StartOutcome(
        outcome.job,
        StartedHow.STARTED,
        outcome.to_incarnation,
        outcome.flink_job_id,
        outcome.savepoint_path,
        "; ".join(outcome.changes) or "restarted with the same plan",
    )


def _replace(
    held: HeldJob, verb: str, allow_state_loss: bool, log: logging.Logger
) -> UpgradeOutcome:
    with (
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        refuse_unfit_engine(held.runtime.cluster, held.runtime.catalog.warehouse)
        kept = where_state_is_kept(held, job_manager)
        settled = settle(held, job_manager, gateway, log, ids_with_checkpoints=kept.job_ids)
        old = settled.incarnation
        if old is not None and settled.alive:
            if verb == "upgrade" and old.fingerprint == held.job.fingerprint:
                log.info("%s runs its declared script already.", held.name)
                return UpgradeOutcome(
                    held.name, UpgradedHow.UNCHANGED, old.number, old.number, old.flink_job_id
                )
            work = _Replacement(held, old, kept, job_manager, gateway, log)
            return work.done(verb, allow_state_loss)
    started = start_or_adopt(held, allow_state_loss=allow_state_loss, log=log)
    return UpgradeOutcome(
        held.name,
        UpgradedHow.STARTED,
        old.number if old else None,
        started.incarnation,
        started.flink_job_id,
        (started.reason,),
        started.restored_from,
    )


@dataclass
class _Replacement:
    """One incarnation on its way to being replaced by another; ``held`` is the declared job."""

    held: HeldJob
    old: Incarnation
    kept: KeptState
    job_manager: JobManager
    gateway: SqlGateway
    log: logging.Logger
    old_job: StreamingJob | None = field(init=False)
    failed_before: JobException | None = field(init=False)

    def __post_init__(self) -> None:
        self.old_job = versions.job_of(self.held.runtime, self.old)
        self.failed_before = self._newest_failure()

    def done(self, verb: str, allow_state_loss: bool) -> UpgradeOutcome:
        held, log = self.held, self.log
        prepared = prepare(held, self.gateway, log)
        try:
            findings = self._examined(prepared)
            if prepared.operator_name == "" and not findings.state_is_kept:
                close(prepared.session, log)
                prepared = prepare(held, self.gateway, log, operator_name=held.name)
                findings = self._examined(prepared)
            how = decide(held, findings, verb=verb, allow_state_loss=allow_state_loss)
            self._say(findings, how)
            held.runtime.memory.set_desired(held.name, DesiredState.RUNNING)
            self._stop_old()
            choice = self._restore_point()
            held.runtime.memory.set_operator_name(held.name, prepared.operator_name)
        except BaseException:
            close(prepared.session, log)
            raise
        new = self._start_new(prepared, choice, how)
        held.runtime.memory.set_error(held.name, None)
        return UpgradeOutcome(
            held.name,
            UpgradedHow.UPGRADED,
            self.old.number,
            new.number,
            new.flink_job_id,
            findings.change.in_words() if findings.change else (),
            new.restored_from,
        )

    def _examined(self, prepared: Prepared) -> Findings:
        """Compare with what runs; its newest checkpoint tells which operators have state."""
        known = versions.plan_of(self.held.runtime, self.old) is not None
        return examine(
            self.held,
            self.old,
            prepared.plan,
            holds=newest_checkpoint(self.job_manager, self.old.flink_job_id),
            running=None if known else self.job_manager.execution_plan(self.old.flink_job_id),
        )

    def _stop_old(self) -> None:
        """Stop with a savepoint; a job that fails again and again gives none, and is cancelled.

        It goes on from its newest checkpoint, which holds all that was ever committed.
        """
        held, old = self.held, self.old
        if not self._fails():
            try:
                # (One that keeps no state is cancelled by this too.)
                stop_running(held, self.job_manager, self.gateway, self.log, gives_up=self._fails)
                return
            except StreamingJobError:
                if not self._fails():
                    raise
        self.log.info("%s is restarting: it is cancelled instead of stopped.", held.name)
        cancel_and_wait(held, self.job_manager, old.flink_job_id)
        held.over(old, "cancelled to be upgraded")

    def _fails(self) -> bool:
        """Whether it waits to be restarted, or has failed since this began."""
        job = now_on_cluster(self.job_manager, self.old.flink_job_id)
        if job is None or job.status.is_terminal:
            return False
        return job.status.is_restarting or self._newest_failure() != self.failed_before

    def _newest_failure(self) -> JobException | None:
        return next(iter(self.job_manager.exceptions(self.old.flink_job_id)), None)

    def _say(self, findings: Findings, how: HowToRestore) -> None:
        name, change = self.held.name, findings.change
        if change is None:
            self.log.warning("What %s runs now is not known, so nothing was compared.", name)
        else:
            words = "; ".join(change.in_words()) or "no operator with state changes"
            self.log.info("Compared %s with %s: %s.", name, findings.compared_with, words)
        if how.warning is not None:
            self.log.warning("%s", how.warning)

    def _restore_point(self) -> RestoreChoice:
        """The newest state: the savepoint of the stop, or a checkpoint that was taken after it."""
        if not self.held.job.keeps_state:
            return NO_STATE
        now = where_state_is_kept(self.held, self.job_manager, recover=True)
        return choose_restore_point(
            self.held.name,
            self.held.runtime.memory.incarnations(self.held.name),
            checkpoint_directory=self.kept.directory,
            ids_with_checkpoints=self.kept.job_ids | now.job_ids,
        )

    def _start_new(self, prepared: Prepared, left: RestoreChoice, how: HowToRestore) -> Incarnation:
        choice = left
        if how.from_nothing:
            choice = RestoreChoice(None, "from nothing, as was allowed")
        held, number = self.held, self.old.number + 1
        try:
            if not still_open(prepared):
                name = prepared.operator_name
                prepared = prepare(held, self.gateway, self.log, operator_name=name)
            new = launch(
                held,
                prepared,
                number,
                choice,
                self.job_manager,
                self.gateway,
                self.log,
                ignore_unclaimed_state=how.ignore_unclaimed_state,
                wanted_while_abandoned=DesiredState.RUNNING,
                same_failure_at_most=SAME_FAILURE_AT_MOST,
            )
            self._watch(new)
        except (LeaseLostError, ClusterUnreachableError):
            # Whoever took over, or the supervisor when the cluster answers again, settles it.
            raise
        except LakehouseError as error:
            failed = self._went_back(prepared.plan, error)
            held.runtime.memory.set_error(held.name, str(failed))
            raise failed from error
        return new

    def _watch(self, new: Incarnation) -> None:
        try:
            wait_for_first_checkpoint(self.held, new, self.job_manager, self.log)
        except Exception:
            raise
        except BaseException:
            meanwhile = DesiredState.RUNNING
            abandon(self.held, new, self.job_manager, self.log, meanwhile=meanwhile)
            raise

    def _went_back(self, new: ExecutionPlan, error: LakehouseError) -> UpgradeFailedError:
        """Make sure that the new version is over, and start the old one; say how that went."""
        cause = error.message.rstrip(".")
        failed = f"The new version of {self.held.name} did not come to work: {cause}."
        self.log.warning("%s Going back to the old one.", failed)
        try:
            number = self._over(error)
            # Not the savepoint if the new version has completed a checkpoint: its rows are in the
            # tables, and from before them the old version would write them once more.
            choice = self._restore_point()
        except LeaseLostError:
            raise
        except LakehouseError as second:
            return UpgradeFailedError(f"{failed} {second.message}", remedy=second.remedy)
        point = choice.path or "nothing"
        if self.old_job is None:
            return UpgradeFailedError(
                f"{failed} What ran before is not known (it was started by hand, or holds a "
                "secret), so it could not be started again.",
                remedy=f"Its state is kept at {point}: correct the script and start it.",
            )
        if not self._fits_old_version(new, choice):
            return UpgradeFailedError(
                f"{failed} It has completed a checkpoint, so its rows are in the tables, and what "
                "it keeps there does not fit the old version, which was not started.",
                remedy=f"Correct the script and start it: it goes on from {point}.",
            )
        try:
            back = self._start_old(self.old_job, number + 1, choice)
        except LeaseLostError:
            raise
        except LakehouseError as second:
            return UpgradeFailedError(
                f"{failed} The old version could not be started either: {second.message}",
                remedy="It stays wanted RUNNING, so the supervisor starts the old version from "
                f"{point} as soon as it can. Correct the script and upgrade again.",
            )
        return UpgradeFailedError(
            f"{failed} The old version runs again as incarnation {back.number}, from {point}: "
            "nothing is lost.",
            remedy="Correct the script and upgrade again.",
        )

    def _over(self, error: LakehouseError) -> int:
        """Cancel the new version if it is still there; the newest number on record."""
        held, memory = self.held, self.held.runtime.memory
        new = memory.latest(held.name)
        if new is None or new.number == self.old.number:
            return self.old.number  # it was never recorded
        cancel_and_wait(held, self.job_manager, new.flink_job_id)
        if not new.state.is_over:
            new = held.over(new, f"upgrade failed: {error.message}")
        try:
            newest = self.job_manager.checkpoints(new.flink_job_id).latest_completed
        except NotFoundError:
            newest = None  # it never came to the cluster
        if newest is not None:
            memory.update(
                held.name,
                new.number,
                checkpoint_id=newest.id,
                checkpoint_path=newest.external_path,
                checkpoint_at=newest.completed_at,
            )
        return new.number

    def _fits_old_version(self, new: ExecutionPlan, choice: RestoreChoice) -> bool:
        """Whether the old version can go on from what is the newest state now."""
        if choice.incarnation is None or choice.incarnation.number == self.old.number:
            return True
        old = versions.plan_of(self.held.runtime, self.old)
        if old is None:
            return False
        change = compare(new, old, with_state=operators_with_state(choice.metadata))
        return change.state_is_kept and not change.sources_added

    def _start_old(self, job: StreamingJob, number: int, choice: RestoreChoice) -> Incarnation:
        held = replace(self.held, job=job)
        plan = versions.plan_of(held.runtime, self.old)
        prepared = prepare(held, self.gateway, self.log, plan=plan)
        return launch(
            held,
            prepared,
            number,
            replace(choice, reason=f"back to the old version, {choice.reason}"),
            self.job_manager,
            self.gateway,
            self.log,
            wanted_while_abandoned=DesiredState.RUNNING,
        )

"""What a changed script means for its job's state, found out before anything is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakehouse_dagster.errors import StateWouldBeLostError, StateWouldMoveError
from lakehouse_dagster.flink import (
    CheckpointMetadata,
    ExecutionPlan,
    JobManager,
    PlanChange,
    Verdict,
    compare,
    known_checkpoint_metadata,
)
from lakehouse_dagster.flink.execution_plan import worked_out
from lakehouse_dagster.streaming import versions
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.system_db import Incarnation


@dataclass(frozen=True)
class Findings:
    """How the new plan differs from what ran; ``change`` is None when nothing could be compared."""

    change: PlanChange | None
    compared_with: str

    @property
    def state_is_kept(self) -> bool:
        """Whether every operator gets its own state, as far as is known."""
        return self.change is None or self.change.state_is_kept


@dataclass(frozen=True)
class HowToRestore:
    """How much of the state the new version is started with."""

    from_nothing: bool = False
    ignore_unclaimed_state: bool = False
    warning: str | None = None


def examine(
    held: HeldJob,
    ran: Incarnation,
    new: ExecutionPlan,
    *,
    holds: CheckpointMetadata | None,
    running: ExecutionPlan | None = None,
) -> Findings:
    """Compare a new plan with what an incarnation ran and with what its restore point ``holds``.

    ``running`` is the incarnation's plan as the cluster shows it, for one that we did not submit.
    """
    with_state = operators_with_state(holds)
    old = versions.plan_of(held.runtime, ran) or running
    if old is None and with_state is None:
        return Findings(None, "nothing")
    if old is None:
        change = compare(ExecutionPlan(()), new, with_state=with_state)
        return Findings(change, "its restore point")
    if with_state is not None and old.is_complete:
        # Ids that we would not have foretold are left to Flink, which refuses what it cannot map;
        # nothing is claimed of them.
        with_state &= {str(node.operator_id) for node in old.nodes}
    elif with_state is not None:
        old = worked_out(old, with_state)
    change = compare(old, new, with_state=with_state)
    before = versions.job_of(held.runtime, ran)
    return Findings(_with_redeclared(change, before, held.job, old), "what runs")


def newest_checkpoint(job_manager: JobManager, job_id: str) -> CheckpointMetadata | None:
    """Of one that is still there: Flink deletes it as soon as the next is complete."""
    for _ in range(3):
        newest = job_manager.checkpoints(job_id).latest_completed
        if newest is None:
            return None
        metadata = known_checkpoint_metadata(newest.external_path)
        if metadata is not None:
            return metadata
    return None


def operators_with_state(holds: CheckpointMetadata | None) -> set[str] | None:
    """The ids that hold state in a restore point; None when that is not known."""
    return None if holds is None else {o.id for o in holds.operators if o.has_state}


def _with_redeclared(
    change: PlanChange, before: StreamingJob | None, now: StreamingJob, old: ExecutionPlan
) -> PlanChange:
    """A source that kept its name but reads another topic or path gets state that is not its own.

    The plan shows names alone; what they stand for is in the scripts.
    """
    if before is None or change.sources_added or change.sources_removed:
        return change
    gone = [key for key in before.definition.sources if key not in now.definition.sources]
    come = [key for key in now.definition.sources if key not in before.definition.sources]
    if not gone or not come or all(source.uid is not None for source in old.sources):
        return change
    moved = tuple(("/".join(a), "/".join(b)) for a, b in zip(gone, come, strict=False))
    return replace(change, sources_moved=(*change.sources_moved, *moved))


def decide(held: HeldJob, findings: Findings, *, verb: str, allow_state_loss: bool) -> HowToRestore:
    """Whether the new version may start from the old one's state, and how.

    Raises ``StateWouldMoveError`` or ``StateWouldBeLostError``, with the choices, unless a person
    has allowed the loss.
    """
    change = findings.change
    if change is None or findings.state_is_kept:
        return HowToRestore()
    if change.verdict is Verdict.MOVED:
        said = _what_would_move(held, change)
        if not allow_state_loss:
            raise StateWouldMoveError(said, remedy=_choices(held, verb, change))
        return HowToRestore(
            from_nothing=True,
            warning=f"{said} It starts from nothing, as was allowed.",
        )
    said = _what_would_be_lost(held, change)
    if not allow_state_loss:
        raise StateWouldBeLostError(said, remedy=_choices(held, verb, change))
    return HowToRestore(ignore_unclaimed_state=True, warning=f"{said} That was allowed.")


def _what_would_move(held: HeldJob, change: PlanChange) -> str:
    moves = "; ".join(f"the state of {old} would go to {new}" for old, new in change.moved)
    return (
        f"The changed script of {held.name} puts its operators into another order, and Flink hands "
        f"over their state by their places: {moves}. Flink would not notice, and rows would be "
        "left out, repeated or written to the wrong table."
    )


def _what_would_be_lost(held: HeldJob, change: PlanChange) -> str:
    lost = list(change.lost)
    if change.unknown_lost:
        lost.append(f"{change.unknown_lost} operators that only Flink's ids are known of")
    text = (
        f"The changed script of {held.name} cannot take over all of the job's state; lost would "
        f"be that of {', '.join(lost)}."
    )
    if change.reordered:
        text += f" Still there, but at another place: {', '.join(change.reordered)}."
    if any(name.startswith("the source ") for name in change.lost):
        text += " A source without its state reads from its beginning again."
    return text


def _choices(held: HeldJob, verb: str, change: PlanChange) -> str:
    if change.verdict is Verdict.MOVED:
        loss = (
            "the job then starts from nothing: its sources are read as if for the first time, and "
            "what an append table holds already comes twice"
        )
        first = "Undo the change, or add what is new at the end of the statement set"
    else:
        loss = "the rest of the state is kept"
        first = "Undo the change"
    return (
        f"{first}; or give the job another name (SET 'pipeline.name'), under which it starts from "
        f"nothing; or accept the loss with `lakehouse jobs {verb} {held.name} --allow-state-loss`: "
        f"{loss}. Nothing was stopped or started."
    )

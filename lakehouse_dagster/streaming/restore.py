"""Where the next incarnation takes its state from: a savepoint, a retained checkpoint, or nothing.

Starting from nothing although there was state would read the sources again from their beginning or
skip to their end, so it is done only when no checkpoint can ever have completed, or on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import FlinkJobStatus, is_complete, newest_complete_checkpoint
from lakehouse_dagster.system_db import Incarnation


@dataclass(frozen=True)
class RestoreChoice:
    """A restore point's path, or None to start from nothing; and why this one."""

    path: str | None
    reason: str


def choose_restore_point(
    job_name: str,
    incarnations: Sequence[Incarnation],
    *,
    checkpoint_directory: str,
    ids_with_checkpoints: frozenset[str],
    allow_empty_start: bool = False,
) -> RestoreChoice:
    """Choose for the incarnation after ``incarnations`` (newest first).

    ``ids_with_checkpoints`` are the Flink job ids that have a folder in the checkpoint directory.
    Raises ``NoRestorePointError`` when the job had state and none of it is left.
    """
    lost_state = False
    for incarnation in incarnations:
        choice = _of(incarnation, checkpoint_directory)
        if choice is not None:
            return choice
        if _may_have_completed_a_checkpoint(incarnation, ids_with_checkpoints):
            # What an older incarnation left is from before this one's commits: starting there
            # would write their rows again.
            lost_state = True
            break
    if not incarnations:
        return RestoreChoice(None, "the job never ran")
    if not lost_state:
        return RestoreChoice(None, "no earlier incarnation completed a checkpoint")
    if allow_empty_start:
        return RestoreChoice(None, "asked to start from nothing")
    looked = ", ".join(str(i.number) for i in incarnations[:5])
    raise NoRestorePointError(
        f"Streaming job {job_name} ran before (incarnations {looked}), but neither a savepoint nor "
        f"a complete checkpoint of the last one that had state is left under "
        f"{checkpoint_directory}.",
        remedy=(
            "Bring the folder back and start again, or start it from nothing with "
            f"`lakehouse jobs start {job_name} --allow-empty-start`: its sources are then read "
            "as if for the first time."
        ),
    )


def _of(incarnation: Incarnation, checkpoint_directory: str) -> RestoreChoice | None:
    """The newest usable state of one incarnation, or the state that it was started from."""
    number = incarnation.number
    if incarnation.savepoint_path and is_complete(incarnation.savepoint_path):
        return RestoreChoice(incarnation.savepoint_path, f"savepoint of incarnation {number}")
    newest = newest_complete_checkpoint(checkpoint_directory, incarnation.flink_job_id)
    if newest is not None:
        return RestoreChoice(
            newest.path, f"checkpoint {newest.checkpoint_id} of incarnation {number}"
        )
    if incarnation.checkpoint_path and is_complete(incarnation.checkpoint_path):
        return RestoreChoice(incarnation.checkpoint_path, f"checkpoint of incarnation {number}")
    return None


def _may_have_completed_a_checkpoint(
    incarnation: Incarnation, ids_with_checkpoints: frozenset[str]
) -> bool:
    """Whether state of this incarnation can be missing.

    A completed checkpoint is retained until a newer one is complete, so a job folder that holds
    none proves that none completed. A job that ran and has no folder proves nothing.
    """
    if incarnation.checkpoint_id is not None or incarnation.savepoint_path is not None:
        return True
    if incarnation.end_reason == FlinkJobStatus.FINISHED.value:
        return True  # at the end of its sources Flink deletes the checkpoints; the rows are there
    ran = incarnation.running_at is not None
    return ran and incarnation.flink_job_id not in ids_with_checkpoints

"""Where the next incarnation takes its state from: a savepoint, a retained checkpoint, or nothing.

Starting from nothing although there was state would read the sources again from their beginning or
skip to their end, so it is done only when no checkpoint can ever have completed, or on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from lakehouse_dagster.errors import CheckpointMetadataError, NoRestorePointError
from lakehouse_dagster.flink import FlinkJobStatus, is_complete
from lakehouse_dagster.flink.byte_cursor import DamagedBytesError
from lakehouse_dagster.flink.checkpoint_metadata import (
    CheckpointMetadata,
    known_checkpoint_metadata,
    read_checkpoint_metadata,
)
from lakehouse_dagster.flink.restore_points import complete_checkpoints
from lakehouse_dagster.system_db import Incarnation


@dataclass(frozen=True)
class RestoreChoice:
    """A restore point's path, or None to start from nothing; and why this one.

    ``incarnation`` is the one whose state it is; ``metadata`` is what it holds, None where that is
    not known.
    """

    path: str | None
    reason: str
    incarnation: Incarnation | None = field(default=None, compare=False)
    metadata: CheckpointMetadata | None = field(default=None, compare=False, repr=False)


_SAVEPOINT = "savepoint"
NO_STATE = RestoreChoice(None, "it keeps no state")
"""For jobs that find all they need in the tables."""


@dataclass(frozen=True)
class Candidate:
    """A complete restore point of an incarnation.

    ``what`` it is, in words; ``checkpoint_id`` is None where it is not known.
    """

    path: str
    what: str
    checkpoint_id: int | None

    @property
    def is_savepoint(self) -> bool:
        return self.what == _SAVEPOINT


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
    """The newest usable state of one incarnation."""
    damaged = ""
    for candidate in candidates_of(incarnation, checkpoint_directory):
        reason = f"{candidate.what} of incarnation {incarnation.number}"
        try:
            metadata = _metadata_unless_damaged(candidate.path)
        except DamagedBytesError:
            damaged += f"; the {reason} is damaged"
            continue
        return RestoreChoice(candidate.path, f"{reason}{damaged}", incarnation, metadata)
    return None


def candidates_of(incarnation: Incarnation, checkpoint_directory: str | None) -> list[Candidate]:
    """The complete restore points that an incarnation left, in the order of preference.

    Without a directory those alone that are on record.

    Raises ``FlinkError`` when the folder cannot be read, so that nothing is known.
    """
    checkpoints = [
        Candidate(point.path, f"checkpoint {point.checkpoint_id}", point.checkpoint_id)
        for point in (
            complete_checkpoints(checkpoint_directory, incarnation.flink_job_id)
            if checkpoint_directory
            else ()
        )
    ]
    recorded = incarnation.checkpoint_path
    if not checkpoints and recorded and is_complete(recorded):
        checkpoints = [Candidate(recorded, "checkpoint", incarnation.checkpoint_id)]
    savepoint = incarnation.savepoint_path
    if savepoint is None or not is_complete(savepoint):
        return checkpoints
    metadata = known_checkpoint_metadata(savepoint) if checkpoints else None
    number = metadata.checkpoint_id if metadata else None
    return by_preference(checkpoints, Candidate(savepoint, _SAVEPOINT, number))


class _Numbered(Protocol):
    @property
    def checkpoint_id(self) -> int | None: ...


_Point = TypeVar("_Point", bound=_Numbered)


def by_preference(checkpoints: Sequence[_Point], savepoint: _Point) -> list[_Point]:
    """One incarnation's checkpoints (newest first) and its savepoint, best first.

    Savepoints and checkpoints of a job are numbered together. A stop can complete its savepoint
    and leave the job running after all: then checkpoints, and commits, follow upon it.
    """
    newer = [c for c in checkpoints if _is_later(c.checkpoint_id, savepoint.checkpoint_id)]
    older = [c for c in checkpoints if c not in newer]
    return [*newer, savepoint, *older]


def _is_later(number: int | None, other: int | None) -> bool:
    return number is not None and other is not None and number > other


def _metadata_unless_damaged(path: str) -> CheckpointMetadata | None:
    """What it holds; None for a version that is not known here, which Flink is left to judge.

    Raises ``DamagedBytesError`` when it cannot be what Flink wrote: cut off when the disk was full,
    say.
    """
    try:
        return read_checkpoint_metadata(path)
    except CheckpointMetadataError as error:
        if isinstance(error.__cause__, DamagedBytesError):
            raise error.__cause__ from error
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

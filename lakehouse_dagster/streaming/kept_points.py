"""The restore points of a job that are on disk now, and in which order a start prefers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lakehouse_dagster.flink import (
    RestorePointKind,
    complete_checkpoints,
    completed_at,
    job_ids_with_checkpoints,
    known_checkpoint_metadata,
)
from lakehouse_dagster.flink.file_access import same_place
from lakehouse_dagster.streaming.restore import by_preference
from lakehouse_dagster.system_db import Incarnation


@dataclass(frozen=True)
class KeptPoint:
    """A complete restore point that is on disk now.

    ``number`` is its incarnation's. ``sound`` says that its metadata can be read: one that is
    damaged makes no other superfluous. ``checkpoint_id`` is None where it is not known.
    """

    number: int
    path: str
    completed_at: datetime
    kind: RestorePointKind
    checkpoint_id: int | None
    sound: bool = True


@dataclass(frozen=True)
class RestorePointFacts:
    """What is on disk and on the cluster now.

    ``folders`` are the checkpoint directories in which incarnations (by number) have a folder of
    their own; ``alive`` are the numbers of those that the cluster shows alive;
    ``savepoint_directories`` are where our savepoints go.
    """

    points: tuple[KeptPoint, ...]
    folders: Mapping[int, str] = field(hash=False)
    alive: frozenset[int]
    savepoint_directories: tuple[str, ...]


def look(
    incarnations: Sequence[Incarnation],
    alive_job_ids: frozenset[str],
    *,
    checkpoint_directory: str | None,
    savepoint_directories: tuple[str, ...],
) -> RestorePointFacts:
    """What is on disk of a job's incarnations now.

    Args:
        incarnations: of one job.
        alive_job_ids: the Flink job ids that the cluster shows alive.
        checkpoint_directory: where the job's checkpoints go at present.
        savepoint_directories: where its savepoints go.

    Raises:
        FlinkError: a folder cannot be read, so nothing can be decided.
    """
    known = _IdsByDirectory()
    points: list[KeptPoint] = []
    folders: dict[int, str] = {}
    for life in incarnations:
        if life.restore_points_deleted_at is not None:
            continue
        for own in _directories_of(life, checkpoint_directory):
            if life.flink_job_id in known.of(own):
                folders[life.number] = own
                points += _checkpoints(life, own)
        points += _savepoint(life)
    return RestorePointFacts(
        tuple(points),
        folders,
        frozenset(life.number for life in incarnations if life.flink_job_id in alive_job_ids),
        savepoint_directories,
    )


class _IdsByDirectory:
    """Which jobs have a folder in a checkpoint directory; each is listed once."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def of(self, directory: str) -> frozenset[str]:
        if directory not in self._known:
            self._known[directory] = job_ids_with_checkpoints(directory)
        return self._known[directory]


def _directories_of(life: Incarnation, present: str | None) -> list[str]:
    """Where its checkpoints were written; the script may name another place by now."""
    found = {same_place(present): present} if present else {}
    recorded = life.checkpoint_path
    if recorded is not None:
        directory, separator, _ = recorded.rpartition(f"/{life.flink_job_id}/")
        if separator:
            found.setdefault(same_place(directory), directory)
    return list(found.values())


def _checkpoints(life: Incarnation, directory: str) -> list[KeptPoint]:
    return [
        KeptPoint(
            life.number,
            point.path,
            point.completed_at,
            point.kind,
            point.checkpoint_id,
            known_checkpoint_metadata(point.path) is not None,
        )
        for point in complete_checkpoints(directory, life.flink_job_id)
    ]


def _savepoint(life: Incarnation) -> list[KeptPoint]:
    path = life.savepoint_path
    written_at = completed_at(path) if path else None
    if path is None or written_at is None:
        return []
    metadata = known_checkpoint_metadata(path)
    return [
        KeptPoint(
            life.number,
            path,
            written_at,
            RestorePointKind.SAVEPOINT,
            metadata.checkpoint_id if metadata else None,
            metadata is not None,
        )
    ]


def in_order(points: Iterable[KeptPoint]) -> list[KeptPoint]:
    """Restore points in the order in which a start prefers them, best first.

    As ``restore.choose_restore_point`` does: the newest incarnation first.
    """
    ordered: list[KeptPoint] = []
    by_number: dict[int, list[KeptPoint]] = {}
    for point in points:
        by_number.setdefault(point.number, []).append(point)
    for number in sorted(by_number, reverse=True):
        ordered += _in_order_of_one(by_number[number])
    return ordered


def _in_order_of_one(points: Sequence[KeptPoint]) -> list[KeptPoint]:
    checkpoints = sorted(
        (p for p in points if p.kind is RestorePointKind.CHECKPOINT),
        key=lambda p: (p.completed_at, p.checkpoint_id or 0),
        reverse=True,
    )
    savepoints = [p for p in points if p.kind is RestorePointKind.SAVEPOINT]
    if not savepoints:
        return checkpoints
    return by_preference(checkpoints, savepoints[0])

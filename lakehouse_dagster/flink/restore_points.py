"""Which restore points are complete, which is the newest, and how they are deleted.

Flink writes ``_metadata`` last: after a crash a folder ``chk-N`` without it may be left behind,
which nothing can be restored from. So it is deleted first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink.file_access import (
    METADATA_FILE,
    Files,
    as_given,
    files_at,
    unreadable,
)

_CHECKPOINT_FOLDER = re.compile(r"chk-(\d+)")
_SAVEPOINT_FOLDER = re.compile(r"savepoint-[A-Za-z0-9-]+")
# As Flink names them itself: the beginning of the job's id, then 12 random digits.
_FLINKS_SAVEPOINT_FOLDER = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
_JOB_FOLDER = re.compile(r"[0-9a-f]{32}")
_SHARED_FOLDERS = ("shared", "taskowned")


class RestorePointKind(str, Enum):
    """How a restore point came about."""

    SAVEPOINT = "savepoint"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class RestorePoint:
    """A savepoint or retained checkpoint that a job can start from.

    ``path`` is what ``execution.state-recovery.path`` takes; ``completed_at`` is when its metadata
    was written (UTC); ``checkpoint_id`` is None for a savepoint.
    """

    path: str
    completed_at: datetime
    kind: RestorePointKind
    checkpoint_id: int | None


def newest_complete_checkpoint(checkpoint_dir: str, job_id: str) -> RestorePoint | None:
    """The newest checkpoint of a job that is complete; None when there is none.

    Args:
        checkpoint_dir: Flink's ``execution.checkpointing.dir``: a local path or ``file:`` URI, or
            any URI that ``pyarrow.fs.FileSystem.from_uri`` reads (``s3://``, ``hdfs://`` …).
        job_id: 32 hexadecimal digits.

    Raises:
        FlinkError: the folder exists but cannot be read: not the same as "no checkpoint".
        ConfigurationError: the kind of address is not known.
    """
    complete = complete_checkpoints(checkpoint_dir, job_id)
    return complete[0] if complete else None


def complete_checkpoints(checkpoint_dir: str, job_id: str) -> tuple[RestorePoint, ...]:
    """All complete checkpoints of a job, newest first; as ``newest_complete_checkpoint``."""
    folder = job_folder(checkpoint_dir, job_id)
    complete = []
    try:
        files, local_folder = files_at(folder)
        for name in files.folders(local_folder):
            number = _CHECKPOINT_FOLDER.fullmatch(name)
            completed_at = files.written_at(f"{local_folder}/{name}/{METADATA_FILE}")
            if number and completed_at:
                complete.append((completed_at, int(number[1]), f"{folder}/{name}"))
    except OSError as error:
        raise unreadable(folder, error) from error
    return tuple(
        RestorePoint(path, completed_at, RestorePointKind.CHECKPOINT, checkpoint_id)
        for completed_at, checkpoint_id, path in sorted(complete, reverse=True)
    )


def job_folder(checkpoint_dir: str, job_id: str) -> str:
    """Where Flink keeps the checkpoints of a job."""
    if not _JOB_FOLDER.fullmatch(job_id):
        raise ConfigurationError(
            f"{job_id!r} is not a job id of Flink.", remedy="It has 32 hexadecimal digits."
        )
    return f"{as_given(checkpoint_dir)}/{job_id}"


def is_complete(path: str) -> bool:
    """Whether a savepoint or checkpoint at this path can be restored from: has its metadata.

    Args:
        path: its folder, or the ``_metadata`` file in it.

    Raises:
        FlinkError: it cannot be looked at.
        ConfigurationError: the kind of address is not known.
    """
    return completed_at(path) is not None


def completed_at(path: str) -> datetime | None:
    """When a restore point was complete (UTC), None when it is not; as ``is_complete``."""
    path = as_given(path)
    if path.rpartition("/")[2] != METADATA_FILE:
        path = f"{path}/{METADATA_FILE}"
    try:
        files, local_path = files_at(path)
        return files.written_at(local_path)
    except OSError as error:
        raise unreadable(path, error) from error


def job_ids_with_checkpoints(checkpoint_dir: str) -> frozenset[str]:
    """The Flink job ids that have a folder under the checkpoint directory, complete or not.

    The JobManager makes the folder when a job starts, so a job without one never got so far, or
    its folder was taken away.

    Raises:
        FlinkError: the directory exists but cannot be read.
        ConfigurationError: the kind of address is not known.
    """
    directory = checkpoint_dir.rstrip("/")
    try:
        files, local_path = files_at(directory)
        names = files.folders(local_path)
    except OSError as error:
        raise unreadable(directory, error) from error
    return frozenset(name for name in names if _JOB_FOLDER.fullmatch(name))


def delete_restore_point(path: str) -> bool:
    """Delete one savepoint or checkpoint; whether there was anything to delete.

    What lies beside it (an incremental checkpoint's ``shared`` files, other restore points) stays.
    Links in it are deleted, never followed. Interrupted, it is no restore point any more, and
    deleting it again deletes the rest.

    Args:
        path: the folder ``chk-N`` or ``savepoint-…``.

    Raises:
        ConfigurationError: this is not what Flink calls a restore point, or a link; nothing was
            deleted.
        FlinkError: it cannot be deleted.
    """
    path = as_given(path)
    try:
        files, local_path = files_at(path)
        if not files.is_plain_folder(local_path):
            if list(files.names(local_path)):
                raise _refused(path, "it is a link")
            return False
        if not _looks_like_restore_point(files, local_path):
            raise _refused(path, "it does not look like a savepoint or checkpoint of Flink")
        files.delete_file(f"{local_path}/{METADATA_FILE}")
        files.delete_folder(local_path)
    except OSError as error:
        raise unreadable(path, error) from error
    return True


def delete_checkpoints(checkpoint_dir: str, job_id: str) -> bool:
    """Delete all checkpoints of a job that is over, with what they share.

    The whole folder of the job goes: the files under ``shared`` and ``taskowned`` serve none but
    its own checkpoints, as long as every later job was restored in NO_CLAIM mode.

    Returns:
        Whether there was anything to delete.

    Raises:
        ConfigurationError: the folder holds other things too, or is a link; nothing was deleted.
        FlinkError: it cannot be deleted.
    """
    folder = job_folder(checkpoint_dir, job_id)
    try:
        files, local_folder = files_at(folder)
        names = list(files.names(local_folder))
        if not files.is_plain_folder(local_folder):
            if names:
                raise _refused(folder, "it is a link")
            return False
        for name in names:
            if not _CHECKPOINT_FOLDER.fullmatch(name) and name not in _SHARED_FOLDERS:
                raise _refused(folder, f"it holds {name!r}, which is not of Flink's checkpoints")
        for name in names:
            if files.is_plain_folder(f"{local_folder}/{name}"):
                files.delete_file(f"{local_folder}/{name}/{METADATA_FILE}")
        files.delete_folder(local_folder)
    except OSError as error:
        raise unreadable(folder, error) from error
    return True


def _looks_like_restore_point(files: Files, path: str) -> bool:
    parent, _, name = path.rpartition("/")
    if not parent:
        return False
    if _CHECKPOINT_FOLDER.fullmatch(name) or _FLINKS_SAVEPOINT_FOLDER.fullmatch(name):
        return True
    has_metadata = files.written_at(f"{path}/{METADATA_FILE}") is not None
    return bool(_SAVEPOINT_FOLDER.fullmatch(name)) and has_metadata


def _refused(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not deleted: {why}.", remedy="Look at it, and delete it by hand if it may go."
    )

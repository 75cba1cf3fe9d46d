"""Which retained checkpoints of a job are complete, and the newest of them.

Flink writes ``_metadata`` last: after a crash a folder ``chk-N`` without it may be left behind,
which nothing can be restored from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Protocol

from lakehouse_dagster.errors import ConfigurationError, FlinkError

METADATA_FILE = "_metadata"
_CHECKPOINT_FOLDER = re.compile(r"chk-(\d+)")
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/))?(?=/)|(?=/)")
# Names that Flink's file systems go by and Arrow's do not.
_ARROW_SCHEMES = {"s3a": "s3", "s3p": "s3", "s3n": "s3", "gs": "gs", "abfss": "abfss"}


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
    if not re.fullmatch(r"[0-9a-f]{32}", job_id):
        raise ConfigurationError(
            f"{job_id!r} is not a job id of Flink.", remedy="It has 32 hexadecimal digits."
        )
    folder = f"{_given(checkpoint_dir)}/{job_id}"
    complete = []
    try:
        files, local_folder = _files_at(folder)
        for name in files.folders(local_folder):
            number = _CHECKPOINT_FOLDER.fullmatch(name)
            completed_at = files.written_at(f"{local_folder}/{name}/{METADATA_FILE}")
            if number and completed_at:
                complete.append((completed_at, int(number[1]), f"{folder}/{name}"))
    except OSError as error:
        raise _unreadable(folder, error) from error
    if not complete:
        return None
    completed_at, checkpoint_id, path = max(complete)
    return RestorePoint(path, completed_at, RestorePointKind.CHECKPOINT, checkpoint_id)


def is_complete(path: str) -> bool:
    """Whether a savepoint or checkpoint at this path can be restored from: has its metadata.

    Args:
        path: its folder, or the ``_metadata`` file in it.

    Raises:
        FlinkError: it cannot be looked at.
        ConfigurationError: the kind of address is not known.
    """
    path = _given(path)
    if path.rpartition("/")[2] != METADATA_FILE:
        path = f"{path}/{METADATA_FILE}"
    try:
        files, local_path = _files_at(path)
        return files.written_at(local_path) is not None
    except OSError as error:
        raise _unreadable(path, error) from error


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
        files, local_path = _files_at(directory)
        names = files.folders(local_path)
    except OSError as error:
        raise _unreadable(directory, error) from error
    return frozenset(name for name in names if re.fullmatch(r"[0-9a-f]{32}", name))


def _given(path: str) -> str:
    if not path.strip():
        raise ConfigurationError(
            "The path of checkpoints is empty.", remedy="Use an absolute path, file:// or s3://."
        )
    return path.rstrip("/")


class _Files(Protocol):
    """As much of a file system as is needed here. OSError when it cannot be read."""

    def folders(self, path: str) -> Iterable[str]:
        """The names of the folders in a folder; none when it does not exist."""

    def written_at(self, path: str) -> datetime | None:
        """When a file was last written; None when it does not exist, is empty or no file."""


class _LocalFiles:
    def folders(self, path: str) -> Iterable[str]:
        try:
            with os.scandir(path) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def written_at(self, path: str) -> datetime | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not os.path.isfile(path) or status.st_size == 0:
            return None
        return datetime.fromtimestamp(status.st_mtime, tz=timezone.utc)


class _ArrowFiles:
    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def folders(self, path: str) -> Iterable[str]:
        from pyarrow import fs

        selector = fs.FileSelector(path, allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return [info.base_name for info in found if info.type == fs.FileType.Directory]

    def written_at(self, path: str) -> datetime | None:
        from pyarrow import fs

        info = self._filesystem.get_file_info(path)
        if info.type != fs.FileType.File or not info.size:
            return None
        written_at: datetime | None = info.mtime
        return written_at.astimezone(timezone.utc) if written_at else None


def _files_at(uri: str) -> tuple[_Files, str]:
    """The file system of a path or URI, and the path within it."""
    # Flink's own paths are not percent-encoded, so nothing is decoded here.
    if local := _LOCAL.match(uri):
        return _LocalFiles(), uri[local.end() :]
    from pyarrow import fs, lib

    scheme, separator, rest = uri.partition("://")
    arrow_uri = f"{_ARROW_SCHEMES.get(scheme, scheme)}{separator}{rest}"
    try:
        filesystem, path = fs.FileSystem.from_uri(arrow_uri)
    except (lib.ArrowException, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"Checkpoints at {uri} cannot be looked at: {type(error).__name__}.",
            remedy="Use an absolute path, file://, s3://, hdfs://, gs:// or abfss://.",
        ) from error
    return _ArrowFiles(filesystem), path


def _unreadable(path: str, error: OSError) -> FlinkError:
    return FlinkError(
        f"{path} cannot be read ({type(error).__name__}: {error.strerror or error}), so it is not "
        "known whether there is a restore point.",
        remedy="Make Flink's checkpoint folder readable from here.",
    )

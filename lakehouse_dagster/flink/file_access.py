"""Files where Flink keeps its restore points: on this machine, or where Arrow can reach."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any, Protocol

from lakehouse_dagster.errors import ConfigurationError, FlinkError

METADATA_FILE = "_metadata"
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/))?(?=/)|(?=/)")
# Names that Flink's file systems go by and Arrow's do not.
_ARROW_SCHEMES = {"s3a": "s3", "s3p": "s3", "s3n": "s3", "gs": "gs", "abfss": "abfss"}


class Files(Protocol):
    """As much of a file system as is needed here. OSError when it cannot be read or changed."""

    def folders(self, path: str) -> Iterable[str]:
        """The names of the folders in a folder; none when it does not exist."""

    def names(self, path: str) -> Iterable[str]:
        """The names of everything in a folder; none when it does not exist."""

    def written_at(self, path: str) -> datetime | None:
        """When a file was last written; None when it does not exist, is empty or no file."""

    def read(
        self, path: str, largest_bytes: int, *, offset: int = 0, size: int | None = None
    ) -> bytes | None:
        """A file's content; None when it does not exist, is empty, no file, or too large."""

    def is_plain_folder(self, path: str) -> bool:
        """Whether it is a folder itself, not a link to one."""

    def delete_file(self, path: str) -> None:
        """Delete a file; one that does not exist is fine."""

    def delete_folder(self, path: str) -> None:
        """Delete a folder and all in it; links in it are deleted, not followed."""


class LocalFiles:
    """Files of this machine."""

    def folders(self, path: str) -> Iterable[str]:
        try:
            with os.scandir(path) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def names(self, path: str) -> Iterable[str]:
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def written_at(self, path: str) -> datetime | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return None
        return datetime.fromtimestamp(status.st_mtime, tz=timezone.utc)

    def read(
        self, path: str, largest_bytes: int, *, offset: int = 0, size: int | None = None
    ) -> bytes | None:
        try:
            # Not a pipe that somebody put there: opening one would wait for ever.
            if not os.path.isfile(path):
                return None
            with open(path, "rb") as file:
                wanted = os.fstat(file.fileno()).st_size if size is None else size
                if not 0 < wanted <= largest_bytes:
                    return None
                file.seek(offset)
                return file.read(wanted)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_plain_folder(self, path: str) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def delete_file(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def delete_folder(self, path: str) -> None:
        if os.path.islink(path):
            raise OSError(f"{path} is a link")
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return


class ArrowFiles:
    """Files of a file system that Arrow knows, which has no links."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def folders(self, path: str) -> Iterable[str]:
        from pyarrow import fs

        return [i.base_name for i in self._infos(path) if i.type == fs.FileType.Directory]

    def names(self, path: str) -> Iterable[str]:
        return [info.base_name for info in self._infos(path)]

    def written_at(self, path: str) -> datetime | None:
        from pyarrow import fs

        info = self._filesystem.get_file_info(path)
        if info.type != fs.FileType.File or not info.size:
            return None
        written_at: datetime | None = info.mtime
        return written_at.astimezone(timezone.utc) if written_at else None

    def read(
        self, path: str, largest_bytes: int, *, offset: int = 0, size: int | None = None
    ) -> bytes | None:
        from pyarrow import fs

        info = self._filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            return None
        wanted = info.size if size is None else size
        if not wanted or wanted > largest_bytes:
            return None
        with self._filesystem.open_input_file(path) as file:
            content: bytes = file.read_at(wanted, offset)
            return content

    def is_plain_folder(self, path: str) -> bool:
        from pyarrow import fs

        return bool(self._filesystem.get_file_info(path).type == fs.FileType.Directory)

    def delete_file(self, path: str) -> None:
        from pyarrow import fs

        if self._filesystem.get_file_info(path).type == fs.FileType.File:
            self._filesystem.delete_file(path)

    def delete_folder(self, path: str) -> None:
        if self.is_plain_folder(path):
            self._filesystem.delete_dir(path)

    def _infos(self, path: str) -> Iterable[Any]:
        from pyarrow import fs

        found: Iterable[Any] = self._filesystem.get_file_info(
            fs.FileSelector(path, allow_not_found=True)
        )
        return found


def files_at(uri: str) -> tuple[Files, str]:
    """The file system of a path or URI, and the path within it.

    Raises ``ConfigurationError`` when the kind of address is not known.
    """
    # Flink's own paths are not percent-encoded, so nothing is decoded here.
    if local := _LOCAL.match(uri):
        return LocalFiles(), uri[local.end() :]
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
    return ArrowFiles(filesystem), path


def as_given(path: str) -> str:
    """The path without a slash at its end; raises ``ConfigurationError`` when it is empty."""
    if not path.strip():
        raise ConfigurationError(
            "The path of checkpoints is empty.", remedy="Use an absolute path, file:// or s3://."
        )
    return path.rstrip("/")


def same_place(path: str) -> str:
    """The path in one spelling, so that ``file:/a``, ``file:///a`` and ``/a`` are equal."""
    local = _LOCAL.match(path)
    return (path[local.end() :] if local else path).rstrip("/")


def unreadable(path: str, error: OSError) -> FlinkError:
    """What to say when files could not be looked at."""
    return FlinkError(
        f"{path} cannot be read ({type(error).__name__}: {error.strerror or error}), so it is not "
        "known whether there is a restore point.",
        remedy="Make Flink's checkpoint folder readable from here.",
    )

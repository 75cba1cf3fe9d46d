"""What was read before, kept by content: nothing in it is older than what it was made from.

An entry's name is a hash over all that the result follows from: the text, how it is called, the
options, what other scripts declare, this reader and the version of sqlglot. So entries are never
changed, and any number of processes may read and write them at once. Losing the folder costs time
and nothing else; that it cannot be written is no error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_HOME_VARIABLE = "LAKEHOUSE_HOME"
_SUFFIX = ".json"
_LARGEST_BYTES = 256 * 1024 * 1024
_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """``scripts`` in the folder that the local stack, too, keeps what can be made again in."""
    named = os.environ.get(_HOME_VARIABLE)
    home = Path(named).expanduser() if named else Path.home() / ".cache" / "lakehouse"
    return home / "scripts"


def key_of(*parts: Any) -> str:
    """Name of the entry whose value follows from these parts (plain data) and the reader."""
    told = json.dumps([reader_version(), *parts], sort_keys=True)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def reader_version() -> str:
    """Hash over the sources of this room, and the versions of what it reads with."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes() + b"\0")
    for name in ("lakehouse-dagster", "sqlglot"):
        try:
            digest.update(metadata.version(name).encode() + b"\0")
        except metadata.PackageNotFoundError:
            digest.update(b"\0")
    digest.update(repr(sys.version_info[:2]).encode())
    return digest.hexdigest()


class ScriptCache:
    """Entries in a folder; entries that are damaged or not ours are as if they were not there."""

    def __init__(self, folder: Path | None = None, *, largest_bytes: int = _LARGEST_BYTES) -> None:
        self._folder = folder or cache_folder()
        self._largest_bytes = largest_bytes
        self._written = False

    def get(self, key: str) -> Any | None:
        """The value under a key, None where there is none."""
        path = self._path(key)
        try:
            content = path.read_bytes()
            checksum, _, body = content.partition(b"\n")
            if checksum != _checksum(key, body):
                return None
            value = json.loads(body)
            os.utime(path)  # what is used is pruned last
        except (OSError, ValueError, RecursionError):
            return None
        return value

    def put(self, key: str, value: Any, *, never: Iterable[str] = ()) -> bool:
        """Keep a value, and tell whether it is kept; other processes see all of it or nothing.

        Args:
            never: Texts that must not be written; a value that holds one is not kept.
        """
        text = json.dumps(value, separators=(",", ":"))
        if any(json.dumps(secret)[1:-1] in text for secret in never):
            return False
        body = text.encode()
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=_SUFFIX)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_checksum(key, body) + b"\n" + body)
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            _LOG.debug("What was read is not kept in %s: %s.", self._folder, error.strerror)
            return False
        self._written = True
        return True

    def prune(self) -> None:
        """Where something was added, remove what was not used for longest, down to the bound."""
        if not self._written:
            return
        self._written = False
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another process may remove it
                seen = path.stat()
                found.append((seen.st_mtime, seen.st_size, path))
        total_bytes = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total_bytes <= self._largest_bytes:
                return
            with suppress(OSError):
                path.unlink()
            total_bytes -= size

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


def _checksum(key: str, body: bytes) -> bytes:
    # The key is in it: an entry under another's name is no entry.
    return hashlib.sha256(key.encode() + body).hexdigest().encode()

"""What the local stack needs of a disk: one writer at a time, whole files only, clear errors."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse_dagster.errors import StackError

HOME_VARIABLE = "LAKEHOUSE_HOME"

_POLL_SECONDS = 0.1


def lakehouse_home(home: Path | None = None) -> Path:
    """The cache folder: the given one, else ``LAKEHOUSE_HOME``, else ``~/.cache/lakehouse``."""
    if home is not None:
        return home.expanduser().absolute()
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return Path.home() / ".cache" / "lakehouse"


def make_folder(folder: Path, *, purpose: str) -> Path:
    """Create the folder where it is missing, and make sure that files can be written in it.

    Raises StackError that names the folder when it cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full(folder) from error
        raise StackError(
            f"The folder {folder} for {purpose} cannot be written: {error.strerror}.",
            remedy="Choose another folder or change its permissions.",
        ) from error
    return folder


def write_atomically(path: Path, text: str) -> None:
    """Write a file that only its owner may read; readers see the old text or the new, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(
    path: Path, *, wait_seconds: float, on_wait: Callable[[], None], what: str
) -> Iterator[None]:
    """Hold the lock file, so that no other process (or thread) does the same work now.

    The kernel lets go of the lock when the holder dies, however it dies. Raises StackError when
    another process still holds it after ``wait_seconds``.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + wait_seconds
        waited = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    waited = True
                    on_wait()
                if time.monotonic() >= deadline:
                    raise StackError(
                        f"Another process is still {what} after {wait_seconds:.0f} s "
                        f"(lock file {path})."
                    ) from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def naming_a_full_disk(folder: Path) -> Iterator[None]:
    """Turn the system's "no space left on device" into an error that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder) from error
        raise


def disk_full(folder: Path) -> StackError:
    """The error for a disk without space."""
    return StackError(
        f"The disk that holds {folder} is full.",
        remedy="Free some space, or choose a folder on another disk.",
    )

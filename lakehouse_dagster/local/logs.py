"""Reading the logs of the services: their ends, and the line that says why one died."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TAIL_BYTES = 256 * 1024

_CAUSE = re.compile(r"^\s*Caused by: (?P<text>.+)")
_ERROR = re.compile(
    r"\b(ERROR|FATAL)\b|OutOfMemoryError|Exception\b|^Error\b|Could not|Unrecognized"
)
# What a JVM always says last, after the line that tells why.
_JVM_LAST_WORDS = re.compile(
    r"^Error: (Could not create the Java Virtual Machine|A fatal exception has occurred)"
)
_FRAME = re.compile(r"^\s+(at |\.\.\. )")


@dataclass(frozen=True)
class ServiceLog:
    """The end of one log file."""

    service: str
    path: Path
    lines: tuple[str, ...]


def tail(path: Path, lines: int, *, since_bytes: int = 0) -> tuple[str, ...]:
    """The last lines of a file (none when there is no file), from ``since_bytes`` on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < since_bytes:
                since_bytes = 0  # rolled over meanwhile
            file.seek(max(since_bytes, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-lines:]) if lines > 0 else ()


def size_of(path: Path) -> int:
    """The size of a file in bytes, 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def reason_of_death(lines: Sequence[str]) -> str | None:
    """Why a service died, as far as its log tells: the last causes, else the last error or line.

    The innermost cause often says only what was wrong, and the one around it with what: both are
    given.
    """
    lines = [line for line in lines if not _JVM_LAST_WORDS.match(line)]
    causes = [match.group("text").strip() for line in lines if (match := _CAUSE.search(line))]
    if causes:
        return ": ".join(dict.fromkeys(causes[-2:]))
    for line in reversed(lines):
        if _ERROR.search(line) and not _FRAME.match(line):
            return line.strip()
    return next((line.strip() for line in reversed(lines) if line.strip()), None)

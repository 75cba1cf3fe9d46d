"""How the local stack tells what it is doing: bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console

MIB = 1024 * 1024

AdvanceBytes = Callable[[int], None]


class Progress(Protocol):
    """What long work reports to."""

    def message(self, text: str) -> None:
        """Say one line about what happens now."""

    def transfer(
        self, description: str, total_bytes: int | None
    ) -> AbstractContextManager[AdvanceBytes]:
        """Follow one transfer; the callable takes the number of bytes that came since."""


class SilentProgress:
    """Reports nothing."""

    def message(self, text: str) -> None:
        """Say nothing."""

    @contextmanager
    def transfer(self, description: str, total_bytes: int | None) -> Iterator[AdvanceBytes]:
        """Follow nothing."""
        yield lambda _: None


class PlainProgress:
    """Plain lines, for logs and pipes; a running transfer speaks at most every few seconds."""

    def __init__(self, stream: TextIO | None = None, *, interval_seconds: float = 5.0) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._interval_seconds = interval_seconds

    def message(self, text: str) -> None:
        """Write one line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @contextmanager
    def transfer(self, description: str, total_bytes: int | None) -> Iterator[AdvanceBytes]:
        """Write a line at the start, now and then, and at the end."""
        size = f" ({_mib(total_bytes)})" if total_bytes else ""
        self.message(f"{description}{size}")
        done_bytes = 0
        spoken_at = time.monotonic()

        def advance(count: int) -> None:
            nonlocal done_bytes, spoken_at
            done_bytes += count
            if time.monotonic() - spoken_at >= self._interval_seconds:
                spoken_at = time.monotonic()
                of_total = f" of {_mib(total_bytes)}" if total_bytes else ""
                self.message(f"{description}: {_mib(done_bytes)}{of_total}")

        yield advance
        self.message(f"{description}: done, {_mib(done_bytes)}")


class RichProgress:
    """Progress bars on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def message(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def transfer(self, description: str, total_bytes: int | None) -> Iterator[AdvanceBytes]:
        """Show a bar that goes away at the end, when one line says what came."""
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichBars

        done_bytes = 0
        with RichBars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        ) as bars:
            task = bars.add_task(description, total=total_bytes)

            def advance(count: int) -> None:
                nonlocal done_bytes
                done_bytes += count
                bars.advance(task, count)

            yield advance
        self.message(f"{description}: done, {_mib(done_bytes)}")


def progress_to(stream: TextIO | None = None) -> Progress:
    """Bars when the stream (stderr by default) is a terminal, plain lines otherwise."""
    stream = stream if stream is not None else sys.stderr
    if stream.isatty():
        from rich.console import Console

        return RichProgress(Console(file=stream))
    return PlainProgress(stream)


def _mib(count: int) -> str:
    return f"{count / MIB:.1f} MiB"

"""What is shown while something is fetched."""

from __future__ import annotations

import io

from rich.console import Console

from lakehouse_dagster.local.progress import PlainProgress, RichProgress, progress_to


def test_without_a_terminal_there_are_plain_lines_and_not_too_many() -> None:
    stream = io.StringIO()
    progress = progress_to(stream)
    assert isinstance(progress, PlainProgress)
    with progress.transfer("some.jar", 3 * 1024 * 1024) as advance:
        for _ in range(3):
            advance(1024 * 1024)
    progress.message("ready")
    assert stream.getvalue().splitlines() == [
        "some.jar (3.0 MiB)",
        "some.jar: done, 3.0 MiB",
        "ready",
    ]


def test_a_long_transfer_speaks_now_and_then() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, interval_seconds=0).transfer("some.jar", 2048 * 1024) as advance:
        advance(1024 * 1024)
    assert "some.jar: 1.0 MiB of 2.0 MiB" in stream.getvalue().splitlines()


def test_a_terminal_gets_bars_and_one_line_that_stays() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=100))
    with progress.transfer("some[x].jar", 1024 * 1024) as advance:
        advance(1024 * 1024)
    assert "some[x].jar: done, 1.0 MiB" in stream.getvalue()
    assert "1.0/1.0 MiB" in stream.getvalue()

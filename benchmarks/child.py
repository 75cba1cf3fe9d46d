"""A process of its own that answers each line it is sent with a number."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def child(*arguments: str) -> Iterator[Callable[[str], float]]:
    """Run Python with these arguments; the function sends a line and waits for the number."""
    command = [sys.executable, "-W", "ignore", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        lines, answers = process.stdin, process.stdout
        assert lines is not None
        assert answers is not None

        def ask(line: str = "") -> float:
            lines.write(f"{line}\n")
            lines.flush()
            return float(answers.readline())

        yield ask
        lines.close()

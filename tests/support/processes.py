"""Other processes that act on the same lakehouse: started, watched, halted and killed by a test.

They are forked from a server process that has loaded everything already, so one costs
milliseconds; each is an operating-system process of its own with its own open database.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from tests.support.actor import Part, play
from tests.support.laboratory import Laboratory

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["__main__", "tests.support.actor", "sqlalchemy.dialects.sqlite", "pypaimon", "pyarrow"]
)


_breaks: Callable[[], None] | None = None


def break_product(how: Callable[[], None]) -> None:
    """Break the product in every process that is forked from here on, and from those."""
    global _breaks
    _breaks = how


class Forked:
    """A process of ours, used as ``subprocess.Popen`` is."""

    def __init__(self, target: Callable[..., None], log: Path, *args: Any) -> None:
        self._process: BaseProcess = _context.Process(
            target=_logged, args=(target, log, args, _breaks)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.is_alive():
            os.kill(self.pid, number)


def _logged(
    target: Callable[..., None],
    log: Path,
    args: tuple[Any, ...],
    breaks: Callable[[], None] | None,
) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(file, stream.fileno())
    try:
        if breaks is not None:
            breaks()
            break_product(breaks)
        target(*args)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@dataclass
class Actor:
    """A process that runs ``tests.support.actor`` on a laboratory."""

    process: Forked
    log: Path
    stop_file: Path

    @classmethod
    def start(
        cls,
        lab: Laboratory,
        what: str,
        name: str,
        *,
        rest_url: str | None = None,
        sql_gateway_url: str | None = None,
        **differences: Any,
    ) -> Actor:
        """``what``: ``supervise`` (until told to end) or a verb (once); see ``Part``."""
        log, stop_file = lab.folder / f"{name}.log", lab.folder / f"{name}.stop"
        laboratory = {
            **lab.settings,
            "rest_url": rest_url or lab.rest_url,
            "sql_gateway_url": sql_gateway_url or lab.sql_gateway_url,
        }
        part = Part(what, name, str(stop_file), laboratory, **differences)
        return cls(Forked(play, log, part), log, stop_file)

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def halted(self) -> bool:
        """Whether it stands still after SIGSTOP."""
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def wait_until_halted(self, seconds: float = 30.0) -> bool:
        """False when it ends, or does not halt in time."""
        deadline = time.monotonic() + seconds
        while not self.halted:
            if not self.alive or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def halt(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """``kill -9``: no clean-up of any kind runs in it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self) -> str:
        """Let it end by itself and return what it printed."""
        self.stop_file.touch()
        self.go_on()
        try:
            self.process.wait(60)
        finally:
            if self.alive:
                self.kill()
        return self.log.read_text() if self.log.exists() else ""

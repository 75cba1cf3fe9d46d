"""Starts reading processes, asks them within bounds, and ends them whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, cast

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.sql.worker import FrameTooLongError, read_frame, write_frame

# -I and -S: no variable, user folder or start-up file takes part; where modules are is told.
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from lakehouse_dagster.sql import worker; worker.main(int(sys.argv[1]))"
)
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_START_SECONDS = 60.0
_QUESTIONS_A_WORKER = 24
"""Fewer questions are not worth another process, which takes about 0.3 s to start."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What reading one script may take."""

    seconds: float = 30.0
    """Of a processor's time: that other processes are busy too makes no script unreadable."""
    seconds_per_mib: float = 60.0
    """Further seconds for each MiB of text."""
    wall_factor: float = 10.0
    """How many times as long may go by on the clock."""
    memory_bytes: int = 1536 * MIB
    answer_bytes: int = 256 * MIB

    def seconds_for(self, characters: int) -> float:
        return self.seconds + self.seconds_per_mib * characters / MIB


@dataclass(frozen=True)
class Question:
    """One task for a reading process."""

    task: str
    unit: Any = field(repr=False)
    """The data of the ``unit.Unit`` to read."""
    home: str
    """Questions of the same home go to the same process where it is free: it may remember them."""
    characters: int
    """How long its text is, which decides how much time it gets."""


@dataclass(frozen=True)
class Unanswered:
    """Why a question has no answer: how the reading of the script ended."""

    reason: str


class _WorkerEndedError(Exception):
    """The process is gone; by itself, or because it took too long (``timed_out``)."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__()
        self.timed_out = timed_out


class WorkerPool:
    """Reading processes, started when something is asked; leaving the ``with`` block ends them."""

    def __init__(self, limits: Limits | None = None, *, most_workers: int | None = None) -> None:
        """Args:
        most_workers: By default as many as there are processors, up to 4.
        """
        self._limits = limits or Limits()
        self._most = most_workers or min(4, os.cpu_count() or 1)
        self._workers: list[_Worker] = []
        self._homes: dict[str, int] = {}

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask_all(self, questions: Sequence[Question], setting: Any) -> list[Any | Unanswered]:
        """Ask all questions; the answers are in the order of the questions.

        A question that takes too long, too much memory or ends its process is ``Unanswered``, and
        a new process goes on with the rest.

        Args:
            setting: Plain data that all questions refer to; each process is told it once.

        Raises:
            ConfigurationError: No reading process can be started in this environment.
        """
        answers: list[Any | Unanswered] = [Unanswered("nobody was asked")] * len(questions)
        workers = self._workers_for(len(questions))
        shares = self._shares(questions, len(workers))

        def work(number: int) -> None:
            # One's own share first, then what is left of the others'.
            for share in (*shares[number:], *shares[:number]):
                with suppress(IndexError):
                    while True:
                        asked = share.popleft()
                        answers[asked] = workers[number].answer(questions[asked], setting)

        if len(workers) == 1:
            work(0)
            return answers
        with ThreadPoolExecutor(len(workers)) as threads:
            try:
                for done in [threads.submit(work, n) for n in range(len(workers))]:
                    done.result()
            except BaseException:
                # The threads wait for answers: only the end of the processes ends them.
                self.close()
                raise
        return answers

    def _shares(self, questions: Sequence[Question], workers: int) -> list[deque[int]]:
        """Which worker is asked what, by number; about the same length of text for each."""
        shares: list[deque[int]] = [deque() for _ in range(workers)]
        sizes = [0] * workers
        for number in sorted(range(len(questions)), key=lambda n: -questions[n].characters):
            asked = questions[number]
            least = min(range(workers), key=sizes.__getitem__)
            share = self._homes.setdefault(asked.home, least) % workers
            shares[share].append(number)
            sizes[share] += asked.characters
        return shares

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()

    def _workers_for(self, questions: int) -> list[_Worker]:
        wanted = max(1, min(self._most, -(-questions // _QUESTIONS_A_WORKER)))
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._limits))
        return self._workers[:wanted]


class _Worker:
    """A reading process, and its successors when it ends."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._setting: Any = None
        self._closed = False
        self._lock = threading.Lock()

    def answer(self, question: Question, setting: Any) -> Any | Unanswered:
        """The answer, which the setting decides as well."""
        seconds = self._limits.seconds_for(question.characters)
        asked = {
            "task": question.task,
            "unit": question.unit,
            "seconds": seconds,
            "wall_seconds": seconds * self._limits.wall_factor,
        }
        for _ in range(2):
            # A process that ended may have been ended from outside: its successor is asked again.
            try:
                told = self._exchange(asked, setting)
            except FrameTooLongError:
                self._end()
                return Unanswered("what it says is too long")
            except _WorkerEndedError as error:
                self._end()
                if error.timed_out:
                    return Unanswered(f"it could not be read within {seconds:.0f} s")
                continue
            if "answer" in told:
                return told["answer"]
            if "failed" in told:
                return Unanswered(f"the reader itself failed on it ({told['failed']})")
            # What is left of it in memory must not be charged to the next script.
            self._end()
            memory = self._limits.memory_bytes // MIB
            return Unanswered(f"it could not be read within {memory} MiB of memory")
        return Unanswered("the process that reads it ended each time")

    def close(self) -> None:
        """End the process; none will be started any more."""
        with self._lock:
            self._closed = True
        self._end()

    def _exchange(self, question: dict[str, Any], setting: Any) -> dict[str, Any]:
        process = self._running()
        if self._setting is not setting:
            told = {
                "setting": setting,
                "seconds": _START_SECONDS,
                "wall_seconds": _START_SECONDS,
            }
            self._within(_START_SECONDS, process, told)
            self._setting = setting
        return self._within(question["wall_seconds"], process, question)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        with self._lock:
            if self._closed:
                raise _WorkerEndedError(timed_out=False)
            self._process = process = _start(self._limits.memory_bytes)
        try:
            told = self._within(_START_SECONDS, process)
        except _WorkerEndedError as error:
            self._end()
            how = "does not answer" if error.timed_out else "ends at once"
            raise _unusable(f"it {how} (exit code {process.returncode})") from error
        if "unusable" in told:
            self._end()
            raise _unusable(told["unusable"])
        return process

    def _within(
        self, seconds: float, process: subprocess.Popen[bytes], question: Any = None
    ) -> dict[str, Any]:
        """Ask and wait for the answer; the process is killed when it does not come in time."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            if question is not None:
                write_frame(cast(IO[bytes], process.stdin), question)
            told = read_frame(cast(IO[bytes], process.stdout), self._limits.answer_bytes)
        except (OSError, ValueError) as error:
            raise _WorkerEndedError(timed_out=late.is_set()) from error
        finally:
            timer.cancel()
        if not isinstance(told, dict):
            timed_out = late.is_set() or process.wait() == -signal.SIGPROF
            raise _WorkerEndedError(timed_out=timed_out)
        return told

    def _end(self) -> None:
        process, self._process = self._process, None
        self._setting = None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):  # of what was not sent any more
                cast(IO[bytes], stream).close()


def _start(memory_bytes: int) -> subprocess.Popen[bytes]:
    bytecode = ["-B"] if sys.dont_write_bytecode else []
    options = ["-I", "-S", *bytecode, "-X", "utf8", "-W", "ignore"]
    modules = [os.path.abspath(entry) for entry in sys.path]
    try:
        return subprocess.Popen(
            [sys.executable, *options, "-c", _START, str(memory_bytes), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The environment may hold passwords, which nobody who reads text needs.
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        )
    except OSError as error:
        raise _unusable(error.strerror or type(error).__name__) from error


def _unusable(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The process that reads scripts cannot be started: {reason}.",
        remedy="It runs this Python interpreter with this search path; make sure that both, and "
        "sqlglot in a supported version, are there.",
    )

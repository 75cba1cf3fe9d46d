"""Starts reading processes, asks them within bounds, and ends them whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
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
    seconds_per_mib: float = 60.0
    """Further seconds for each MiB of text."""
    memory_bytes: int = 1536 * MIB
    answer_bytes: int = 256 * MIB

    def seconds_for(self, characters: int) -> float:
        return self.seconds + self.seconds_per_mib * characters / MIB


@dataclass(frozen=True)
class Question:
    """One task for a reading process."""

    task: str
    arguments: dict[str, Any] = field(repr=False)
    characters: int
    """How long the text is, which decides how much time it gets."""


@dataclass(frozen=True)
class Unanswered:
    """Why a question has no answer: how the reading of the script ended."""

    reason: str


class _WorkerEndedError(Exception):
    """The process is gone; by itself, or because it took too long (``timed_out``)."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__()
        self.timed_out = timed_out


def ask_all(
    questions: Sequence[Question], limits: Limits, *, workers: int | None = None
) -> list[Any | Unanswered]:
    """Ask reading processes all questions; the answers are in the order of the questions.

    A question that takes too long, too much memory or ends its process is ``Unanswered``, and a
    new process goes on with the rest. No process is left when this returns or raises.

    Args:
        workers: How many processes at most; by default as many as there are processors, up to 4,
            and fewer for few questions.

    Raises:
        ConfigurationError: No reading process can be started in this environment.
    """
    if workers is None:
        workers = min(4, os.cpu_count() or 1, -(-len(questions) // _QUESTIONS_A_WORKER))
    answers: list[Any | Unanswered] = [Unanswered("nobody was asked")] * len(questions)
    waiting: SimpleQueue[int] = SimpleQueue()
    # The longest first, so that no process is left alone with it at the end.
    for number in sorted(range(len(questions)), key=lambda n: -questions[n].characters):
        waiting.put(number)

    def work(worker: _Worker) -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            answers[number] = worker.answer(questions[number])

    with _workers(limits, max(workers, 1)) as found:
        if len(found) == 1:
            work(found[0])
            return answers
        with ThreadPoolExecutor(len(found)) as threads:
            try:
                for done in [threads.submit(work, worker) for worker in found]:
                    done.result()
            except BaseException:
                # The threads wait for answers: only the end of the processes ends them.
                for worker in found:
                    worker.close()
                raise
    return answers


@contextmanager
def _workers(limits: Limits, number: int) -> Iterator[list[_Worker]]:
    workers = [_Worker(limits) for _ in range(number)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A reading process, and its successors when it ends."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def answer(self, question: Question) -> Any | Unanswered:
        seconds = self._limits.seconds_for(question.characters)
        asked = {"task": question.task, "arguments": question.arguments, "seconds": seconds}
        for _ in range(2):
            # A process that ended may have been ended from outside: its successor is asked again.
            try:
                told = self._exchange(asked, seconds)
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

    def _exchange(self, question: Any, seconds: float) -> dict[str, Any]:
        process = self._running()
        return self._within(seconds, process, question)

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
            raise _WorkerEndedError(timed_out=late.is_set())
        return told

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                continue  # what was not sent any more


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

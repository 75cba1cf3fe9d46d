"""The process in which scripts are read: text comes in, the model goes out, both as plain data.

A process of its own, for three reasons. sqlglot may be installed with its compiled build, from
which no dialect of one's own can inherit, and may be imported already where Dagster loads its
definitions; here its Python sources are loaded whatever lies beside them. Scripts are text from
outside, which may take any time and memory to read; here both are bounded. And whoever loads
definitions needs no sqlglot in memory.

Questions and answers are frames (``write_frame``) on the standard streams, one answer a question.
"""

from __future__ import annotations

import gc
import importlib.machinery
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import IO, Any

IDLE_SECONDS = 600.0
_GRACE_SECONDS = 5.0
_LENGTH = struct.Struct(">Q")


class FrameTooLongError(Exception):
    """The other side announced more bytes than are allowed."""


def write_frame(stream: IO[bytes], data: Any) -> None:
    """Write plain data as JSON, its length in bytes before it."""
    # All of it is made before a byte is written: what fails leaves the stream whole.
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    encoded = body.encode("utf-8", "surrogatepass")
    stream.write(_LENGTH.pack(len(encoded)) + encoded)
    stream.flush()


def read_frame(stream: IO[bytes], limit_bytes: int | None = None) -> Any:
    """Read what ``write_frame`` wrote; None where the stream has ended, also amid a frame.

    Raises:
        FrameTooLongError: The frame is longer than ``limit_bytes``; nothing of it was read.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if limit_bytes is not None and length > limit_bytes:
        raise FrameTooLongError
    body = stream.read(length)
    return None if len(body) < length else json.loads(body.decode("utf-8", "surrogatepass"))


def main(memory_bytes: int) -> None:
    """Answer questions until the stream of them ends, as it does when the asking process dies."""
    questions, answers = _own_streams()
    _bound(memory_bytes)
    try:
        sys.meta_path.insert(0, _SourcesOfSqlglot)
        from lakehouse_dagster.sql import tasks
    except Exception as error:  # noqa: BLE001 - told to whoever asks
        write_frame(answers, {"unusable": f"{type(error).__name__}: {error}"})
        return
    write_frame(answers, {"ready": True})
    while True:
        signal.setitimer(signal.ITIMER_REAL, IDLE_SECONDS)
        question = read_frame(questions)
        if question is None:
            return
        # Whoever asks stops waiting first and kills this process; unless it was killed itself.
        signal.setitimer(signal.ITIMER_REAL, question["wall_seconds"] + _GRACE_SECONDS)
        # The processor's time of this process; when it is over the signal ends it.
        signal.setitimer(signal.ITIMER_PROF, question["seconds"])
        try:
            if "setting" in question:
                doing = tasks.Tasks(question["setting"])
                answer = None
            else:
                doing.cpu_seconds = question["seconds"]
                answer = doing.run(question["task"], question["unit"])
            write_frame(answers, {"answer": answer})
        except MemoryError:
            answer = question = None
            write_frame(answers, {"out_of_memory": True})
        except Exception as error:  # noqa: BLE001 - its text may quote the script
            write_frame(answers, {"failed": type(error).__name__})


class _SourcesOfSqlglot:
    """Finds the Python sources of sqlglot's modules, never the compiled ones beside them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or name.partition(".")[0] != "sqlglot":
            return None
        loader = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        finders = (importlib.machinery.FileFinder(folder, loader) for folder in path)
        return next((spec for f in finders if (spec := f.find_spec(name))), None)


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Take the standard streams for frames alone: what anything prints must not get among them."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    return questions, answers


def _bound(memory_bytes: int) -> None:
    # Control-C reaches the whole group of processes; whoever asks decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for limit, value in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0)):
        try:
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (value, hard))
        except (ValueError, OSError):
            # macOS knows no bound on the address space; the time stays bounded.
            continue
    # A script's trees live briefly, and the process does: most collections find nothing.
    gc.set_threshold(50_000, 20, 50)

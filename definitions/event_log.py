"""The simulator's own record of every event that it wrote, and the input files made from it.

Layout of a simulation's folder::

    settings.json                     what was simulated; another setting needs another folder
    log/work_order.jsonl  agent  city every event ever written, appended round by round
    log/rounds.jsonl                  one line a committed round: how long each log was after it
    input/work_order/round-000000.json …   what Flink reads

A round is appended to the logs, then committed by its line in ``rounds.jsonl``, and only then
published as files. A file's bytes are the log's bytes of that round, so the log is exactly what
Flink was given. After a crash an uncommitted tail is cut off, and files of the last committed round
that are missing are published from the log: nothing is given twice, nothing is left out.

Files appear by rename within their folder; Flink's file source ignores names that begin with a dot
(``org.apache.flink.connector.file.src.enumerate.DefaultFileFilter``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from definitions.business import KINDS, Round
from lakehouse_dagster.errors import ConfigurationError


@dataclass(frozen=True)
class CommittedRound:
    """How long each kind's log was, in bytes and lines, when the round had been appended."""

    number: int
    log_bytes: Mapping[str, int]
    log_lines: Mapping[str, int]


class EventLog:
    """Reads and appends the log of one simulation's folder.

    Reading is safe beside a running simulator, since it stops at the last committed round. Only one
    process may append (``definitions.simulator.Simulator`` holds a lock).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input_folder = folder / "input"
        self._log_folder = folder / "log"
        self._rounds_path = self._log_folder / "rounds.jsonl"

    def create(self) -> None:
        """Make the folders; Flink's file source fails on an input folder that does not exist."""
        self._log_folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            (self.input_folder / kind).mkdir(parents=True, exist_ok=True)

    def last_round(self) -> CommittedRound | None:
        """The newest committed round, or None before the first."""
        if not self._rounds_path.exists():
            return None
        lines = self._committed_lines()
        return _committed_round(lines[-1]) if lines else None

    def committed_round(self, number: int) -> CommittedRound:
        """The committed round of that number.

        Raises ConfigurationError when it was not written yet.
        """
        lines = self._committed_lines() if self._rounds_path.exists() else []
        if not 0 <= number < len(lines):
            raise ConfigurationError(
                f"Round {number} was not written yet in {self.folder}.",
                remedy=f"The newest is round {len(lines) - 1}.",
            )
        return _committed_round(lines[number])

    def read(self, kind: str, upto: CommittedRound) -> bytes:
        """Every event of one kind, JSON lines, from the first round to ``upto``, with it."""
        path = self.log_path(kind)
        length = upto.log_bytes[kind]
        with path.open("rb") as file:
            content = file.read(length)
        if len(content) < length:
            raise ConfigurationError(
                f"The event log {path} holds {len(content)} bytes of {length} committed ones.",
                remedy="It was cut or replaced from outside: begin again in an empty folder.",
            )
        return content

    def append(self, round_: Round) -> CommittedRound:
        """Append a round, commit it, publish its files, and return what was committed."""
        before = self.last_round()
        expected = 0 if before is None else before.number + 1
        if round_.number != expected:
            raise ValueError(f"Round {round_.number} cannot follow: round {expected} is next.")
        log_bytes: dict[str, int] = {}
        log_lines: dict[str, int] = {}
        for kind in KINDS:
            content = round_.json_lines(kind)
            log_bytes[kind] = (before.log_bytes[kind] if before else 0) + len(content)
            log_lines[kind] = (before.log_lines[kind] if before else 0) + content.count(b"\n")
            _append(self.log_path(kind), content)
        committed = CommittedRound(round_.number, log_bytes, log_lines)
        line = {"round": committed.number, "bytes": log_bytes, "lines": log_lines}
        _append(self._rounds_path, json.dumps(line).encode() + b"\n")
        self._publish(committed, before)
        return committed

    def recover(self) -> CommittedRound | None:
        """Cut off what was not committed, publish what is missing, and return the last round."""
        lines = self._committed_lines() if self._rounds_path.exists() else []
        if self._rounds_path.exists():
            os.truncate(self._rounds_path, sum(len(line) for line in lines))
        last = _committed_round(lines[-1]) if lines else None
        for kind in KINDS:
            if self.log_path(kind).exists():
                os.truncate(self.log_path(kind), last.log_bytes[kind] if last else 0)
        if last is not None:
            self._publish(last, _committed_round(lines[-2]) if len(lines) > 1 else None)
        return last

    def round_content(self, kind: str, number: int) -> bytes:
        """The events of one kind in one round: the bytes of its input file."""
        committed = self.committed_round(number)
        start = self.committed_round(number - 1).log_bytes[kind] if number else 0
        return self.read(kind, committed)[start:]

    def input_path(self, kind: str, number: int) -> Path:
        return self.input_folder / kind / f"round-{number:06d}.json"

    def log_path(self, kind: str) -> Path:
        return self._log_folder / f"{kind}.jsonl"

    def _publish(self, committed: CommittedRound, before: CommittedRound | None) -> None:
        for kind in KINDS:
            start = before.log_bytes[kind] if before else 0
            length = committed.log_bytes[kind] - start
            path = self.input_path(kind, committed.number)
            if length == 0 or path.exists():
                continue
            with self.log_path(kind).open("rb") as file:
                file.seek(start)
                content = file.read(length)
            hidden = path.with_name(f".{path.name}.tmp")
            hidden.write_bytes(content)
            hidden.rename(path)

    def _committed_lines(self) -> list[bytes]:
        """The whole lines of ``rounds.jsonl``; a line without its end was being written."""
        lines = self._rounds_path.read_bytes().splitlines(keepends=True)
        return [line for line in lines if line.endswith(b"\n")]


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _committed_round(line: bytes) -> CommittedRound:
    record = json.loads(line)
    return CommittedRound(record["round"], record["bytes"], record["lines"])

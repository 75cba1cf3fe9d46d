"""The proof that never two jobs of one pipeline name ran at the same time.

Two witnesses: the JobManager's REST API asked many times a second while the test runs, and the
JobManager's own log, which misses nothing and outlives a killed JobManager.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from lakehouse_dagster.errors import FlinkError
from lakehouse_dagster.flink import FlinkCluster, JobManager

_STARTED = re.compile(r"Initializing job '(?P<name>.*)' \((?P<id>[0-9a-f]{32})\)\.")
_SWITCHED = re.compile(
    r"Job (?P<name>.*) \((?P<id>[0-9a-f]{32})\) switched from state \w+ to (?P<state>\w+)\."
)
_ENDED = re.compile(r"Job (?P<id>[0-9a-f]{32}) reached terminal state (?P<state>\w+)\.")
_PROCESS_STARTED = re.compile(r"Starting StandaloneSessionClusterEntrypoint")
_TERMINAL = ("FINISHED", "FAILED", "CANCELED")


@dataclass
class LogHistory:
    """The jobs of a JobManager by name, as its log tells: in order, and which met another."""

    started: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    overlaps: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, id that ran, id that was started beside it)."""


def read_log(lines: Iterable[str]) -> LogHistory:
    """Follow the lines in their order; a JobManager that starts anew has no jobs."""
    history = LogHistory()
    alive: dict[str, str] = {}
    for line in lines:
        if _PROCESS_STARTED.search(line):
            alive.clear()
        elif found := _STARTED.search(line):
            name, job_id = found["name"], found["id"]
            history.overlaps += [
                (name, other, job_id) for other, its in alive.items() if its == name
            ]
            alive[job_id] = name
            history.started[name].append(job_id)
        elif (found := _SWITCHED.search(line) or _ENDED.search(line)) and (
            found["state"] in _TERMINAL
        ):
            alive.pop(found["id"], None)
    return history


def job_manager_history(log: Path) -> LogHistory:
    """The history in a JobManager's log file and, before it, in those rolled over."""
    older = sorted(log.parent.glob(f"{log.name}.*"), key=lambda path: path.stat().st_mtime)
    lines: list[str] = []
    for path in (*older, log):
        lines += path.read_text(errors="replace").splitlines()
    return read_log(lines)


class JobWatcher:
    """Asks ``/jobs/overview`` in a thread while a ``with`` block runs."""

    def __init__(
        self,
        cluster: FlinkCluster,
        name: str,
        *,
        every_seconds: float = 0.1,
        foreign: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._foreign = foreign
        self._every_seconds = every_seconds
        self._looked = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most_at_once = 0
        self.ids: list[str] = []
        """Every job of the name that was seen alive, in the order of being seen."""

    def __enter__(self) -> JobWatcher:
        self._thread.start()
        self._looked.wait(5)  # what runs already is seen before the block begins
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join(10)

    def _watch(self) -> None:
        with self._cluster.job_manager() as job_manager:
            while not self._done.is_set():
                self._look(job_manager)
                self._looked.set()
                self._done.wait(self._every_seconds)

    def _look(self, job_manager: JobManager) -> None:
        try:
            jobs = job_manager.jobs()
        except FlinkError:
            return  # killed just now; the log is the other witness
        alive = [
            j.job_id
            for j in jobs
            if j.name == self._name and not j.status.is_terminal and j.job_id not in self._foreign
        ]
        self.most_at_once = max(self.most_at_once, len(alive))
        self.ids += [job_id for job_id in alive if job_id not in self.ids]

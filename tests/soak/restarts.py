"""Counts how often writers restarted, and which of it no kill of ours explains."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from lakehouse_dagster.errors import LakehouseError
from tests.soak.lake import WRITERS, Place

_SETTLED_SECONDS = 75.0
"""For so long after a kill on a busy machine a restart may be its doing."""


@dataclass
class Restarts:
    """A context manager that watches in a thread."""

    place: Place
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)
    _killed_at: float = float("-inf")
    _seen: dict[str, tuple[str, int]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Restarts:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(20)

    def cluster_killed(self) -> None:
        """A process of the cluster is about to be killed, or was just brought back."""
        self._killed_at = time.monotonic()

    def _watch(self) -> None:
        runtime = self.place.runtime()
        while not self._over.wait(1.0):
            try:
                with runtime.cluster.job_manager() as job_manager:
                    for table, job in WRITERS.items():
                        newest = runtime.memory.latest(job)
                        if newest is not None and newest.state.value == "RUNNING":
                            count = job_manager.checkpoints(newest.flink_job_id).restored_count
                            self._saw(table, newest.flink_job_id, count)
            except LakehouseError:
                continue

    def _saw(self, table: str, job_id: str, count: int) -> None:
        before = self._seen.get(table)
        self._seen[table] = (job_id, count)
        if before is None or before == (job_id, count):
            return
        times = count - before[1] if before[0] == job_id else 1
        recent = time.monotonic() - self._killed_at < _SETTLED_SECONDS
        (self.explained if recent else self.unexplained)[table] += times

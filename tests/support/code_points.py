"""Moments in the product's own code at which a process of a test halts or dies.

The proxy marks moments between processes; these are the ones inside, between a check and the
request that it allows. Only ever set in a process of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lakehouse_dagster.flink import JobManager, Session
from lakehouse_dagster.streaming.settings import JOB_ID
from lakehouse_dagster.system_db import Jobs
from tests.support.sqlite import locked

INSERT = "between the check of the lease and the POST of the INSERT"
RECORD = "before the incarnation is recorded"
RECORDED = "between recording the incarnation and checking the lease"
STOP = "between the check of the lease and the POST of the stop"
CANCEL = "between the check of the lease and the cancellation"


def halt(database: Path) -> None:
    """Stand still until someone sends SIGCONT.

    Not while another thread of ours writes to the SQLite file: its lock would stand still too.
    """
    with locked(database):
        pass
    os.kill(os.getpid(), signal.SIGSTOP)
    # The signal stops all threads a moment later: seen once, a request was sent in between.
    time.sleep(0.2)


def die() -> None:
    """End as after ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)


def at(point: str, act: Callable[[], None]) -> None:
    """Call ``act`` once when the process comes to that point."""
    owner, name, before, condition = _POINTS[point]
    original = getattr(owner, name)
    left = [1]

    def wrapped(*args: Any, **values: Any) -> Any:
        due = left[0] and condition(values)
        if due:
            left[0] = 0
        if due and before:
            act()
        result = original(*args, **values)
        if due and not before:
            act()
        return result

    setattr(owner, name, wrapped)


def _is_insert(values: Mapping[str, Any]) -> bool:
    return JOB_ID in (values.get("config") or {})


def _always(_values: Mapping[str, Any]) -> bool:
    return True


_POINTS: dict[str, tuple[Any, str, bool, Callable[[Mapping[str, Any]], bool]]] = {
    INSERT: (Session, "submit", True, _is_insert),
    RECORD: (Jobs, "record", True, _always),
    RECORDED: (Jobs, "record", False, _always),
    STOP: (JobManager, "stop_with_savepoint", True, _always),
    CANCEL: (JobManager, "cancel", True, _always),
}

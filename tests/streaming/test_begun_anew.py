"""Which jobs the supervisor begins anew by itself when Flink restarts them in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.observe import Verb
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, claim, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState, flink_job_id
from tests.streaming import making
from tests.streaming.overview_server import (
    Overview,
    overview_entry,
    overview_server,
)

WRITER, COMPACTOR = "orders", "compact-ods.orders"
EXPIRED = "OutOfRangeException: The snapshot with id 5 has expired"


class Watched:
    """A writer and its table's compaction job, both wanted, looked at when we say so."""

    def __init__(self, folder: Path, overview: Overview, **policy: bool | int) -> None:
        scripts = {
            "orders": making.source("src")
            + making.table("ods.orders")
            + making.job(WRITER, "ods.orders", "src")
        }
        lake = making.load(
            folder,
            scripts,
            rest_url=overview.rest_url,
            maintenance=MaintenancePolicy(TablePolicy(compaction="dedicated")),
            supervision=SupervisionPolicy(**policy),  # type: ignore[arg-type]
        )
        self.now = making.NOW
        self.runtime: Runtime = replace(lake.runtime, clock=Clock(now=lambda: self.now))
        self.overview = overview
        self.cursor = SupervisorCursor()
        self.jobs = {name: self._record(name, 1) for name in (WRITER, COMPACTOR)}

    def _record(self, name: str, number: int) -> str:
        memory = self.runtime.memory
        memory.ensure(name)
        memory.set_desired(name, DesiredState.RUNNING)
        job_id = flink_job_id(self.runtime.identity, name, number)
        memory.record(
            name,
            number=number,
            flink_job_id=job_id,
            fingerprint=self.runtime.job(name).fingerprint,
            restored_from=None,
            fencing=1,
            session_handle=None,
        )
        memory.update(name, number, state=IncarnationState.RUNNING)
        return job_id

    def begun_anew(self, name: str, number: int) -> None:
        self.runtime.memory.update(name, number - 1, state=IncarnationState.ENDED)
        self.jobs[name] = self._record(name, number)

    def shown(self, status: str) -> None:
        self.overview.jobs = [
            overview_entry(job_id, status, name=name) for name, job_id in self.jobs.items()
        ]

    def restarts(self, times: int) -> None:
        """Both have failed so often by now, and never completed a checkpoint."""
        self.shown("RESTARTING")
        seconds = int((self.now - making.NOW).total_seconds())
        for job_id in self.jobs.values():
            self.overview.exceptions[job_id] = [
                ((seconds - n) * 1000, EXPIRED) for n in range(times)
            ]

    def look(self, *, after_seconds: float = 0.0) -> Look:
        self.now += timedelta(seconds=after_seconds)
        seen = look(self.runtime, self.cursor)
        self.cursor = seen.cursor
        return seen

    def due(self, *, after_seconds: float = 0.0) -> list[tuple[str, Verb]]:
        seen = self.look(after_seconds=after_seconds)
        if seen.actions:
            claim(self.runtime, seen.actions)
        return [(action.job, action.verb) for action in seen.actions]

    def desired(self, name: str) -> DesiredState:
        return self.runtime.memory.ensure(name).desired


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as server:
        yield server


def test_a_compaction_job_that_fails_again_and_again_is_and_no_other_job(
    tmp_path: Path, overview: Overview
) -> None:
    watched = Watched(tmp_path, overview)
    watched.restarts(5)  # restarts_are_many
    assert watched.due() == []
    watched.now += timedelta(seconds=10)
    watched.restarts(7)
    seen = watched.look()
    assert {o.name: o.observed.value for o in seen.observations} == {
        WRITER: "DEGRADED",
        COMPACTOR: "DEGRADED",
    }
    (action,) = seen.actions
    assert (action.job, action.verb) == (COMPACTOR, Verb.REVIVE)
    assert EXPIRED in action.reason


def test_one_that_is_only_silent_is_left_to_finish_its_checkpoint(
    tmp_path: Path, overview: Overview
) -> None:
    """Begun anew, a long compaction would begin at its beginning, again and again."""
    watched = Watched(tmp_path, overview)
    watched.shown("RUNNING")
    seen = watched.look(after_seconds=16 * 60)
    assert {o.observed.value for o in seen.observations} == {"DEGRADED"}
    assert seen.actions == ()


def test_later_each_time_and_not_for_ever(tmp_path: Path, overview: Overview) -> None:
    watched = Watched(tmp_path, overview, max_attempts=3)
    done_after_seconds: list[float] = []
    for seconds in range(9, 180, 9):
        watched.restarts(7)
        if watched.due(after_seconds=9):
            done_after_seconds.append(seconds)
            watched.begun_anew(COMPACTOR, 1 + len(done_after_seconds))
    # backoff_initial is 20 s, and twice as long each time.
    assert done_after_seconds == [9, 36, 81]
    (waits,) = [o for o in watched.look().alerts if o.name == COMPACTOR]
    assert not waits.healthy


def test_one_that_a_run_cancels_to_begin_it_anew_is_not_taken_for_cancelled_by_hand(
    tmp_path: Path, overview: Overview
) -> None:
    watched = Watched(tmp_path, overview, respect_cancellation=True)
    watched.shown("CANCELED")
    with (
        watched.runtime.hold(COMPACTOR, "a run"),
        watched.runtime.hold(WRITER, "another"),
    ):
        assert watched.due() == []
        assert {watched.desired(name) for name in watched.jobs} == {DesiredState.RUNNING}
    # It has died before it could start it.
    memory = watched.runtime.memory
    memory.update(
        COMPACTOR, 1, state=IncarnationState.ENDED, end_reason="cancelled to be started again"
    )
    assert watched.due() == [(COMPACTOR, Verb.RECOVER)]
    assert watched.desired(COMPACTOR) is DesiredState.RUNNING
    assert watched.desired(WRITER) is DesiredState.CANCELED

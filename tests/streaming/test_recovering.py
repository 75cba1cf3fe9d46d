"""An overview that lacks a job, from a JobManager that may be recovering it, is not its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.start import start_or_adopt
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, look
from lakehouse_dagster.system_db import DesiredState, IncarnationState, flink_job_id
from tests.streaming import making
from tests.streaming.overview_server import Overview, overview_entry, overview_server

AVAILABLE = {"high-availability.type": "zookeeper"}


class Watched:
    """One job that runs, looked at by the supervisor at times of our own."""

    def __init__(self, folder: Path, overview: Overview) -> None:
        scripts = {
            "orders": making.source("src")
            + making.table("ods.orders")
            + making.job("orders", "ods.orders", "src")
        }
        lake = making.load(folder, scripts, rest_url=overview.rest_url)
        self.folder = folder
        self.now = making.NOW
        self.slept_seconds = 0.0
        clock = Clock(now=lambda: self.now, sleep=self._sleep, monotonic=lambda: self.slept_seconds)
        self.runtime: Runtime = replace(lake.runtime, clock=clock)
        self.overview = overview
        self.cursor = SupervisorCursor()
        memory = self.runtime.memory
        memory.ensure("orders")
        memory.set_desired("orders", DesiredState.RUNNING)
        self.job_id = flink_job_id(self.runtime.identity, "orders", 1)
        memory.record(
            "orders",
            number=1,
            flink_job_id=self.job_id,
            fingerprint=self.runtime.job("orders").fingerprint,
            restored_from=None,
            fencing=1,
            session_handle=None,
        )
        memory.update("orders", 1, state=IncarnationState.RUNNING)
        self.shown()

    def _sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds

    def shown(self) -> None:
        self.overview.jobs = [overview_entry(self.job_id)]

    def look(self, *, after_seconds: float = 0.0) -> Look:
        self.now += timedelta(seconds=after_seconds)
        seen = look(self.runtime, self.cursor)
        self.cursor = seen.cursor
        return seen

    def start_while_missing(self, high_availability: dict[str, str]) -> None:
        """Start the job while the overview lacks it; nothing comes of it, without a gateway."""
        self.overview.jobs = []
        self.overview.configuration = {
            **high_availability,
            "execution.checkpointing.dir": f"file://{self.folder}/checkpoints",
            "execution.checkpointing.interval": "10s",
        }
        with self.runtime.hold("orders", "test") as held, pytest.raises(LakehouseError):
            start_or_adopt(held, allow_empty_start=True)

    def state(self, *, after_seconds: float = 0.0) -> ObservedState:
        (observation,) = self.look(after_seconds=after_seconds).observations
        return observation.observed


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with overview_server() as overview:
        yield Watched(tmp_path, overview)


def test_a_job_may_be_missing_as_long_as_a_recovery_takes(watched: Watched) -> None:
    watched.overview.configuration = AVAILABLE
    assert watched.state() is ObservedState.RUNNING
    watched.overview.jobs = []
    for after_seconds in (9, 9, 9, 9):
        seen = watched.look(after_seconds=after_seconds)
        assert seen.actions == ()
        assert seen.observations[0].observed is not ObservedState.LOST
    watched.shown()
    assert watched.state(after_seconds=9) is ObservedState.RUNNING
    watched.overview.jobs = []
    assert watched.state(after_seconds=9) is ObservedState.RUNNING
    assert watched.state(after_seconds=31) is ObservedState.LOST


def test_the_configuration_is_asked_only_when_a_job_is_missing(watched: Watched) -> None:
    watched.overview.configuration = AVAILABLE
    watched.look()
    watched.look(after_seconds=9)
    assert "/jobmanager/config" not in watched.overview.requests


def test_without_high_availability_a_missing_job_is_lost_at_once(watched: Watched) -> None:
    watched.look()
    watched.overview.jobs = []
    assert watched.state(after_seconds=9) is ObservedState.RUNNING
    assert watched.state(after_seconds=9) is ObservedState.LOST


def test_a_start_looks_a_few_seconds_for_the_last_incarnation(watched: Watched) -> None:
    watched.start_while_missing({})
    assert 6 <= watched.slept_seconds < 10


def test_a_start_looks_for_the_last_incarnation_until_its_recovery_would_be_over(
    watched: Watched,
) -> None:
    watched.start_while_missing(AVAILABLE)
    assert 30 <= watched.slept_seconds < 40

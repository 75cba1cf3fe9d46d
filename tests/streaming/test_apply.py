"""Several jobs at once: a few at a time, upstream first where that matters, none held up."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from lakehouse_dagster import LoadedLakehouse, SupervisionPolicy
from lakehouse_dagster.errors import ClusterUnreachableError, StreamingJobError
from lakehouse_dagster.streaming.apply import Acts, Outcome, apply, depths
from lakehouse_dagster.streaming.forget import ForgetOutcome
from lakehouse_dagster.streaming.runtime import HeldJob
from tests.streaming.making import job, load, source, table

NAMES = [f"job_{n:02d}" for n in range(20)]


@pytest.fixture
def lake(tmp_path: Path) -> LoadedLakehouse:
    scripts = {
        n: table(f"ods.{n}") + source(f"x_{n}") + job(n, f"ods.{n}", f"x_{n}") for n in NAMES
    }
    return load(tmp_path, scripts, supervision=SupervisionPolicy(concurrency=3))


def test_so_many_jobs_are_acted_on_at_once_and_no_more(lake: LoadedLakehouse) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    enough = threading.Barrier(3)

    def act(held: HeldJob, log: logging.Logger) -> Outcome:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        if held.name in NAMES[:3]:
            enough.wait(30)  # breaks unless three really run side by side
        with lock:
            at_once -= 1
        return ForgetOutcome(held.name, 0)

    done = apply(lake.runtime, [(name, Acts(act)) for name in NAMES], holder="test")
    assert [one.job for one in done] == NAMES
    assert all(one.error is None for one in done)
    assert most == 3


def test_one_failure_leaves_the_others_alone_and_is_remembered(lake: LoadedLakehouse) -> None:
    def act(held: HeldJob, log: logging.Logger) -> Outcome:
        if held.name == NAMES[1]:
            raise StreamingJobError("It broke.", remedy="Mend it.")
        return ForgetOutcome(held.name, 0)

    done = apply(lake.runtime, [(name, Acts(act)) for name in NAMES[:3]], holder="test")
    assert [one.error is None for one in done] == [True, False, True]
    record = lake.runtime.memory.get(NAMES[1])
    assert record is not None
    assert record.last_error == "It broke. Mend it."
    assert lake.runtime.leases.current(lake.runtime.memory.lease_key(NAMES[1])) is None


def test_attempts_that_nobody_answered_never_lead_to_the_cap(lake: LoadedLakehouse) -> None:
    def act(held: HeldJob, log: logging.Logger) -> Outcome:
        raise ClusterUnreachableError("Nobody answers.")

    most = lake.runtime.policy.max_attempts
    for _ in range(most + 3):
        lake.runtime.memory.count_attempt(NAMES[0], next_attempt_at=None)
        apply(lake.runtime, [(NAMES[0], Acts(act))], holder="test")
    record = lake.runtime.memory.get(NAMES[0])
    assert record is not None
    assert record.attempts == most - 1


CHAIN = {
    "c": table("l.c") + job("third", "l.c", "l.b"),
    "a": table("l.a") + source("x") + job("first", "l.a", "x"),
    "b": table("l.b") + job("second", "l.b", "l.a"),
    "d": table("l.d") + source("y") + job("apart", "l.d", "y"),
}


def test_what_must_be_in_order_goes_upstream_first(tmp_path: Path) -> None:
    runtime = load(tmp_path, CHAIN).runtime
    order: list[str] = []

    def act(held: HeldJob, log: logging.Logger) -> Outcome:
        order.append(held.name)
        return ForgetOutcome(held.name, 0)

    acts = Acts(act, in_order=True)
    apply(runtime, [(name, acts) for name in ("third", "second", "first")], holder="test")
    assert order == ["first", "second", "third"]


def test_jobs_that_read_from_each_other_have_an_order_too(tmp_path: Path) -> None:
    circle = {
        "a": table("l.a") + job("one", "l.a", "l.b"),
        "b": table("l.b") + job("two", "l.b", "l.a"),
    }
    runtime = load(tmp_path, circle).runtime
    found = depths(list(runtime.jobs.values()))
    assert sorted(found) == ["one", "two"]
    assert sorted(found.values()) == [0, 1]

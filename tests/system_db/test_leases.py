from __future__ import annotations

import logging
import multiprocessing
import os
import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_dagster.errors import LeaseHeldError, LeaseLostError
from lakehouse_dagster.system_db import Database, Leases, SystemDatabase
from tests.support.laboratory import until
from tests.system_db.conftest import MovedClock


@pytest.fixture
def leases(db: Database, clock: MovedClock) -> Leases:
    return Leases(db, clock)


def test_a_lease_names_its_holder_and_its_end(leases: Leases, clock: MovedClock) -> None:
    lease = leases.acquire("job/orders", "run a", ttl_seconds=60)
    assert (lease.key, lease.holder, lease.fencing) == ("job/orders", "run a", 1)
    assert lease.expires_at == clock.now + timedelta(seconds=60)
    assert leases.current("job/orders") == lease
    leases.check(lease)


def test_a_second_holder_is_told_who_holds_it_and_until_when(leases: Leases) -> None:
    leases.acquire("job/orders", "run a", ttl_seconds=60)
    with pytest.raises(LeaseHeldError) as caught:
        leases.acquire("job/orders", "run b", ttl_seconds=60)
    assert "run a acts on the job orders now." in str(caught.value)
    assert "should it have died, its lease ends at 2026-01-02 03:05:05 UTC." in str(caught.value)


def test_the_lakehouse_is_not_told_of_a_lease_to_people(leases: Leases) -> None:
    leases.acquire("table/lake@3fd9fc1e/ods.events", "run a", ttl_seconds=60)
    with pytest.raises(LeaseHeldError, match=r"run a acts on the table ods\.events now"):
        leases.acquire("table/lake@3fd9fc1e/ods.events", "run b", ttl_seconds=60)


def test_the_same_holder_does_not_get_a_second_lease(leases: Leases) -> None:
    leases.acquire("job/orders", "run a", ttl_seconds=60)
    with pytest.raises(LeaseHeldError):
        leases.acquire("job/orders", "run a", ttl_seconds=60)


def test_leases_on_other_keys_are_independent(leases: Leases) -> None:
    assert leases.acquire("job/orders", "run a", ttl_seconds=60).fencing == 1
    assert leases.acquire("job/users", "run b", ttl_seconds=60).fencing == 1


def test_fencing_numbers_grow_after_release_expiry_and_takeover(
    leases: Leases, clock: MovedClock
) -> None:
    numbers = []
    for how in ("release", "expiry", "release", "expiry"):
        lease = leases.acquire("job/orders", how, ttl_seconds=60)
        numbers.append(lease.fencing)
        if how == "release":
            leases.release(lease)
        else:
            clock.move(60)
    assert numbers == [1, 2, 3, 4]


def test_an_expired_lease_is_lost_even_when_nobody_took_it(
    leases: Leases, clock: MovedClock
) -> None:
    lease = leases.acquire("job/orders", "run a", ttl_seconds=60)
    clock.move(59.9)
    leases.check(lease)
    clock.move(0.1)
    for use in (leases.check, leases.renew):
        with pytest.raises(LeaseLostError, match=r"run a on the job orders expired at 2026-01-02"):
            use(lease)
    assert leases.current("job/orders") is None


def test_a_lease_that_went_over_to_another_holder_is_lost(
    leases: Leases, clock: MovedClock
) -> None:
    old = leases.acquire("job/orders", "run a", ttl_seconds=60)
    clock.move(61)
    new = leases.acquire("job/orders", "run b", ttl_seconds=60)
    for use in (leases.check, leases.renew):
        with pytest.raises(LeaseLostError, match="went over to run b"):
            use(old)
    leases.release(old)
    leases.check(new)


def test_a_renewed_lease_lives_on_with_the_same_fencing_number(
    leases: Leases, clock: MovedClock
) -> None:
    lease = leases.acquire("job/orders", "run a", ttl_seconds=60)
    clock.move(50)
    renewed = leases.renew(lease)
    clock.move(50)
    leases.check(renewed)
    leases.check(lease)
    assert renewed.fencing == lease.fencing
    assert renewed.expires_at == lease.expires_at + timedelta(seconds=50)


def test_releasing_the_current_lease_of_a_cancelled_run_fences_it_off(leases: Leases) -> None:
    cancelled = leases.acquire("job/orders", "run a", ttl_seconds=3600)
    current = leases.current("job/orders")
    assert current is not None
    leases.release(current)
    with pytest.raises(LeaseLostError, match="was released"):
        leases.check(cancelled)
    assert leases.acquire("job/orders", "run b", ttl_seconds=60).fencing == 2


def test_a_waiting_holder_gets_the_lease_when_it_is_given_back(
    db: Database, clock: MovedClock
) -> None:
    holding = Leases(db, clock)
    lease = holding.acquire("job/orders", "run a", ttl_seconds=60)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            holding.release(lease)

    waiting = Leases(db, clock, sleep)
    assert waiting.acquire("job/orders", "run b", 60, wait_seconds=10).holder == "run b"
    assert waits == [0.5, 0.5, 0.5]


def test_waiting_has_a_bound(leases: Leases) -> None:
    leases.acquire("job/orders", "run a", ttl_seconds=60)
    began = time.monotonic()
    with pytest.raises(LeaseHeldError):
        leases.acquire("job/orders", "run b", ttl_seconds=60, wait_seconds=0.1)
    assert 0.1 <= time.monotonic() - began < 30


def test_a_held_lease_is_renewed_while_the_block_runs(db: Database) -> None:
    leases = Leases(db)
    with leases.held("job/orders", "run a", ttl_seconds=6) as lease:

        def renewed() -> bool:
            current = leases.current("job/orders")
            assert current is not None
            return current.expires_at > lease.expires_at

        until(renewed, "a renewal")
        leases.check(lease)
    assert leases.current("job/orders") is None


@pytest.mark.parametrize("ending", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_held_lease_is_released_however_the_block_ends(
    db: Database, ending: type[BaseException]
) -> None:
    leases = Leases(db)
    with pytest.raises(ending), leases.held("job/orders", "run a"):
        raise ending
    assert leases.current("job/orders") is None


def test_a_lease_lost_inside_the_block_hides_no_error_and_takes_nothing_from_the_new_holder(
    leases: Leases, clock: MovedClock
) -> None:
    def act_for_too_long() -> None:
        with leases.held("job/orders", "run a", ttl_seconds=60) as lease:
            clock.move(61)
            leases.acquire("job/orders", "run b", ttl_seconds=60)
            leases.check(lease)

    with pytest.raises(LeaseLostError, match="went over to run b"):
        act_for_too_long()
    current = leases.current("job/orders")
    assert current is not None
    assert current.holder == "run b"


def test_a_release_that_fails_is_logged_and_does_not_hide_how_the_block_ended(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with SystemDatabase(sqlite_url, busy_timeout_seconds=0.05).connect() as database:
        leases = Leases(database)
        blocker = sqlite3.connect(tmp_path / "lakehouse.db", isolation_level=None)

        def fail_while_another_process_writes() -> None:
            with leases.held("job/orders", "run a", ttl_seconds=60):
                blocker.execute("BEGIN IMMEDIATE")
                raise RuntimeError("the real reason")

        with caplog.at_level(logging.WARNING), pytest.raises(RuntimeError, match="the real reason"):
            fail_while_another_process_writes()
        blocker.close()
    assert "could not be released, and ends by itself within 60 s" in caplog.text


def _race(url: str, start: Any, log_file: str, rounds: int) -> None:
    """Take and give back the lease many times, appending (fencing, in/out) to a common log.

    ``O_APPEND`` makes the order of the lines the order of the writes.
    """
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with SystemDatabase(url).connect() as database:
        leases = Leases(database, sleep=lambda _: time.sleep(0.001))
        start.wait()
        for _ in range(rounds):
            lease = leases.acquire("job/orders", f"process {os.getpid()}", 60, wait_seconds=60)
            os.write(log, f"in {lease.fencing} {os.getpid()}\n".encode())
            leases.check(lease)
            os.write(log, f"out {lease.fencing} {os.getpid()}\n".encode())
            leases.release(lease)
    os.close(log)


def test_two_processes_never_hold_the_same_lease_and_fencing_numbers_rise(
    url: str, tmp_path: Path
) -> None:
    rounds = 60
    fork = multiprocessing.get_context("fork")
    start, log_file = fork.Barrier(2), tmp_path / "log"
    processes = [
        fork.Process(target=_race, args=(url, start, str(log_file), rounds)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    lines = [line.split() for line in log_file.read_text().splitlines()]
    assert len(lines) == 4 * rounds
    entered, left = lines[0::2], lines[1::2]
    assert {line[0] for line in entered} == {"in"}, "both held the lease at once"
    assert [line[1:] for line in entered] == [line[1:] for line in left]
    numbers = [int(line[1]) for line in entered]
    assert numbers == list(range(1, 2 * rounds + 1))
    assert len({line[2] for line in entered}) == 2

"""What is declared is checked at once, and what is wrong is said with what to write instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.durations import duration, in_words
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.spec import ProgressPolicy, SupervisionPolicy


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("12h", 43_200),
        ("1d", 86_400),
        ("2w", 1_209_600),
        ("1d12h", 129_600),
        ("1.5h", 5_400),
        ("250ms", 0.25),
        (" 1 h 30 m ", 5_400),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_are_read_as_people_write_them(written: Any, seconds: float) -> None:
    assert duration(written).total_seconds() == seconds


@pytest.mark.parametrize(
    "written", ["", "5", "s", "5 years", "-5s", "1h and 5m", "5sm", "1e3s", "3M"]
)
def test_what_is_no_duration_is_refused_by_its_name(written: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        duration(written, what="Lakehouse.materialize_timeout")
    message = str(refused.value)
    assert message.startswith(f"Lakehouse.materialize_timeout is {written!r}")
    assert "30s, 12h or 1d12h" in message


def test_a_duration_leaves_now_within_the_calendar() -> None:
    for written in ("6000w", "99999999999w"):
        with pytest.raises(ConfigurationError, match="longer than a century"):
            duration(written)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0s"),
        (0.34, "0.3s"),
        (9.9, "9.9s"),
        (10, "10s"),
        (59.7, "1m"),
        (200, "3m20s"),
        (3_600, "1h"),
        (90_061, "1d1h"),
        (864_000, "10d"),
    ],
)
def test_durations_are_shown_in_two_units(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@given(st.floats(min_value=10, max_value=10_000_000))
def test_what_is_shown_reads_back_nearly_the_same(seconds: float) -> None:
    read = duration(in_words(seconds)).total_seconds()
    assert abs(read - seconds) <= max(1.0, seconds / 24)


def test_intervals_are_kept_as_timedeltas_however_they_were_written() -> None:
    policy = SupervisionPolicy(tick_interval="1m30s", lease=timedelta(seconds=5))
    assert policy.tick_interval == timedelta(seconds=90)
    assert policy.seconds("lease") == 5
    assert policy == SupervisionPolicy(tick_interval=timedelta(seconds=90), lease="5s")
    assert ProgressPolicy(progress_interval="30s").seconds("progress_interval") == 30


@pytest.mark.parametrize(
    ("policy", "setting", "value", "said"),
    [
        (SupervisionPolicy, "tick_interval", "soon", "which is not a duration"),
        (SupervisionPolicy, "tick_interval", 15, "Write a number with a unit, such as 30s"),
        (SupervisionPolicy, "tick_interval", "0s", "It must be longer than 0."),
        (SupervisionPolicy, "lease", timedelta(seconds=-1), "It must be longer than 0."),
        (SupervisionPolicy, "lease", None, "Write a number with a unit"),
        (SupervisionPolicy, "max_attempts", 0, "a whole number of at least 1"),
        (SupervisionPolicy, "max_attempts", "6", "a whole number of at least 1"),
        (SupervisionPolicy, "concurrency", 1.5, "a whole number of at least 1"),
        (SupervisionPolicy, "concurrency", True, "a whole number of at least 1"),
        (ProgressPolicy, "progress_interval", "often", "which is not a duration"),
        (ProgressPolicy, "events_per_tick", 0, "a whole number of at least 1"),
        (ProgressPolicy, "threads", "8", "a whole number of at least 1"),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_write(
    policy: type[Any], setting: str, value: object, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        policy(**{setting: value})
    assert str(refused.value).startswith(f"{policy.__name__}.{setting} is {value!r}")
    assert said in str(refused.value)


def test_attempts_are_backed_off_twofold_up_to_a_bound() -> None:
    policy = SupervisionPolicy(backoff_initial="20s", backoff_max="10m")
    waits = [policy.backoff_seconds(attempt) for attempt in range(1, 8)]
    assert waits == [20, 40, 80, 160, 320, 600, 600]
    assert policy.backoff_seconds(100_000) == 600


def test_few_tables_are_reported_more_often_than_many() -> None:
    policy = ProgressPolicy()
    assert [policy.interval_seconds(n) for n in (0, 6, 20, 100, 1000)] == [30, 30, 30, 150, 300]
    assert ProgressPolicy(progress_interval="10s").interval_seconds(1000) == 10

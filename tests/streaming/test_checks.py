"""When a table is fresh, and when its job is too far behind."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import SourceKind
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.streaming.checks import CheckPolicy, behind, freshness
from lakehouse_dagster.streaming.lag import JobLag, UpstreamLag
from tests.streaming.making import NOW, ago


def snapshot(committed_at: datetime, watermark: datetime | None = None) -> Snapshot:
    return Snapshot(12, 0, "user", 7, "APPEND", committed_at, watermark, 100, None)


def lag(snapshots: int | None = 0, seconds: float = 0.0) -> JobLag:
    if snapshots is None:
        return JobLag("job", (UpstreamLag("f", SourceKind.OTHER, unknown="not known"),))
    upstream = UpstreamLag(
        "ods.a",
        SourceKind.PAIMON,
        next_snapshot=5,
        latest_snapshot=4 + snapshots,
        snapshots_behind=snapshots,
        splits_being_read=0,
        seconds_behind=seconds,
    )
    return JobLag("job", (upstream,))


TEN = CheckPolicy(freshness="10m", max_lag="5m", max_snapshots_behind=3, max_watermark_lag="1h")


def test_a_young_snapshot_is_fresh() -> None:
    outcome = freshness(snapshot(ago(minutes=9)), lag(7, 900), TEN, NOW)
    assert outcome.passed
    assert outcome.figures == {"age_seconds": 540.0, "snapshot": 12, "bound_seconds": 600.0}


def test_an_old_snapshot_is_not_fresh_while_there_is_more_to_read() -> None:
    outcome = freshness(snapshot(ago(minutes=11)), lag(2, 120), TEN, NOW)
    assert not outcome.passed
    assert outcome.severity_word == "ERROR"
    assert outcome.text == (
        "Snapshot 12 was committed 11m ago, longer than 10m. "
        "ods.a: 2 snapshots behind, 2m (5 to 6)."
    )


def test_a_table_whose_upstream_has_nothing_new_is_fresh_however_old() -> None:
    outcome = freshness(snapshot(ago(days=9)), lag(0), TEN, NOW)
    assert outcome.passed
    assert "nothing new upstream" in outcome.text


@pytest.mark.parametrize("unknown", [None, lag(None), JobLag("job", ())])
def test_of_an_unknown_upstream_the_age_alone_decides(unknown: JobLag | None) -> None:
    assert not freshness(snapshot(ago(minutes=11)), unknown, TEN, NOW).passed
    assert freshness(snapshot(ago(minutes=9)), unknown, TEN, NOW).passed


def test_without_a_bound_nothing_fails() -> None:
    none = CheckPolicy()
    assert freshness(snapshot(ago(days=900)), lag(2, 9e9), none, NOW).passed
    assert freshness(None, None, none, NOW).passed
    assert behind(snapshot(ago(days=900), ago(days=900)), lag(500, 9e9), none, NOW).passed


def test_a_table_without_a_snapshot_is_only_fresh_when_there_is_nothing_to_read() -> None:
    assert freshness(None, lag(0), TEN, NOW).passed
    waiting = freshness(None, lag(1, 5), TEN, NOW)
    assert (waiting.passed, waiting.severity_word) == (False, "WARN")


def test_every_bound_of_the_lag_is_told_that_is_exceeded() -> None:
    outcome = behind(snapshot(NOW, ago(hours=2)), lag(4, 301), TEN, NOW)
    assert not outcome.passed
    assert outcome.figures == {
        "seconds_behind": 301,
        "snapshots_behind": 4,
        "watermark_lag_seconds": 7200.0,
    }
    for text in ("5m1s", "4 snapshots are not read, more than 3", "The watermark is 2h old"):
        assert text in outcome.text


def test_at_its_bounds_a_job_is_not_too_far_behind() -> None:
    outcome = behind(snapshot(NOW, ago(hours=1)), lag(3, 300), TEN, NOW)
    assert outcome.passed
    assert outcome.text == "ods.a: 3 snapshots behind, 5m (5 to 7)."


@pytest.mark.parametrize("unknown", [None, lag(None), JobLag("job", ())])
def test_a_lag_that_is_not_known_is_said_and_fails_nothing(unknown: JobLag | None) -> None:
    outcome = behind(None, unknown, TEN, NOW)
    assert outcome.passed
    assert "not known" in outcome.text or "no source" in outcome.text
    assert outcome.figures == {}


def test_bounds_are_checked_when_they_are_declared() -> None:
    assert CheckPolicy(freshness="90s").freshness == timedelta(seconds=90)
    for wrong in ({"freshness": "soon"}, {"max_lag": "0s"}, {"max_snapshots_behind": -1}):
        with pytest.raises(ConfigurationError, match="CheckPolicy"):
            CheckPolicy(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        CheckPolicy(max_watermark_lag=5)  # type: ignore[arg-type]

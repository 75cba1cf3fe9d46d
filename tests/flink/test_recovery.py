"""How long a job must be missing before it counts as lost."""

from __future__ import annotations

import pytest

from lakehouse_dagster.errors import ClusterUnreachableError
from lakehouse_dagster.flink.recovery import RECOVERY_SECONDS, seconds_until_lost
from tests.flink.answers import always, job_manager


@pytest.mark.parametrize(
    "entries",
    [
        [{"key": "high-availability.type", "value": "zookeeper"}],
        [{"key": "high-availability.type", "value": "kubernetes"}],
        [{"key": "high-availability", "value": "org.example.OurHaServicesFactory"}],
    ],
)
def test_a_highly_available_job_manager_gets_time_to_recover(entries: list[dict[str, str]]) -> None:
    with job_manager(always(json=entries)) as asked:
        assert asked.high_availability()
        assert seconds_until_lost(asked, 5.0) == RECOVERY_SECONDS
        assert seconds_until_lost(asked, 90.0) == 90.0


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{"key": "rest.port", "value": "8081"}],
        [{"key": "high-availability.type", "value": "none"}],
        [{"key": "high-availability", "value": "NONE"}],
        [{"key": "high-availability.storageDir", "value": "file:///ha"}],
    ],
)
def test_without_high_availability_a_missing_job_does_not_come_back(
    entries: list[dict[str, str]],
) -> None:
    with job_manager(always(json=entries)) as asked:
        assert not asked.high_availability()
        assert seconds_until_lost(asked, 5.0) == 5.0


def test_a_job_manager_that_cannot_be_asked_says_nothing_about_it() -> None:
    transport = always(200, content=b"<html>")
    with job_manager(transport) as asked, pytest.raises(ClusterUnreachableError):
        seconds_until_lost(asked, 5.0)
    assert transport.sent == ["GET /jobmanager/config"]

"""What an engine can do is asked once and known by name."""

from __future__ import annotations

import httpx
import pytest

from lakehouse_dagster.errors import ClusterUnreachableError, UnsupportedByEngineError
from lakehouse_dagster.flink import FlinkCluster, JobManager, capabilities_of
from lakehouse_dagster.flink.capabilities import capabilities_of_version
from tests.flink.answers import OVERVIEW, Recorder


def test_the_two_tested_engines() -> None:
    newer, older = capabilities_of_version("2.0.2"), capabilities_of_version("1.20.5")
    assert (newer.flink_version, older.flink_version) == ("2.0.2", "1.20.5")
    assert newer.warehouse_path_as_written
    assert not older.warehouse_path_as_written


@pytest.mark.parametrize("version", ["1.19.3", "1.9.0", "", "unknown"])
def test_an_engine_older_than_the_oldest_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedByEngineError, match=r"1\.20"):
        capabilities_of_version(version)


def test_a_cluster_is_asked_once_and_again_after_it_could_not_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([httpx.Response(200, content=b"<html>"), httpx.Response(200, json=OVERVIEW)])
    transport = Recorder(lambda request: next(answers))
    monkeypatch.setattr(
        FlinkCluster, "job_manager", lambda self: JobManager(self, transport=transport)
    )
    cluster = FlinkCluster("http://asked-once", "http://b")
    with pytest.raises(ClusterUnreachableError):
        capabilities_of(cluster)
    assert capabilities_of(cluster).flink_version == "2.0.2"
    assert capabilities_of(cluster).flink_version == "2.0.2"
    assert transport.sent == ["GET /overview"] * 2

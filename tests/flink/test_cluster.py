"""Where a cluster is: checked when declared, and no secret ever shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import BasicAuth, BearerAuth, FlinkCluster
from tests.flink.answers import OVERVIEW, always, job_manager, sql_gateway


def test_addresses_lose_their_last_slash_and_keep_their_path() -> None:
    cluster = FlinkCluster("https://proxy/flink/", "http://gateway:8083/")
    assert cluster.rest_url == "https://proxy/flink"
    assert cluster.sql_gateway_url == "http://gateway:8083"


@pytest.mark.parametrize("url", ["jobmanager:8081", "ftp://x", "http://", "http://h:port", ""])
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rest_url .*http://host:8081"):
        FlinkCluster(url, "http://gateway:8083")


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="BasicAuth") as caught:
        FlinkCluster("http://jobmanager:8081", "http://ann:hunter2@gateway:8083")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("setting", ["connect_timeout_seconds", "read_timeout_seconds"])
def test_a_time_out_must_be_positive(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=setting):
        FlinkCluster("http://a", "http://b", **{setting: 0})  # type: ignore[arg-type]


def test_secrets_do_not_show_in_repr() -> None:
    for auth in (BasicAuth("ann", "hunter2"), BearerAuth("hunter2")):
        assert "hunter2" not in repr(FlinkCluster("http://a", "http://b", auth=auth))


def test_user_name_and_password_are_sent_to_both_addresses() -> None:
    cluster = FlinkCluster("http://a", "http://b", auth=BasicAuth("ann", "hunter2"))
    transport = always(json={**OVERVIEW, "productName": "Apache Flink", "version": "2.0.2"})
    job_manager(transport, cluster).overview()
    sql_gateway(transport, cluster).info()
    expected = httpx.BasicAuth("ann", "hunter2")._auth_header
    assert [r.headers["authorization"] for r in transport.requests] == [expected, expected]


def test_a_token_is_sent_as_bearer() -> None:
    cluster = FlinkCluster("http://a", "http://b", auth=BearerAuth("t0ken"))
    transport = always(json=OVERVIEW)
    job_manager(transport, cluster).overview()
    assert transport.requests[0].headers["authorization"] == "Bearer t0ken"


def test_a_path_prefix_stays_in_front_of_every_request() -> None:
    cluster = FlinkCluster("http://proxy/flink", "http://proxy/gateway")
    transport = always(json={**OVERVIEW, "productName": "Apache Flink", "version": "2.0.2"})
    job_manager(transport, cluster).overview()
    assert sql_gateway(transport, cluster).info() == ("Apache Flink", "2.0.2")
    assert transport.sent == ["GET /flink/overview", "GET /gateway/v3/info"]


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_ca_bundle_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    bundle = tmp_path / "ca.pem"
    if content is not None:
        bundle.write_text(content)
    cluster = FlinkCluster("https://a", "https://b", verify=str(bundle))
    with cluster.job_manager() as jobs, pytest.raises(ConfigurationError, match=r"ca\.pem"):
        jobs.overview()


def test_importing_the_room_brings_in_neither_httpx_nor_pyarrow_nor_dagster() -> None:
    code = (
        "import sys, lakehouse_dagster.flink as f; f.FlinkCluster('http://a', 'http://b');"
        "print([m for m in ('httpx', 'pyarrow', 'tenacity', 'dagster') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"

"""What the network and proxies can do to a request, and which exception says so."""

from __future__ import annotations

import gzip
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lakehouse_dagster.errors import (
    AnswerLostError,
    ClusterUnreachableError,
    FlinkRequestError,
    NotFoundError,
)
from lakehouse_dagster.flink import FlinkCluster
from tests.flink.answers import (
    JOB,
    OPERATION,
    OVERVIEW,
    SESSION,
    Recorder,
    always,
    cluster_at,
    failing,
    flink_error,
    http_reply,
    job_manager,
    raw_server,
    sql_gateway,
)

HTML = b"<html><body>Please log in</body></html>"
LEADER_ELECTION = "Service temporarily unavailable due to an ongoing leader election."

POSTS: list[Callable[[Recorder], object]] = [
    lambda t: job_manager(t).stop_with_savepoint(JOB, trigger_id=JOB),
    lambda t: sql_gateway(t).open_session("test"),
    lambda t: sql_gateway(t).session(SESSION).submit("INSERT INTO a SELECT * FROM b"),
    lambda t: sql_gateway(t).session(SESSION).execute("SHOW TABLES"),
    lambda t: sql_gateway(t).session(SESSION).heartbeat(),
]
NAMES = ["stop", "open_session", "submit", "execute", "heartbeat"]
each_post = pytest.mark.parametrize("post", POSTS, ids=NAMES)


@each_post
@pytest.mark.parametrize(
    "error", [httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError]
)
def test_a_post_without_answer_is_reported_as_lost_and_never_sent_again(
    post: Callable[[Recorder], object], error: type[httpx.TransportError]
) -> None:
    transport = failing(error)
    with pytest.raises(AnswerLostError, match="before sending it again"):
        post(transport)
    assert len(transport.requests) == 1


@each_post
@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout])
def test_a_post_that_was_not_sent_is_not_called_lost(
    post: Callable[[Recorder], object], error: type[httpx.TransportError]
) -> None:
    transport = failing(error)
    with pytest.raises(ClusterUnreachableError):
        post(transport)
    assert len(transport.requests) == 1


@each_post
@pytest.mark.parametrize(
    "transport_of",
    [
        lambda: always(502, content=HTML),
        lambda: always(503, content=HTML),
        lambda: always(504, content=HTML),
        lambda: always(500, content=HTML),
        lambda: always(200, content=HTML),
        lambda: always(200, content=b'{"operationHandle": "6666'),
        lambda: always(200, json=[]),
    ],
    ids=["502", "503", "504", "500 html", "200 html", "truncated", "a list"],
)
def test_a_post_whose_answer_flink_did_not_write_is_lost_too(
    post: Callable[[Recorder], object], transport_of: Callable[[], Recorder]
) -> None:
    transport = transport_of()
    with pytest.raises(AnswerLostError):
        post(transport)
    assert len(transport.requests) == 1


@each_post
def test_a_post_that_flink_refuses_in_its_own_words_is_not_lost(
    post: Callable[[Recorder], object],
) -> None:
    transport = Recorder(lambda request: flink_error(503, LEADER_ELECTION))
    with pytest.raises(FlinkRequestError, match="leader election") as caught:
        post(transport)
    assert caught.value.status_code == 503
    assert len(transport.requests) == 1


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError])
def test_a_get_is_tried_three_times_while_nobody_answers(error: type[httpx.TransportError]) -> None:
    transport = failing(error)
    with pytest.raises(ClusterUnreachableError, match="gave no answer to GET /overview"):
        job_manager(transport).overview()
    assert transport.sent == ["GET /overview"] * 3


def test_a_get_succeeds_when_the_second_try_is_answered() -> None:
    answers = iter([httpx.Response(503, content=HTML), httpx.Response(200, json=OVERVIEW)])
    transport = Recorder(lambda request: next(answers))
    assert job_manager(transport).overview().slots_total == 8
    assert len(transport.requests) == 2


def test_a_job_manager_without_leader_is_unreachable() -> None:
    transport = Recorder(lambda request: flink_error(503, LEADER_ELECTION))
    with pytest.raises(ClusterUnreachableError, match="leader election"):
        job_manager(transport).jobs()


@pytest.mark.parametrize(
    "transport",
    [
        always(200, content=HTML),
        always(200, content=b'{"jobs": [{"jid": "'),
        always(200, json={"something": "else"}),
        always(200, json=[]),
        always(404, content=HTML),
        always(302, headers={"location": "http://elsewhere/login"}),
        always(500, content=b""),
    ],
    ids=["html", "truncated", "other keys", "a list", "404 html", "redirect", "500 empty"],
)
def test_an_answer_that_flink_did_not_write_says_nothing_about_jobs(transport: Recorder) -> None:
    with pytest.raises(ClusterUnreachableError):
        job_manager(transport).jobs()
    with pytest.raises(ClusterUnreachableError):
        job_manager(transport).job(JOB)


def test_a_404_for_a_wrong_path_is_not_taken_for_a_job_that_is_gone() -> None:
    transport = Recorder(lambda r: flink_error(404, f"Unable to load requested file {r.url.path}."))
    with pytest.raises(NotFoundError):
        job_manager(transport).job(JOB)
    with pytest.raises(NotFoundError):
        job_manager(transport).cancel(JOB)
    with pytest.raises(NotFoundError):
        job_manager(transport).savepoint_result(JOB, JOB)
    with pytest.raises(NotFoundError):
        sql_gateway(transport).session(SESSION).delete()
    with pytest.raises(NotFoundError):
        sql_gateway(transport).session(SESSION).operation(OPERATION).cancel()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_log_in_names_the_remedy(status: int) -> None:
    transport = always(status, content=HTML)
    with pytest.raises(FlinkRequestError, match="BasicAuth") as caught:
        job_manager(transport).overview()
    assert caught.value.status_code == status
    with pytest.raises(FlinkRequestError, match="BasicAuth"):
        sql_gateway(transport).open_session("test")
    assert len(transport.requests) == 2


@pytest.mark.parametrize(
    "error", [httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ConnectError]
)
def test_without_answer_a_session_is_not_said_to_be_deleted(
    error: type[httpx.TransportError],
) -> None:
    transport = failing(error)
    with pytest.raises(ClusterUnreachableError):
        sql_gateway(transport).session(SESSION).delete()
    assert transport.sent == [f"DELETE /v3/sessions/{SESSION}"]


def test_a_refused_connection_is_unreachable_within_the_connect_time_out() -> None:
    with raw_server(b"") as server:
        port = server.port
    started = time.monotonic()
    with cluster_at(port).job_manager() as jobs, pytest.raises(ClusterUnreachableError) as caught:
        jobs.overview()
    assert "refused" in str(caught.value)
    assert time.monotonic() - started < 5


def test_a_hanging_server_is_asked_once_and_left_after_the_read_time_out() -> None:
    with raw_server(None) as server:
        cluster = cluster_at(server.port, read_timeout_seconds=1)
        started = time.monotonic()
        with (
            cluster.job_manager() as jobs,
            pytest.raises(ClusterUnreachableError, match="time-out"),
        ):
            jobs.overview()
        assert time.monotonic() - started < 8
        assert len(server.requests) == 1
        with cluster.sql_gateway() as gateway, pytest.raises(AnswerLostError, match="time-out"):
            gateway.session(SESSION).submit("SELECT 1")
        assert len(server.requests) == 2


def test_a_server_that_hangs_up_loses_a_post_and_is_asked_again_for_a_get() -> None:
    with raw_server(b"") as server:
        cluster = cluster_at(server.port)
        with cluster.sql_gateway() as gateway, pytest.raises(AnswerLostError):
            gateway.session(SESSION).submit("SELECT 1")
        assert len(server.requests) == 1
        with cluster.job_manager() as jobs, pytest.raises(ClusterUnreachableError):
            jobs.overview()
        assert len(server.requests) == 4


def test_an_answer_cut_off_on_the_wire_is_no_answer() -> None:
    with raw_server(http_reply(b'{"jobs":[]}', length=500, close=True)) as server:
        cluster = cluster_at(server.port)
        with cluster.job_manager() as jobs, pytest.raises(ClusterUnreachableError):
            jobs.jobs()
        with cluster.sql_gateway() as gateway, pytest.raises(AnswerLostError):
            gateway.session(SESSION).submit("SELECT 1")
        assert sum(request.startswith(b"POST") for request in server.requests) == 1


def test_requests_share_one_connection() -> None:
    with raw_server(http_reply(b'{"jobs":[]}')) as server:
        with cluster_at(server.port).job_manager() as jobs:
            for _ in range(5):
                assert jobs.jobs() == ()
        assert server.connections == 1
        assert len(server.requests) == 5


def test_the_cookie_of_a_load_balancer_is_sent_back() -> None:
    transport = always(json=OVERVIEW, headers={"Set-Cookie": "node=7; Path=/"})
    jobs = job_manager(transport)
    for _ in range(3):
        jobs.overview()
    assert [r.headers.get("cookie") for r in transport.requests] == [None, "node=7", "node=7"]


def test_a_proxy_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    with raw_server(http_reply(b'{"jobs":[]}')) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        with FlinkCluster("http://flink.test:8081", "http://flink.test:8083").job_manager() as jobs:
            assert jobs.jobs() == ()
        (request,) = proxy.requests
    assert request.startswith(b"GET http://flink.test:8081/jobs/overview HTTP/1.1\r\n")


def test_a_compressed_answer_is_read() -> None:
    body = gzip.compress(json.dumps(OVERVIEW).encode())
    transport = always(content=body, headers={"Content-Encoding": "gzip"})
    assert job_manager(transport).overview().slots_total == 8


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, and a server's TLS made of it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    pem, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            openssl,
            *[
                "req",
                "-x509",
                "-nodes",
                "-days",
                "2",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ],
            *["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
            *("-keyout", str(key), "-out", str(pem)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    return pem, context


def test_tls_certificates_are_checked_against_the_given_bundle(
    certificate: tuple[Path, ssl.SSLContext],
) -> None:
    bundle, context = certificate

    def cluster(port: int, verify: bool | str) -> FlinkCluster:
        return cluster_at(port, scheme="https", verify=verify)

    with raw_server(http_reply(b'{"jobs":[]}'), context) as server:
        with cluster(server.port, str(bundle)).job_manager() as jobs:
            assert jobs.jobs() == ()
        with cluster(server.port, False).job_manager() as jobs:
            assert jobs.jobs() == ()
        with cluster(server.port, True).job_manager() as jobs:
            with pytest.raises(ClusterUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                jobs.jobs()

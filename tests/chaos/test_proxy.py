"""The proxy does to requests what it is told, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.support.faults import INSERT, STATEMENT, Does, Fault, FaultyProxy

ANSWER = b'{"sessionHandle":"s-1","text":"twenty-four letters long"}'


@pytest.fixture
def received() -> list[str]:
    return []


@pytest.fixture
def proxy(received: list[str]) -> Iterator[FaultyProxy]:
    """A proxy in front of an endpoint that notes what arrives."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append(body)
            statement = self.path.endswith("/statements")
            content = b'{"operationHandle":"o-%d"}' % len(received) if statement else ANSWER
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with FaultyProxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
        yield proxy
    server.shutdown()
    server.server_close()


def _post(proxy: FaultyProxy, body: str = "{}", path: str = "/v3/sessions") -> httpx.Response:
    return httpx.post(proxy.url + path, content=body, timeout=5)


def test_what_nobody_told_it_to_break_passes(proxy: FaultyProxy, received: list[str]) -> None:
    assert _post(proxy).content == ANSWER
    assert received == ["{}"]
    assert [one.passed_on for one in proxy.seen] == [True]


def test_a_doubled_request_arrives_twice_and_is_answered_once(
    proxy: FaultyProxy, received: list[str]
) -> None:
    proxy.add(Fault("POST", "", Does.DOUBLE))
    assert _post(proxy).content == ANSWER
    assert received == ["{}", "{}"]
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("does", [Does.LOSE_ANSWER, Does.TRUNCATE_ANSWER])
def test_a_lost_or_cut_off_answer_is_an_error_after_the_request_arrived(
    proxy: FaultyProxy, received: list[str], does: Does
) -> None:
    proxy.add(Fault("POST", "", does))
    with pytest.raises(httpx.RemoteProtocolError):
        _post(proxy)
    assert received == ["{}"]


def test_a_lost_request_never_arrives(proxy: FaultyProxy, received: list[str]) -> None:
    proxy.add(Fault("*", "", Does.LOSE_REQUEST, times=2))
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            _post(proxy)
    assert received == []
    assert _post(proxy).status_code == 200


def test_a_fault_begins_after_the_requests_that_it_skips(proxy: FaultyProxy) -> None:
    proxy.add(Fault("POST", "", Does.ANSWER_503, skip=2))
    assert [_post(proxy).status_code for _ in range(4)] == [200, 200, 503, 200]


def test_what_hangs_is_hung_up_when_the_proxy_is_healed(
    proxy: FaultyProxy, received: list[str]
) -> None:
    proxy.add(Fault("POST", "", Does.HANG, times=100))

    def heal_once_it_hangs() -> None:
        while not proxy.requests("POST"):
            time.sleep(0.01)
        time.sleep(0.2)  # seen, it is about to hang
        proxy.heal()

    threading.Thread(target=heal_once_it_hangs, daemon=True).start()
    with pytest.raises(httpx.RemoteProtocolError):
        _post(proxy)
    assert received == []
    assert _post(proxy).status_code == 200


def test_it_knows_the_operations_of_inserts_also_when_their_answers_were_lost(
    proxy: FaultyProxy,
) -> None:
    _post(proxy)
    path = "/v3/sessions/s-1/statements"
    _post(proxy, '{"statement": "CREATE DATABASE a"}', path)
    proxy.add(Fault("POST", STATEMENT, Does.LOSE_ANSWER, body=INSERT))
    with pytest.raises(httpx.RemoteProtocolError):
        _post(proxy, '{"statement": "INSERT INTO a SELECT 1"}', path)
    assert proxy.sessions == {"s-1": ["o-3"]}
    assert len(proxy.inserts) == 1

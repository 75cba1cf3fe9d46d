"""Keys that a REST catalog hands out for a table are used to read it, and asked for when due.

The server of Paimon's own tests hands out none that open anything, so a few answers are given here,
over HTTP as the REST specification has them; the files are on a real S3 server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

from lakehouse_dagster import PaimonCatalog
from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.local.ports import HOST
from lakehouse_dagster.paimon.places import RestPlaces
from tests.paimon.writing import Writer
from tests.support.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

pytestmark = pytest.mark.services

TOKEN = "the-token-of-the-catalog"
TABLE = "/v1/p/databases/ods/tables/orders"


class _Answers(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Any]]
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        type(self).asked.append(path)
        answer, status = self.answers.get(path), 200
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            answer, status = {"message": "who are you?", "code": 401}, 401
        elif answer is None:
            answer, status = {"message": "none", "code": 404, "resourceType": "TABLE"}, 404
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _server(path: str, keys: dict[str, str], valid_seconds: float) -> Iterator[tuple[str, Any]]:
    schema: dict[str, Any] = {
        "fields": [{"id": 0, "name": "id", "type": "BIGINT"}],
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
        "comment": None,
    }
    table = {"id": "1", "name": "orders", "path": path, "isExternal": False, "schemaId": 0}
    expires = int((time.time() + valid_seconds) * 1000)

    class Answers(_Answers):
        asked: ClassVar[list[str]] = []
        answers: ClassVar[dict[str, Any]] = {
            "/v1/config": {
                "defaults": {"prefix": "p", "s3.endpoint": "http://not-this-one"},
                "overrides": {"data-token.enabled": "true"},
            },
            TABLE: {**table, "schema": schema},
            f"{TABLE}/token": {"token": keys, "expiresAtMillis": expires},
        }

    with ThreadingHTTPServer((HOST, 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{HOST}:{server.server_address[1]}", Answers
        server.shutdown()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "server") as running:
        yield running


@pytest.fixture(scope="module")
def path(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a table of one row is in the bucket."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    writer = Writer(warehouse, "ods.orders", pa.schema([("id", pa.int64())]))
    writer.append([{"id": 7}])
    to = S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=s3.endpoint,
        region="us-east-1",
    )
    copy_files(str(writer.folder), f"{BUCKET}/secret/orders", LocalFileSystem(), to)
    return f"s3://{BUCKET}/secret/orders"


def _catalog(uri: str, token: str = TOKEN) -> PaimonCatalog:
    options = {"token.provider": "bear", "token": token}
    return PaimonCatalog("lake", metastore="rest", uri=uri, options=options)


def test_a_table_is_read_with_the_keys_that_the_server_gives_for_it(
    s3: S3Server, path: str
) -> None:
    with _server(path, s3.options, 3600) as (uri, server):
        table = _catalog(uri).open().table("ods.orders")
        assert table.latest_snapshot_id() == 1
        assert table.read()["id"].to_pylist() == [7]
        assert server.asked == ["/v1/config", TABLE, f"{TABLE}/token"]
        assert _catalog(uri).open().table("ods.other").exists() is False


def test_keys_that_are_about_to_end_are_asked_for_again(s3: S3Server, path: str) -> None:
    with _server(path, s3.options, 60) as (uri, server):
        places = RestPlaces(_catalog(uri))
        places.place("ods", "orders")
        places.place("ods", "orders")
        assert server.asked.count(f"{TABLE}/token") == 2


def test_a_place_is_asked_for_again_after_five_minutes(s3: S3Server, path: str) -> None:
    now = [0.0]
    with _server(path, s3.options, 36_000) as (uri, server):
        places = RestPlaces(_catalog(uri), lambda: now[0])
        for at in (0.0, 299.0, 301.0):
            now[0] = at
            places.place("ods", "orders")
        assert server.asked.count(TABLE) == 2


def test_a_refused_token_is_said_and_neither_it_nor_the_keys_are_shown(
    s3: S3Server, path: str
) -> None:
    wrong = {**s3.options, "s3.secret-key": "hush-hush-hush"}
    with _server(path, wrong, 3600) as (uri, _):
        with pytest.raises(CatalogError) as refused:
            _catalog(uri, "some-other-token").open().table("ods.orders").latest_snapshot_id()
        assert "Not authorized" in refused.value.message
        assert "some-other-token" not in str(refused.value)
        with pytest.raises(CatalogError) as denied:
            _catalog(uri).open().table("ods.orders").latest_snapshot_id()
        assert "hush" not in str(denied.value)
        assert path in denied.value.message

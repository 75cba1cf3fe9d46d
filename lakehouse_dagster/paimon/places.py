"""Where the tables of a catalog are: by the layout of its warehouse, or told by a REST server.

Paimon's filesystem, JDBC and Hive catalogs all put a table into ``<warehouse>/<db>.db/<table>``,
and its schema and snapshots are files there; so neither database nor metastore is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.paimon.files import NoFiles, Server, WarehouseFiles

if TYPE_CHECKING:
    from lakehouse_dagster.paimon.catalog import PaimonCatalog

_DATABASE_SUFFIX = ".db"


@dataclass(frozen=True)
class Place:
    """The folder of a table, and how its files are read."""

    files: WarehouseFiles
    path: str


class Places(Protocol):
    """Which tables there are, and where each is; safe to use from several threads."""

    def databases(self) -> tuple[str, ...]:
        """The names of the databases."""

    def tables(self) -> tuple[str, ...]:
        """The tables of all databases, as ``database.table``."""

    def place(self, database: str, table: str) -> Place:
        """Where a table is, or would be."""


class WarehouseLayout:
    """Tables by the folders of the warehouse."""

    def __init__(self, catalog: PaimonCatalog) -> None:
        self._catalog = catalog
        options = catalog.pypaimon_options()
        self._files = WarehouseFiles(options["warehouse"], options)

    def databases(self) -> tuple[str, ...]:
        names = self._files.names(self._files.root)
        if not names and not self._files.exists(self._files.root):
            raise CatalogError(
                f"The warehouse {self._catalog.warehouse} does not exist.",
                remedy="Look at its path; Flink makes it with the first CREATE DATABASE.",
            )
        return tuple(
            name.removesuffix(_DATABASE_SUFFIX) for name in names if name.endswith(_DATABASE_SUFFIX)
        )

    def tables(self) -> tuple[str, ...]:
        return tuple(
            f"{database}.{name}"
            for database in self.databases()
            for name in self._files.names(f"{self._files.root}/{database}{_DATABASE_SUFFIX}")
            if not name.startswith(".")
            and self._files.exists(f"{self.place(database, name).path}/schema")
        )

    def place(self, database: str, table: str) -> Place:
        return Place(self._files, f"{self._files.root}/{database}{_DATABASE_SUFFIX}/{table}")


_REST_CONNECT_SECONDS = 5.0
_REST_READ_SECONDS = 20.0
_KEPT_SECONDS = 300.0
_TOKEN_MARGIN_SECONDS = 600.0


class RestPlaces:
    """Tables by what a REST catalog server says, with the keys that it hands out for each.

    A place is asked for once in five minutes: a table that was dropped and made anew elsewhere is
    noticed after that.
    """

    def __init__(
        self, catalog: PaimonCatalog, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = catalog.pypaimon_options()
        self._monotonic = monotonic
        self._server = Server(monotonic)
        self._lock = threading.Lock()
        self._api: Any = None
        self._kept: dict[tuple[str, str], tuple[float, Place]] = {}
        self._buckets: dict[tuple[str, str], tuple[Server, WarehouseFiles]] = {}

    def databases(self) -> tuple[str, ...]:
        with self._asked("list the databases") as api:
            return tuple(sorted(api.list_databases()))

    def tables(self) -> tuple[str, ...]:
        found = []
        for database in self.databases():
            with self._asked(f"list the tables of {database}") as api:
                found += [f"{database}.{t}" for t in api.list_tables(database)]
        return tuple(sorted(found))

    def place(self, database: str, table: str) -> Place:
        until, kept = self._kept.get((database, table), (0.0, None))
        if kept is not None and self._monotonic() < until:
            return kept
        with self._asked(f"ask where the table {database}.{table} is") as api:
            place, seconds = self._told(api, database, table)
        self._kept[database, table] = (self._monotonic() + seconds, place)
        return place

    @contextmanager
    def _asked(self, doing: str) -> Iterator[Any]:
        """pypaimon's client of the server; the first who asks connects, and all others wait."""
        with self._lock, self._server.asked(doing, self._options):
            if self._api is None:
                self._api = _rest_api(self._options)
        with self._server.asked(doing, self._options):
            yield self._api

    def _told(self, api: Any, database: str, table: str) -> tuple[Place, float]:
        """Where a table is, and for how many seconds that may be believed."""
        from pypaimon.api.rest_exception import NoSuchResourceException
        from pypaimon.common.identifier import Identifier

        identifier = Identifier.create(database, table)
        options = {str(k): str(v) for k, v in api.options.to_map().items()}
        try:
            path = _as_pypaimon_takes_it(str(api.get_table(identifier).get_path()))
            if options.get("data-token.enabled", "false").lower() != "true":
                return Place(self._bucket(path, options)[1], path), _KEPT_SECONDS
            token = api.load_table_token(identifier)
        except NoSuchResourceException:
            return Place(NoFiles(options), ""), 0.0
        files = WarehouseFiles(path, options | token.token, self._bucket(path, options)[0])
        left = token.expires_at_millis / 1000 - time.time() - _TOKEN_MARGIN_SECONDS
        return Place(files, path), max(0.0, min(_KEPT_SECONDS, left))

    def _bucket(self, path: str, options: Mapping[str, str]) -> tuple[Server, WarehouseFiles]:
        """The server of a path, and the way to its files for tables without keys of their own."""
        parts = urlsplit(path)
        with self._lock:
            if (parts.scheme, parts.netloc) not in self._buckets:
                server = Server(self._monotonic)
                made = (server, WarehouseFiles(path, options, server))
                self._buckets[parts.scheme, parts.netloc] = made
            return self._buckets[parts.scheme, parts.netloc]


def _rest_api(options: Mapping[str, str]) -> Any:
    """pypaimon's client of the server, once it has told its configuration.

    pypaimon itself waits 3 minutes for a connection and as long for an answer.
    """
    from pypaimon.api.api_response import ConfigResponse
    from pypaimon.api.resource_paths import ResourcePaths
    from pypaimon.api.rest_api import RESTApi
    from pypaimon.api.rest_util import RESTUtil
    from pypaimon.common.options import Options

    asking = RESTApi(Options(dict(options)), config_required=False)
    _soon_gives_up(asking.client)
    told = asking.client.get_with_params(
        ResourcePaths.config(),
        {"warehouse": RESTUtil.encode_string(options["warehouse"])},
        ConfigResponse,
        asking.rest_auth_function,
    )
    api = RESTApi(told.merge(Options(dict(options))), config_required=False)
    _soon_gives_up(api.client)
    return api


def _soon_gives_up(client: Any) -> None:
    from requests.adapters import HTTPAdapter

    client._timeout = (_REST_CONNECT_SECONDS, _REST_READ_SECONDS)
    for scheme in ("http://", "https://"):
        client.session.mount(scheme, HTTPAdapter(max_retries=0))


def _as_pypaimon_takes_it(path: str) -> str:
    """A local path without its scheme (``file:/a``, ``file:///a``), any other as it is."""
    if not path.startswith("file:"):
        return path.rstrip("/")
    return "/" + path.removeprefix("file:").strip("/")

"""Every kind of Paimon catalog, each on a real server that is started when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from lakehouse_dagster import PaimonCatalog
from lakehouse_dagster.local.engines import MavenJar
from lakehouse_dagster.local.ports import HOST
from lakehouse_dagster.local.stack import LocalStack
from tests.support.hive_metastore import HiveMetastore, client_jar
from tests.support.maven_jars import fetched
from tests.support.postgres import PASSWORD, PASSWORD_USER, PostgresServer, running_postgres
from tests.support.rest_catalog import TOKEN, WAREHOUSE, RestCatalogServer
from tests.support.s3 import BUCKET, S3Server
from tests.support.stacks import up

KINDS = ("filesystem", "s3", "jdbc", "jdbc_on_s3", "hive", "rest")

_S3 = {
    "flink-1.20": MavenJar(
        group="org.apache.paimon",
        artifact="paimon-s3",
        version="1.3.1",
        sha256="f103c3cd22590e92efad3a89414a718d4921041c32f181b74a3595c9d3a754f6",
    ),
    # There is none of 2.0.0; that of 1.4 does for it.
    "flink-2.0": MavenJar(
        group="org.apache.paimon",
        artifact="paimon-s3",
        version="1.4.2",
        sha256="dc701f0c5b2790680032ec8961dfbb857e968f9f023563a7077fffd0750d0a67",
    ),
}
_POSTGRES = MavenJar(
    group="org.postgresql",
    artifact="postgresql",
    version="42.7.7",
    sha256="157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
)


@dataclass(frozen=True)
class CatalogCluster:
    """A Flink cluster that has the jars for every kind of catalog."""

    engine: str
    rest_url: str
    sql_gateway_url: str


@contextmanager
def catalog_cluster(folder: Path, engine: str) -> Iterator[CatalogCluster]:
    """A small cluster of its own: the one that other tests share has none of the jars."""
    (folder / "lib").mkdir(parents=True)
    s3, postgres = fetched([_S3[engine], _POSTGRES])
    # First by name: Java stops looking for JDBC drivers at one that it cannot load, and the Hive
    # clients list such a one.
    jars = {f"0-{postgres.name}": postgres, s3.name: s3, "hive-client.jar": client_jar(engine)}
    for name, jar in jars.items():
        (folder / "lib" / name).symlink_to(jar)
    # The S3 client of Paimon 1.3 is initialised in a thread that may have come from an earlier job.
    config = {"web.refresh-interval": "100ms", "classloader.check-leaked-classloader": "false"}
    stack = LocalStack(folder, engine, slots=2, task_manager_memory_mib=1100, extra_config=config)
    with up(stack):
        status = stack.status()
        yield CatalogCluster(engine, status.rest_url, status.sql_gateway_url)


class CatalogServers:
    """The servers behind the catalogs; a context manager that ends those that it started."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder
        self._engine = engine
        self._running = ExitStack()

    def __enter__(self) -> CatalogServers:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def catalog(self, kind: str, name: str = "lake") -> PaimonCatalog:
        """A new, empty catalog of a kind (of one REST warehouse there is only one)."""
        local = str(self._folder / f"warehouse-{uuid4().hex[:8]}")
        bucket = f"s3://{BUCKET}/{uuid4().hex[:8]}"
        if kind == "filesystem":
            return PaimonCatalog(local, name)
        if kind == "s3":
            return PaimonCatalog(bucket, name, options=self._s3.options)
        if kind == "jdbc":
            return PaimonCatalog(local, name, "jdbc", self._login, self._new_database())
        if kind == "jdbc_on_s3":
            options = {**self._login, **self._s3.options, "lock.enabled": "true"}
            return PaimonCatalog(bucket, name, "jdbc", options, self._new_database())
        if kind == "hive":
            return PaimonCatalog(local, name, "hive", uri=self._hive.uri)
        assert kind == "rest"
        bear = {"token.provider": "bear", "token": TOKEN}
        return PaimonCatalog(WAREHOUSE, name, "rest", bear, self._rest.uri)

    @property
    def _login(self) -> dict[str, str]:
        return {"jdbc.user": PASSWORD_USER, "jdbc.password": PASSWORD}

    def _new_database(self) -> str:
        database = self._postgres.new_database().rpartition("/")[2]
        self._postgres.execute(f"GRANT ALL ON SCHEMA public TO {PASSWORD_USER}", database)
        return f"jdbc:postgresql://{HOST}:{self._postgres.port}/{database}"

    @cached_property
    def _s3(self) -> S3Server:
        return self._running.enter_context(S3Server(self._folder / "s3"))

    @cached_property
    def _postgres(self) -> PostgresServer:
        return self._running.enter_context(running_postgres())

    @cached_property
    def _hive(self) -> HiveMetastore:
        return self._running.enter_context(HiveMetastore(self._folder / "hive", self._engine))

    @cached_property
    def _rest(self) -> RestCatalogServer:
        return self._running.enter_context(RestCatalogServer(self._folder / "rest"))

"""A real Hive metastore of the tests' own, on an embedded Derby database, from pinned jars."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from lakehouse_dagster.local.engines import MavenJar
from lakehouse_dagster.local.fetch import prefetch
from lakehouse_dagster.local.ports import free_ports
from tests.support.java_service import JavaService
from tests.support.maven_jars import fetched, listed

_CLIENTS = {
    "flink-1.20": MavenJar(
        group="org.apache.flink",
        artifact="flink-sql-connector-hive-2.3.10_2.12",
        version="1.20.0",
        sha256="1985baabcc81bcc41d940c47a486451e3d2da32e43f0c5e06282f5ce7acc2913",
    ),
    "flink-2.0": MavenJar(
        group="org.apache.hive",
        artifact="hive-exec",
        version="2.3.10",
        sha256="dfee92fe36317d303286ed5df1ce1fb8cdf32ffc55f1df4fc7eb88713baab223",
    ),
}
_OPENED = ("lang", "net", "util", "util.concurrent", "io", "nio", "lang.reflect")


def client_jar(engine: str) -> Path:
    """The jar with which an engine speaks to a metastore."""
    return fetched([_CLIENTS[engine]])[0]


class HiveMetastore(JavaService):
    """A metastore of Hive 3.1; its own warehouse, which only ``default`` is in, is below it."""

    name = "hive-metastore"
    patience_seconds = 120.0

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        self._java = str(prefetch(engine).java.executable)
        self._jars = [str(jar) for jar in fetched(listed("hive_metastore"))]
        (self.port,) = free_ports(1)

    @property
    def uri(self) -> str:
        return f"thrift://{self.address}"

    def prepare(self) -> None:
        own = f"file://{self._folder}/warehouse"
        settings = {
            "javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={self._folder}/derby;create=true"
            ),
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "metastore.warehouse.dir": own,
            "metastore.thrift.uris": self.uri,
            "metastore.thrift.port": str(self.port),
            "metastore.housekeeping.threads.on": "false",
            "metastore.compactor.initiator.on": "false",
            "metastore.event.db.notification.api.auth": "false",
            # The default of this one is in a jar of Hive that is not here.
            "metastore.expression.proxy": (
                "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
            ),
            "metastore.task.threads.always": (
                "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
            ),
            "hadoop.tmp.dir": f"{self._folder}/tmp",
        }
        root = ElementTree.Element("configuration")
        for name, value in settings.items():
            entry = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(entry, "name").text = name
            ElementTree.SubElement(entry, "value").text = value
        ElementTree.ElementTree(root).write(self._folder / "metastore-site.xml")

    def command(self) -> list[str]:
        return [
            *(self._java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
            f"-Dderby.stream.error.file={self._folder}/derby.log",
            *("-cp", ":".join([str(self._folder), *self._jars])),
            *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)),
        ]

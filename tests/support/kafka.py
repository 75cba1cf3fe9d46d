"""A real Kafka broker of the tests' own (KRaft, one node), from jars of Maven, each pinned.

``kafka-jars.txt`` lists them. They are kept in the cache of the local stack, as is the connector
that Flink reads Kafka with.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from lakehouse_dagster.local.engines import MavenJar
from lakehouse_dagster.local.fetch import prefetch
from lakehouse_dagster.local.ports import HOST, free_ports
from tests.support.java_service import JavaService
from tests.support.maven_jars import fetched, listed

_SECONDS = 60.0
_CONNECTORS = {
    "flink-1.20": (
        "3.2.0-1.19",
        "c3eda3cd295c1cdfb1dcbae4e0fd318d82e2dd6f073328e30cd79f1d9a990775",
    ),
    "flink-2.0": (
        "4.0.1-2.0",
        "c7127a6518fba5d6b75eb4692229192e7147ea378e69c7b7cf16d0494057b0c3",
    ),
}


def connector(engine: str) -> Path:
    """The jar with which Flink reads and writes Kafka."""
    version, sha256 = _CONNECTORS[engine]
    jar = MavenJar("org.apache.flink", "flink-sql-connector-kafka", version, sha256)
    return fetched([jar])[0]


def broker_jars() -> list[Path]:
    """The jars of the broker."""
    return fetched(listed("kafka"))


class KafkaBroker(JavaService):
    """A broker that makes topics of two partitions by itself."""

    name = "kafka"
    patience_seconds = _SECONDS

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        self._java = str(prefetch(engine).java.executable)
        self._class_path = ":".join(str(jar) for jar in broker_jars())
        self._properties = folder / "server.properties"
        self.port, self._controller_port = free_ports(2)

    def prepare(self) -> None:
        self._properties.write_text(self._settings())
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_log = ("format", "-t", cluster_id, "-c", str(self._properties))
        done = subprocess.run(
            self._java_command("kafka.tools.StorageTool", *format_log),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def command(self) -> list[str]:
        return self._java_command("kafka.Kafka", str(self._properties))

    def _settings(self) -> str:
        return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{HOST}:{self._controller_port}
listeners=PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self._controller_port}
advertised.listeners=PLAINTEXT://{HOST}:{self.port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={self._folder}/data
num.partitions=2
auto.create.topics.enable=true
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

    def _java_command(self, main: str, *arguments: str) -> list[str]:
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [self._java, *options, "-cp", self._class_path, main, *arguments]

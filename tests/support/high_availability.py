"""A Flink with high availability: a ZooKeeper beside it remembers its jobs and who leads.

The ZooKeeper server comes with Flink itself (shaded into ``flink-dist``), so nothing is fetched.
"""

from __future__ import annotations

from pathlib import Path

from lakehouse_dagster.local.fetch import InstalledEngine, prefetch
from lakehouse_dagster.local.ports import HOST, free_ports
from tests.support.java_service import JavaService

_MAIN = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain"
_SESSION_MS = 4000
"""A killed JobManager counts as the leader for so long (Flink's default is a minute)."""


class ZooKeeper(JavaService):
    """A single ZooKeeper server."""

    name = "zookeeper"
    patience_seconds = 30.0

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        self._installed = prefetch(engine)
        (self.port,) = free_ports(1)

    def prepare(self) -> None:
        (self._folder / "zoo.cfg").write_text(
            f"dataDir={self._folder}/data\nclientPort={self.port}\nclientPortAddress={HOST}\n"
            f"tickTime=500\nminSessionTimeout=1000\n"
        )

    def command(self) -> list[str]:
        return [
            str(self._installed.java.executable),
            *("-Xmx64m", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false"),
            *("-cp", _class_path(self._installed)),
            *(_MAIN, str(self._folder / "zoo.cfg")),
        ]

    def options(self, storage: Path) -> dict[str, str]:
        """What a Flink needs to be highly available by this ZooKeeper."""
        return {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": f"file://{storage}",
            "high-availability.zookeeper.quorum": self.address,
            "high-availability.zookeeper.path.root": f"/{storage.name}",
            "high-availability.zookeeper.client.session-timeout": f"{_SESSION_MS}ms",
        }


def _class_path(installed: InstalledEngine) -> str:
    return ":".join(str(jar) for jar in sorted(installed.lib.glob("*.jar")))

"""A Flink with high availability: a ZooKeeper beside it remembers its jobs and who leads.

The ZooKeeper server comes with Flink itself (shaded into ``flink-dist``), so nothing is fetched.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from lakehouse_dagster.local.fetch import InstalledEngine, prefetch
from lakehouse_dagster.local.ports import HOST, free_ports

_MAIN = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain"
_SESSION_MS = 4000
"""A killed JobManager counts as the leader for so long (Flink's default is a minute)."""


class ZooKeeper:
    """A single ZooKeeper server; a context manager that ends it."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder
        self._installed = prefetch(engine)
        (self.port,) = free_ports(1)

    @property
    def quorum(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> ZooKeeper:
        self._folder.mkdir(parents=True)
        (self._folder / "zoo.cfg").write_text(
            f"dataDir={self._folder}/data\nclientPort={self.port}\nclientPortAddress={HOST}\n"
            f"tickTime=500\nminSessionTimeout=1000\n"
        )
        with (self._folder / "zookeeper.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self._installed.java.executable),
                    *("-Xmx64m", "-XX:+UseSerialGC", "-Dzookeeper.admin.enableServer=false"),
                    *("-cp", _class_path(self._installed)),
                    *(_MAIN, str(self._folder / "zoo.cfg")),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, (self._folder / "zookeeper.log").read_text()
                assert time.monotonic() < deadline, "ZooKeeper does not listen"
                time.sleep(0.1)

    def options(self, storage: Path) -> dict[str, str]:
        """What a Flink needs to be highly available by this ZooKeeper."""
        return {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": f"file://{storage}",
            "high-availability.zookeeper.quorum": self.quorum,
            "high-availability.zookeeper.path.root": f"/{storage.name}",
            "high-availability.zookeeper.client.session-timeout": f"{_SESSION_MS}ms",
        }


def _class_path(installed: InstalledEngine) -> str:
    return ":".join(str(jar) for jar in sorted(installed.lib.glob("*.jar")))

"""A REST catalog server of the tests' own: the one that Paimon's own tests use, from its test jar.

It serves the whole protocol and commits real tables to a local folder. A few lines of Java, given
to the JDK as source, start it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from lakehouse_dagster.local.fetch import prefetch
from tests.support.java_service import JavaService
from tests.support.maven_jars import fetched, listed

TOKEN = "tests-rest-token"
WAREHOUSE = "rest_lake"

_SOURCE = Path(__file__).with_name("PaimonRestServer.java")


class RestCatalogServer(JavaService):
    """A server of one warehouse, whose tables are in ``folder/data``."""

    name = "rest-catalog"
    patience_seconds = 90.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        engine = prefetch("flink-2.0")
        self._java = _compiling(Path(engine.java.executable))
        # First the server's own: the Hadoop jar brings an old okio along.
        self._class_path = [
            *fetched(listed("paimon_rest")),
            *engine.jars,
            *sorted(engine.lib.glob("*.jar")),
        ]

    @property
    def uri(self) -> str:
        return f"http://{self.address}"

    def prepare(self) -> None:
        (self._folder / "data").mkdir()

    def command(self) -> list[str]:
        return [
            *(str(self._java), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", ":".join(str(jar) for jar in self._class_path), str(_SOURCE)),
            *(f"{self._folder}/data", WAREHOUSE, TOKEN),
        ]

    def _wait_until_it_listens(self) -> None:
        """It chooses its port by itself, and says which."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            said = self._log.read_text(errors="replace")
            if found := re.search(r"listens at http://[^:]+:(\d+)/", said):
                self.port = int(found[1])
                return
            assert self._process.poll() is None, said[-3000:]
            assert time.monotonic() < deadline, f"{self.name} does not listen: {said[-3000:]}"
            time.sleep(0.1)


def _compiling(java: Path) -> Path:
    """A Java that runs source files: the local stack's, or that of the JDK on PATH."""
    modules = subprocess.run([str(java), "--list-modules"], capture_output=True, text=True)
    if "jdk.compiler" in modules.stdout:
        return java
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("a Java that can compile (a JDK, not only a runtime) is not installed")
    return Path(compiler).resolve().with_name("java")

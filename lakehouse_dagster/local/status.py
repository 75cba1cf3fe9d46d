"""What a local stack is and whether it runs, as it is told to others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessStatus:
    """One service of the stack; ``resident_bytes`` is the memory that it holds now."""

    name: str
    pid: int | None
    running: bool
    resident_bytes: int | None


@dataclass(frozen=True)
class StackStatus:
    """What a stack is and whether it runs.

    ``rest_url`` and ``sql_gateway_url`` are empty as long as no stack was started in the folder;
    ``adopted`` tells that an ``up`` found everything running and started nothing.
    """

    engine: str
    folder: Path
    rest_url: str
    sql_gateway_url: str
    warehouse: Path
    checkpoints: Path
    savepoints: Path
    processes: tuple[ProcessStatus, ...]
    adopted: bool = False

    @property
    def running(self) -> bool:
        """Whether every service runs."""
        return all(process.running for process in self.processes)

    @property
    def resident_bytes(self) -> int:
        """The memory of all services together."""
        return sum(process.resident_bytes or 0 for process in self.processes)

"""What a stack remembers in its folder: its ports, its settings and its processes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.filesystem import write_atomically
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.settings import Ports, StackSettings

STATE_FILE = "stack.json"
_FORMAT = 1


@dataclass(frozen=True)
class ProcessRecord:
    """A process that was started: its pid, and when it started by the system's own account."""

    pid: int
    started_at_seconds: float


@dataclass(frozen=True)
class StackState:
    """Everything that another process needs to find this stack and to complete or stop it."""

    stack_id: str
    engine: str
    ports: Ports
    settings: StackSettings
    processes: Mapping[Service, ProcessRecord] = field(default_factory=dict)

    def with_process(self, service: Service, record: ProcessRecord) -> StackState:
        """The state with one more process."""
        return dataclasses.replace(self, processes={**self.processes, service: record})


def read_state(folder: Path) -> StackState | None:
    """The state in the folder, or None when no stack was ever started there.

    Raises StackError when the file cannot be understood.
    """
    path = folder / STATE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        return StackState(
            stack_id=content["stack_id"],
            engine=content["engine"],
            ports=Ports(**content["ports"]),
            settings=StackSettings(**content["settings"]),
            processes={
                Service(name): ProcessRecord(**record)
                for name, record in content["processes"].items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{path} is not the state file of a stack of this version ({error}).",
            remedy="Stop the processes that were started there by hand and remove the file.",
        ) from error


def write_state(folder: Path, state: StackState) -> None:
    """Replace the state in the folder; readers see the old one or the new one, whole."""
    content = {
        "format": _FORMAT,
        "stack_id": state.stack_id,
        "engine": state.engine,
        "ports": dataclasses.asdict(state.ports),
        "settings": dataclasses.asdict(state.settings),
        "processes": {
            service.value: dataclasses.asdict(record) for service, record in state.processes.items()
        },
    }
    write_atomically(folder / STATE_FILE, json.dumps(content, indent=2) + "\n")

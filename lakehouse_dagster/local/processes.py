"""Finding, starting and ending the processes of a stack, and never anybody else's.

A pid alone says nothing: the system gives the pids of dead processes to new ones. A process is
ours when it also started at the time that was written down, or when it carries our marker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psutil

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.services import Service, marker
from lakehouse_dagster.local.state import ProcessRecord

if TYPE_CHECKING:
    from lakehouse_dagster.local.services import Launch
    from lakehouse_dagster.local.state import StackState

# psutil computes start times from the time of boot, which moves a little when the clock is set.
_START_TIME_TOLERANCE_SECONDS = 1.0

_TERM_WAIT_SECONDS = 15.0
_KILL_WAIT_SECONDS = 10.0


def start(launch: Launch) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that it outlives us and our terminal."""
    with launch.output_file.open("wb") as output:
        return subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=launch.environment,
            cwd=launch.working_directory,
            start_new_session=True,
        )


def record_of(pid: int) -> ProcessRecord:
    """What to write down of a process that was just started; psutil.Error when it is gone."""
    return ProcessRecord(pid, psutil.Process(pid).create_time())


def alive(record: ProcessRecord) -> psutil.Process | None:
    """The process that was written down, or None when it ended (its pid may be someone else's)."""
    try:
        process = psutil.Process(record.pid)
        same = (
            abs(process.create_time() - record.started_at_seconds) <= _START_TIME_TOLERANCE_SECONDS
        )
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def running(state: StackState) -> dict[Service, psutil.Process]:
    """The processes of the stack that run now, also those that nobody lived to write down."""
    found: dict[Service, psutil.Process] = {}
    for service, record in state.processes.items():
        process = alive(record)
        if process is not None:
            found[service] = process
    unseen = {marker(state.stack_id, service): service for service in Service}
    for service in found:
        del unseen[marker(state.stack_id, service)]
    if unseen:
        found.update(_marked(unseen))
    return found


def end(processes: Iterable[psutil.Process]) -> None:
    """Ask the processes to end, wait, and kill those that did not.

    Raises StackError when one outlives even that.
    """
    ending = list(processes)
    for process in ending:
        _signal(process, kill=False)
    _, left = psutil.wait_procs(ending, timeout=_TERM_WAIT_SECONDS)
    for process in left:
        _signal(process, kill=True)
    _, left = psutil.wait_procs(left, timeout=_KILL_WAIT_SECONDS)
    left = [process for process in left if _still_runs(process)]
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise StackError(f"Processes {pids} of the stack did not end, not even when killed.")


def _signal(process: psutil.Process, *, kill: bool) -> None:
    # psutil itself refuses to signal a pid that was given to another process meanwhile.
    try:
        process.kill() if kill else process.terminate()
    except psutil.NoSuchProcess:
        return


def _still_runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _marked(markers: dict[str, Service]) -> dict[Service, psutil.Process]:
    found: dict[Service, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()
            service = next((markers[item] for item in arguments if item in markers), None)
            if service is not None and process.status() != psutil.STATUS_ZOMBIE:
                found[service] = process
        except psutil.Error:
            continue
    return found

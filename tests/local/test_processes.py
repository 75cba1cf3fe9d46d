"""Whose process a pid is, and ending ours alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from lakehouse_dagster.local import processes
from lakehouse_dagster.local.services import Service, marker
from lakehouse_dagster.local.settings import Ports, StackSettings
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.local.state import ProcessRecord, StackState, read_state, write_state

Sleeper = Callable[..., "subprocess.Popen[bytes]"]


def _state(records: dict[Service, ProcessRecord]) -> StackState:
    return StackState("0123abcd", "flink-2.0", Ports(1, 2, 3), StackSettings(), records)


def test_a_process_is_known_by_pid_and_start_time(sleeper: Sleeper) -> None:
    record = processes.record_of(sleeper().pid)
    found = processes.alive(record)
    assert found is not None
    assert found.pid == record.pid
    earlier = ProcessRecord(record.pid, record.started_at_seconds - 60)
    assert processes.alive(earlier) is None


def test_a_dead_process_that_nobody_waited_for_does_not_run(sleeper: Sleeper) -> None:
    process = sleeper()
    record = processes.record_of(process.pid)
    process.kill()
    deadline = time.monotonic() + 10
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes.alive(record) is None


def test_a_pid_that_was_given_to_another_process_is_never_killed(
    sleeper: Sleeper, tmp_path: Path
) -> None:
    stranger = sleeper()
    record = processes.record_of(stranger.pid)
    reused = ProcessRecord(record.pid, record.started_at_seconds - 3600)
    write_state(tmp_path, _state(dict.fromkeys(Service, reused)))
    stack = LocalStack(tmp_path)
    assert [process.running for process in stack.status().processes] == [False] * 3
    stack.down()
    assert stranger.poll() is None
    state = read_state(tmp_path)
    assert state is not None
    assert state.processes == {}


def test_down_ends_the_recorded_processes_and_no_other(sleeper: Sleeper, tmp_path: Path) -> None:
    ours, stranger = sleeper(), sleeper()
    write_state(tmp_path, _state({Service.JOB_MANAGER: processes.record_of(ours.pid)}))
    LocalStack(tmp_path).down()
    assert not psutil.pid_exists(ours.pid)
    assert stranger.poll() is None


def test_down_finds_processes_that_nobody_lived_to_write_down(
    sleeper: Sleeper, tmp_path: Path
) -> None:
    ours = sleeper(marker("0123abcd", Service.TASK_MANAGER))
    other_stack = sleeper(marker("4567ffff", Service.TASK_MANAGER))
    write_state(tmp_path, _state({}))
    stack = LocalStack(tmp_path)
    assert [p.pid for p in stack.status().processes] == [None, ours.pid, None]
    stack.down()
    assert not psutil.pid_exists(ours.pid)
    assert other_stack.poll() is None


def test_a_process_that_ignores_the_request_to_end_is_killed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(processes, "_TERM_WAIT_SECONDS", 0.3)
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        processes.end([psutil.Process(stubborn.pid)])
        assert not psutil.pid_exists(stubborn.pid)

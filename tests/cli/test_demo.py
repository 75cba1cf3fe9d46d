"""``lakehouse demo``, killed, ended and run to its end: nothing is left running or lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from definitions import lake
from definitions.event_log import EventLog
from definitions.truth import EXPECTED
from lakehouse_dagster import PaimonCatalog, SystemDatabase
from lakehouse_dagster.local.ports import free_ports
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.system_db import Incarnation

ROOT = Path(__file__).parent.parent.parent
HEADLESS = ("--headless", "--json", "--timeout", "400")
MEMORY_BYTES_MAX = 1.5 * 1024**3

pytestmark = pytest.mark.chaos


def processes_of(folder: Path) -> dict[int, str]:
    """Everything that runs for a demo's folder, by its arguments or its environment."""
    ours = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    found = {}
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            if process.pid not in ours and any(str(folder) in word for word in words):
                found[process.pid] = " ".join(process.cmdline())[:200]
        except psutil.Error:
            continue
    return found


@dataclass
class RunningDemo:
    """A headless demo in a process of its own."""

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path
    out: Path
    peak_bytes: int = 0
    services: set[str] = field(default_factory=set)

    def wait_for(self, text: str, seconds: float) -> None:
        """Wait until the demo has said this on stderr."""
        deadline = time.monotonic() + seconds
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"no {text!r}: {self.log.read_text()}"
            time.sleep(0.2)

    def ended(self, seconds: float) -> int:
        """Wait until it has ended, by itself or by a signal; its exit code."""
        return self.process.wait(seconds)

    def watch_memory(self) -> None:
        """Note the largest resident memory of the stack's services until the demo ends."""
        stack = LocalStack(self.folder / "stack")
        while self.process.poll() is None:
            status = stack.status()
            self.peak_bytes = max(self.peak_bytes, status.resident_bytes)
            self.services.update(p.name for p in status.processes if p.running)
            time.sleep(0.5)


@contextmanager
def demo(folder: Path, name: str, *options: str) -> Iterator[RunningDemo]:
    """Start a demo in the folder; it is ended for certain at the end, with all that it started."""
    log, out = folder.parent / f"{name}.err", folder.parent / f"{name}.out"
    with log.open("wb") as errors, out.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lakehouse_dagster.cli",
                "demo",
                "--folder",
                str(folder),
                *options,
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield RunningDemo(folder, process, log, out)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A demo's folder; whatever still runs for it at the end is killed."""
    folder = tmp_path / "demo"
    try:
        yield folder
    finally:
        for pid in processes_of(folder):
            try:
                psutil.Process(pid).kill()
            except psutil.Error:
                continue


def until_answers(url: str, seconds: float = 60) -> None:
    """Wait until a web page answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.3)


def incarnations(folder: Path) -> dict[str, tuple[Incarnation, ...]]:
    """All lives of every job, newest first, from the demo's system database."""
    demo_lake = replace(
        lake,
        catalog=PaimonCatalog(str(LocalStack(folder / "stack").status().warehouse)),
        system_database=SystemDatabase(f"sqlite:///{folder / 'dagster' / 'lakehouse.db'}"),
    )
    memory = demo_lake.load("definitions/sql", base_folder=ROOT).runtime.memory
    return {record.name: memory.incarnations(record.name) for record in memory.all()}


def test_a_killed_an_ended_and_a_finished_demo_in_one_folder(folder: Path) -> None:
    # Killed: nobody could clean up.
    with demo(folder, "killed", *HEADLESS) as killed:
        killed.wait_for("First snapshot after", 240)
        killed.process.kill()
        killed.ended(10)
    left = processes_of(folder)
    flink = {pid for pid, command in left.items() if "-Dlakehouse.stack=" in command}
    assert len(flink) == 3
    assert any("dagster" in command for command in left.values())

    # The next one, with the web page, takes over the running Flink and ends the other's Dagster.
    (port,) = free_ports(1)
    with demo(folder, "ended", "--port", str(port)) as ended:
        ended.wait_for(f"Dagster: http://localhost:{port}", 120)
        until_answers(f"http://localhost:{port}/server_info")
        assert set(left) & set(processes_of(folder)) == flink
        ended.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        ended.process.send_signal(signal.SIGINT)  # impatience does not leave half of it running
        assert ended.ended(60) == 0
    assert ended.log.read_text().endswith("Taking everything down.\nStopped.\n")
    assert processes_of(folder) == {}
    lives = incarnations(folder)
    before = {name: len(numbers) for name, numbers in lives.items()}

    # The last one goes on where they stopped, and proves that every row is right.
    with demo(folder, "finished", *HEADLESS) as finished:
        watcher = threading.Thread(target=finished.watch_memory)
        watcher.start()
        finished.wait_for("Flink is up", 180)
        with demo(folder, "refused", *HEADLESS) as refused:
            assert refused.ended(30) == 1
        assert refused.log.read_text() == (
            f"Error: A demo runs in {folder} already. "
            "End it first, or choose another folder with --folder.\n"
        )
        code = finished.ended(630)
        watcher.join()
    assert code == 0, finished.log.read_text()
    assert processes_of(folder) == {}

    summary = json.loads(finished.out.read_text().splitlines()[-1])
    assert list(summary) == ["first_snapshot_seconds", "tables", "accuracy"]
    assert summary["accuracy"] == "equal"
    assert 0 < summary["first_snapshot_seconds"] < 200
    assert set(summary["tables"]) == set(EXPECTED)
    for table, numbers in summary["tables"].items():
        assert set(numbers) == {"snapshot", "rows", "materializations"}, table
        assert min(numbers.values()) >= 1, (table, numbers)

    # Every job went on from its newest checkpoint, if it had one; none lives twice.
    after = incarnations(folder)
    assert len(after) == len(EXPECTED)
    assert any(numbers[0].restored_from for numbers in after.values())
    for name, numbers in after.items():
        assert len(numbers) == before.get(name, 0) + 1, name
        checkpoint = lives[name][0].checkpoint_path if lives.get(name) else None
        assert checkpoint is None or numbers[0].restored_from is not None, name
    # One simulator wrote: the rounds that are in the log are those of one business.
    last = EventLog(folder / "data").last_round()
    assert last is not None
    assert last.number >= 2

    assert finished.services == {"jobmanager", "taskmanager", "sql-gateway"}
    print(f"peak resident memory of the three JVMs: {finished.peak_bytes / 1024**2:.0f} MiB")
    assert finished.peak_bytes <= MEMORY_BYTES_MAX

"""Plays faults, each in a process of its own with a time limit, and writes down how they went."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from lakehouse_dagster.local.stack import LocalStack
from tests.chaos.ledger import Entry, Ledger, Outcome
from tests.chaos.plan import PlannedFault
from tests.chaos.scenario import scenario_of
from tests.chaos.scene import NotRunnableError, Scene
from tests.chaos.stack import stack_of
from tests.support.processes import Forked

_BLOCK = 40
"""So many faults of the plan at a time: those side by side first, then those that go alone."""


def run(
    faults: Sequence[PlannedFault],
    stack: LocalStack,
    folder: Path,
    ledger: Ledger,
    parallel: int,
    *,
    again: bool = False,
) -> None:
    """Play all faults that the ledger lacks, and those that failed ``again``."""
    left = [fault for fault in faults if ledger.lacks(fault, again=again)]
    for first in range(0, len(left), _BLOCK):
        block = left[first : first + _BLOCK]
        alone = [f for f in block if scenario_of(f.row, f.variant).cluster_wide]
        with ThreadPoolExecutor(parallel) as pool:
            beside = [fault for fault in block if fault not in alone]
            for entry in pool.map(lambda fault: play(fault, stack, folder), beside):
                _note(entry, ledger)
        for fault in alone:
            _note(play(fault, stack, folder), ledger)


def _note(entry: Entry, ledger: Ledger) -> None:
    ledger.append(entry)
    detail = f" {entry.detail}" if entry.outcome is not Outcome.PASSED else ""
    print(
        f"#{entry.index:<4} {entry.seconds:6.1f} s  {entry.outcome.value:<8} {entry.row}: "
        f"{entry.variant} [{entry.moment}]{detail}",
        flush=True,
    )


def play(fault: PlannedFault, stack: LocalStack, folder: Path) -> Entry:
    """Play one fault in a process of its own; its folder stays when it does not pass."""
    limit = scenario_of(fault.row, fault.variant).limit_seconds
    place = folder / f"{fault.seed}-{fault.index:04d}-{fault.row.name.lower()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = time.monotonic()
    process = Forked(_play, place / "fault.log", fault, place, stack.folder, limit)
    process.wait(limit + 20)
    outcome, moment, detail = _told(place)
    if process.returncode is None:
        _dump_stacks(process.pid, place)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        outcome, detail = Outcome.HUNG, f"after {limit:g} s; stacks in {place}"
    _kill_left_over(place)
    if outcome is Outcome.PASSED or outcome is Outcome.NOT_RUNNABLE:
        shutil.rmtree(place, ignore_errors=True)
    else:
        detail = f"{detail} (logs in {place})"
    seconds = time.monotonic() - began
    return Entry.of(fault, outcome, moment=moment, seconds=seconds, detail=detail)


def _play(fault: PlannedFault, place: Path, stack_folder: Path, limit_seconds: float) -> None:
    """What the fault's process does."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    faulthandler.dump_traceback_later(limit_seconds, exit=False)
    stack = stack_of(stack_folder, fault.engine)
    scenario = scenario_of(fault.row, fault.variant)
    if scenario.cluster_wide:
        stack.up()
    scene = Scene(place / "lab", stack, fault.random())
    outcome, detail = Outcome.PASSED, ""
    try:
        with scene:
            try:
                scenario.play(scene)
                scene.prove()
            finally:
                if scenario.cluster_wide:
                    stack.up()
    except NotRunnableError as error:
        outcome, detail = Outcome.NOT_RUNNABLE, str(error)
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        outcome, detail = Outcome.FAILED, f"{type(error).__name__}: {error}"[:600]
    told = {"outcome": outcome.value, "moment": scene.moment, "detail": detail}
    (place / "outcome.json").write_text(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # threads of proxies may still wait for something that never comes


def _told(place: Path) -> tuple[Outcome, str, str]:
    try:
        told = json.loads((place / "outcome.json").read_text())
    except (OSError, ValueError):
        return Outcome.HUNG, "", "its process ended without a word"
    return Outcome(told["outcome"]), told["moment"], told["detail"]


def _actors(place: Path) -> list[psutil.Process]:
    """The processes that the fault wrote down and that still live."""
    found = []
    for line in _lines(place / "lab" / "pids"):
        try:
            process = psutil.Process(int(line))
            if process.create_time() >= place.stat().st_mtime - 3600 and _is_ours(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_ours(process: psutil.Process) -> bool:
    return "multiprocessing" in " ".join(process.cmdline())


def _lines(path: Path) -> Iterable[str]:
    return path.read_text().split() if path.exists() else ()


def _dump_stacks(pid: int, place: Path) -> None:
    """Every process writes what all its threads do into its own log."""
    for one in (pid, *(process.pid for process in _actors(place))):
        try:
            os.kill(one, signal.SIGCONT)
            os.kill(one, signal.SIGUSR1)
        except ProcessLookupError:
            continue
    time.sleep(1.0)


def _kill_left_over(place: Path) -> None:
    for process in _actors(place):
        try:
            process.kill()
        except psutil.Error:
            continue

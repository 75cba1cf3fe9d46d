"""What the processes of ``tests.support.processes`` do: a supervisor, or one verb once."""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import Clock, Runtime, this_process, utc_now
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, claim, look
from tests.support import code_points
from tests.support.laboratory import QUICK, Laboratory

UNEXPECTED = "UNEXPECTED"
"""Begins the line of an exception that is not one of ours: no such one may reach a caller."""


@dataclass(frozen=True)
class Part:
    """What one process does, and how it differs from a plain one."""

    what: str
    """``supervise`` until told to end, else a verb."""
    name: str
    stop_file: str
    laboratory: Mapping[str, str]
    policy: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    scripts: tuple[str, ...] = ()
    read_timeout_seconds: float = 30.0
    clock_offset_seconds: float = 0.0
    tick_seconds: float = 0.3
    halts_at: str | None = None
    """A point of ``code_points``."""
    dies_at: str | None = None


def supervise_once(runtime: Runtime, cursor: SupervisorCursor, name: str) -> Look:
    """What the sensor and the run that it asks for do, one after the other."""
    seen = look(runtime, cursor)
    if seen.actions:
        claim(runtime, seen.actions)
        work = [(action.job, verb(action.verb.value)) for action in seen.actions]
        for applied in apply(runtime, work, holder=this_process(name)):
            print(name, seen.actions, applied.outcome or repr(applied.error))
    return seen


def play(part: Part) -> None:
    """The whole life of the process."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    for noisy in ("httpx", "httpcore", "alembic", "pypaimon"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    lab = Laboratory.opened(part.laboratory)
    if part.halts_at:
        code_points.at(part.halts_at, lambda: code_points.halt(lab.database_file))
    if part.dies_at:
        code_points.at(part.dies_at, code_points.die)
    if part.what == "supervise":
        _supervise(lab, part)
    else:
        work = [(lab.job, verb(part.what))]
        print(apply(_runtime(lab, part), work, holder=this_process(part.name)))


def _runtime(lab: Laboratory, part: Part) -> Runtime:
    offset = timedelta(seconds=part.clock_offset_seconds)
    return lab.runtime(
        *map(Path, part.scripts),
        policy=replace(QUICK, **part.policy),
        clock=Clock(now=lambda: utc_now() + offset),
        environ=part.environ,
        read_timeout_seconds=part.read_timeout_seconds,
    )


def _supervise(lab: Laboratory, part: Part) -> None:
    """Tick until told to end; as under Dagster's daemon a tick that fails is no end."""
    runtime, cursor, said = _runtime(lab, part), SupervisorCursor(), ""
    while not Path(part.stop_file).exists():
        try:
            seen = supervise_once(runtime, cursor, part.name)
            cursor = seen.cursor
            if seen.summary() != said:
                said = seen.summary()
                print(f"{utc_now():%H:%M:%S.%f} {part.name} sees {said}", flush=True)
        except LakehouseError as error:
            print(f"{part.name}: the tick failed: {error!r}", flush=True)
        except Exception:  # noqa: BLE001
            print(f"{UNEXPECTED} {part.name}: {traceback.format_exc()}", flush=True)
        sys.stdout.flush()
        time.sleep(part.tick_seconds)

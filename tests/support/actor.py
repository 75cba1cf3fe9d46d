"""What the processes of ``tests.support.processes`` run: ``actor WHAT NAME STOP_FILE SETTINGS``."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import Runtime, this_process
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, claim, look
from tests.support.laboratory import Laboratory


def supervise_once(runtime: Runtime, cursor: SupervisorCursor, name: str) -> Look:
    """What the sensor and the run that it asks for do, one after the other."""
    seen = look(runtime, cursor)
    if seen.actions:
        claim(runtime, seen.actions)
        work = [(action.job, verb(action.verb.value)) for action in seen.actions]
        for applied in apply(runtime, work, holder=this_process(name)):
            print(name, seen.actions, applied.outcome or repr(applied.error))
    return seen


def main() -> None:
    what, name, stop_file, settings = sys.argv[1:5]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for noisy in ("httpx", "httpcore", "alembic", "pypaimon"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    lab = Laboratory.opened(json.loads(settings))
    runtime = lab.runtime()
    if what == "start":
        print(apply(runtime, [(lab.job, verb("start"))], holder=this_process(name)))
        return
    cursor = SupervisorCursor()
    while not Path(stop_file).exists():
        cursor = supervise_once(runtime, cursor, name).cursor
        time.sleep(0.3)


if __name__ == "__main__":
    main()

"""The processes of the soak test: one supervises the jobs, one maintains the tables."""

from __future__ import annotations

import logging
import time
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance import case
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.streaming.runtime import this_process, utc_now
from lakehouse_dagster.streaming.supervise import SupervisorCursor
from tests.soak.lake import POLICY, WRITERS, Place
from tests.support.actor import UNEXPECTED, supervise_once
from tests.support.processes import Forked

TICK_SECONDS = 1.0


class Worker:
    """One of the two, started, killed and ended."""

    def __init__(self, what: str, place: Place) -> None:
        self.log = place.path / f"{what}.log"
        self._stop_file = place.path / f"{what}.stop"
        self._stop_file.unlink(missing_ok=True)
        target = {"supervisor": _supervise, "maintainer": _maintain}[what]
        # A copy, without what this process has opened already.
        self._process = Forked(target, self.log, replace(place), str(self._stop_file))

    def kill(self) -> None:
        """``kill -9``."""
        self._process.send_signal(9)
        self._process.wait(10)

    def end(self, seconds: float = 180.0) -> bool:
        """Let it end by itself; False if it had to be killed."""
        self._stop_file.touch()
        self._process.wait(seconds)
        ended = self._process.returncode is not None
        self.kill()
        return ended

    def unexpected(self) -> list[str]:
        """Exceptions that are none of ours."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(UNEXPECTED)]


def _supervise(place: Place, stop_file: str) -> None:
    _logging()
    runtime, cursor = place.runtime(), SupervisorCursor()
    while not Path(stop_file).exists():
        try:
            cursor = supervise_once(runtime, cursor, "supervisor").cursor
        except LakehouseError as error:
            print(f"the tick failed: {error!r}", flush=True)
        except Exception:  # noqa: BLE001
            print(f"{UNEXPECTED} {traceback.format_exc()!r}", flush=True)
        time.sleep(TICK_SECONDS)


def _maintain(place: Place, stop_file: str) -> None:
    """What fails, or whose process is killed, is tried again soon, not after five minutes."""
    _logging()
    case._FIRST_BACKOFF = timedelta(seconds=10)
    case._LONGEST_BACKOFF = timedelta(seconds=30)
    keeper = Keeper(place.runtime())
    while not Path(stop_file).exists():
        try:
            done = maintain(keeper, POLICY, WRITERS, holder=this_process("maintainer"))
            for record in done.done:
                print(f"{utc_now():%H:%M:%S} {record.table_name} {record.kind} {record.state.value}"
                      f" {record.error or ''}", flush=True)  # fmt: skip
            for failure in done.failures:
                print(f"{utc_now():%H:%M:%S} {failure.tables} {failure.error!r}", flush=True)
        except LakehouseError as error:
            print(f"the tick failed: {error!r}", flush=True)
        except Exception:  # noqa: BLE001
            print(f"{UNEXPECTED} {traceback.format_exc()!r}", flush=True)
        time.sleep(TICK_SECONDS)


def _logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
    for noisy in ("httpx", "httpcore", "alembic", "pypaimon"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

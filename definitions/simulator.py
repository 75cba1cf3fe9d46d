"""Writes the work-order story's input, round after round, as files that Flink reads as they appear.

    python -m definitions.simulator FOLDER --seed 1                 until stopped
    python -m definitions.simulator FOLDER --rounds 20 --interval 0 twenty rounds at once

Set ``LAKE_INPUT`` to ``FOLDER/input`` for the scripts in ``definitions/sql``. Started again with
the same settings, it goes on with the next round.

Disk: after ``fast_rounds`` rounds (ten minutes) the simulator slows down to one round a minute,
after ``orders_max`` orders only existing ones change, and at ``input_bytes_max`` it stops writing.
Input and log together were measured at 26 MB an hour at first, which is 2 MB an hour later; the
tables, with one hour of snapshots (Paimon's default), at 170 MB an hour at the fast pace.

No input file is ever deleted: the file source's state holds files that it has still to read, and a
job restored from an older savepoint reads them again, so a missing file would fail the job. The
source remembers the path of every file it has seen, which is why rounds are few, files not tiny.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from definitions.business import KINDS, Business, BusinessSettings
from definitions.event_log import CommittedRound, EventLog
from lakehouse_dagster.errors import ConfigurationError

HOLD_EXPIRES_SECONDS = 600.0
"""A hold that is older was left behind by a process that died."""


@dataclass(frozen=True)
class Pace:
    """How fast rounds follow each other in real time, and when writing ends.

    ``input_bytes_max`` bounds the input files; the event log takes the same again.
    """

    interval_seconds: float = 5.0
    fast_rounds: int = 120
    slow_interval_seconds: float = 60.0
    input_bytes_max: int = 512 * 1024 * 1024

    def pause_seconds(self, after_round: int) -> float:
        """How long to wait after that round before the next."""
        fast = after_round + 1 < self.fast_rounds
        return self.interval_seconds if fast else self.slow_interval_seconds


@dataclass(frozen=True)
class SimulatorSettings:
    """What is simulated and how fast; only ``business`` is part of the simulation's identity."""

    business: BusinessSettings = field(default_factory=BusinessSettings)
    pace: Pace = field(default_factory=Pace)


class Simulator:
    """Writes one simulation's rounds into its folder; at most one process at a time.

    Raises ConfigurationError when the folder belongs to another simulation (other settings, or an
    older way of making events), or when another simulator writes there now.
    """

    def __init__(self, folder: Path | str, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.log = EventLog(Path(folder).absolute())
        self._business = Business(self.settings.business)
        self._last: CommittedRound | None = None
        self._lock_file: int | None = None

    @property
    def input_folder(self) -> Path:
        """What ``LAKE_INPUT`` of the scripts must be."""
        return self.log.input_folder

    def __enter__(self) -> Simulator:
        self.log.create()
        self._lock()
        try:
            self._check_settings()
            self._business = Business(self.settings.business)
            self._last = self.log.recover()
            self._catch_up_with_the_log()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def write_round(self) -> CommittedRound:
        """Write the next round: its files are complete and visible when this returns."""
        if self._lock_file is None:
            raise ValueError("Use the simulator in a with statement: it holds a lock.")
        self._last = self.log.append(self._business.next_round())
        return self._last

    def run(
        self,
        rounds: int | None = None,
        *,
        stop: threading.Event | None = None,
        on_round: Callable[[CommittedRound], None] | None = None,
    ) -> CommittedRound | None:
        """Write rounds at the settings' pace and return the last one.

        Ends after ``rounds`` rounds, when ``stop`` is set, or when the input reaches its bound.
        While someone holds the folder (``hold``), no round is written.
        """
        stop = stop or threading.Event()
        written = 0
        while not stop.is_set() and (rounds is None or written < rounds):
            if is_held(self.log.folder):
                stop.wait(0.2)
                continue
            if self._last and sum(self._last.log_bytes.values()) >= self._bytes_max():
                break
            committed = self.write_round()
            written += 1
            if on_round is not None:
                on_round(committed)
            if rounds is None or written < rounds:
                stop.wait(self.settings.pace.pause_seconds(committed.number))
        return self._last

    def _bytes_max(self) -> int:
        return self.settings.pace.input_bytes_max

    def _lock(self) -> None:
        descriptor = os.open(self.log.folder / "simulator.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise ConfigurationError(
                f"Another simulator writes into {self.log.folder} now.",
                remedy="Stop it, or choose another folder.",
            ) from None
        self._lock_file = descriptor

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _check_settings(self) -> None:
        path = self.log.folder / "settings.json"
        business = {
            name: str(value) if name == "start_at" else value
            for name, value in asdict(self.settings.business).items()
        }
        if not path.exists():
            hidden = path.with_suffix(".tmp")
            hidden.write_text(json.dumps(business, indent=2) + "\n")
            hidden.rename(path)
        elif json.loads(path.read_text()) != business:
            raise ConfigurationError(
                f"{self.log.folder} holds a simulation with other settings ({path.name}).",
                remedy="Use the same settings, or an empty folder.",
            )

    def _catch_up_with_the_log(self) -> None:
        """Let the business live through the rounds that the log has already."""
        if self._last is None:
            return
        for _ in range(self._last.number + 1):
            round_ = self._business.next_round()
        for kind in KINDS:
            if round_.json_lines(kind) != self.log.round_content(kind, round_.number):
                raise ConfigurationError(
                    f"Round {round_.number} in {self.log.folder} was made by another version of "
                    "the simulator.",
                    remedy="Begin again in an empty folder.",
                )


@contextmanager
def hold(folder: Path | str) -> Iterator[None]:
    """No new round is begun in this folder while the block runs; a running round is finished.

    For whoever compares the tables with the log: it takes the tables a moment to catch up, and they
    can only be compared with a log that stands still. Works across processes. A second hold at the
    same time is refused with ConfigurationError.
    """
    path = _hold_path(folder)
    if is_held(folder):
        raise ConfigurationError(
            f"Another check holds the simulator in {folder} now.",
            remedy=f"Wait for it; if it died, remove {path.name} there.",
        )
    path.write_text(str(os.getpid()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def is_held(folder: Path | str) -> bool:
    """Whether a check asks the simulator to wait (and did so less than ten minutes ago)."""
    try:
        age_seconds = time.time() - _hold_path(folder).stat().st_mtime
    except FileNotFoundError:
        return False
    return age_seconds < HOLD_EXPIRES_SECONDS


def _hold_path(folder: Path | str) -> Path:
    return Path(folder) / "hold"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the work-order story's input files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=BusinessSettings.seed)
    parser.add_argument("--rounds", type=int, help="how many rounds (default: until stopped)")
    parser.add_argument(
        "--interval", type=float, help="seconds between rounds (default: 5, later 60)"
    )
    chosen = parser.parse_args(arguments)
    pace = Pace()
    if chosen.interval is not None:
        pace = Pace(interval_seconds=chosen.interval, slow_interval_seconds=chosen.interval)
    settings = SimulatorSettings(BusinessSettings(seed=chosen.seed), pace)
    try:
        with Simulator(chosen.folder, settings) as simulator:
            simulator.run(
                chosen.rounds,
                on_round=lambda r: print(f"round {r.number}: {sum(r.log_lines.values())} events"),
            )
    except ConfigurationError as error:
        parser.exit(1, f"{error}\n")
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

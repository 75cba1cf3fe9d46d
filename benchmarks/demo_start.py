"""``demo_start``: seconds from ``lakehouse demo`` with warm caches to the first row in Dagster.

The first progress event of any table stands on its asset page once it is in Dagster's event log.
The ratio is to a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.goal import Goal, say
from lakehouse_dagster.local.fetch import prefetch

RUNS = 3
BOUND_SECONDS = 60.0


def run() -> list[Goal]:
    """Three demos, each from an empty folder."""
    prefetch()
    seconds = []
    for number in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            seconds.append(_first_event(Path(folder)))
        say(f"demo_start: first row on an asset page after {seconds[-1]:.1f} s (run {number + 1})")
    return [Goal("demo_start", [s / BOUND_SECONDS for s in seconds], at_most=1.0)]


def _first_event(folder: Path) -> float:
    import dagster as dg

    begun = time.monotonic()
    command = [sys.executable, "-m", "lakehouse_dagster.cli", "demo", "--folder", str(folder)]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started = folder / "dagster.json"
        while not started.exists():
            _not_too_late(begun, demo)
            time.sleep(0.2)
        os.environ["DAGSTER_HOME"] = str(folder / "dagster")
        with dg.DagsterInstance.get() as instance:
            while not any(
                instance.get_latest_materialization_event(key) for key in instance.all_asset_keys()
            ):
                _not_too_late(begun, demo)
                time.sleep(0.2)
        return time.monotonic() - begun
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(timeout=60)


def _not_too_late(begun: float, demo: subprocess.Popen[bytes]) -> None:
    if demo.poll() is not None:
        raise SystemExit(f"The demo ended by itself with exit code {demo.returncode}.")
    if time.monotonic() - begun > 5 * BOUND_SECONDS:
        raise SystemExit(f"No event after {5 * BOUND_SECONDS:.0f} s.")

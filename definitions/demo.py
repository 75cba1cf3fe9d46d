"""What ``lakehouse demo`` runs of this project: its data, and the check that it is right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from definitions.accuracy import AccuracyReport, CatalogLake, check_accuracy
from definitions.simulator import Simulator
from lakehouse_dagster import LoadedLakehouse
from lakehouse_dagster.errors import NotFoundError


class Demo:
    """The work-order story in one folder."""

    def __init__(self, folder: Path) -> None:
        self._simulator = Simulator(folder)

    def environment(self) -> Mapping[str, str]:
        """What the scripts need, beside the addresses of the stack."""
        self._simulator.log.create()
        return {"LAKE_INPUT": str(self._simulator.input_folder)}

    def write_data(self, stop: threading.Event, on_round: Callable[[str], None]) -> None:
        """Write rounds of business events until ``stop`` is set."""
        with self._simulator as simulator:
            simulator.run(
                stop=stop,
                on_round=lambda r: on_round(
                    f"round {r.number} written, {sum(r.log_lines.values())} events so far"
                ),
            )

    def check(self, lake: LoadedLakehouse, timeout_seconds: float) -> AccuracyReport:
        """Compare every row of every table with DuckDB's answer over the event log."""

        def checkpoints() -> dict[str, int]:
            counts = {}
            with lake.lakehouse.flink.job_manager() as job_manager:
                for name, incarnation in lake.runtime.memory.all_latest().items():
                    try:
                        statistics = job_manager.checkpoints(incarnation.flink_job_id)
                    except NotFoundError:  # the supervisor is about to restore it
                        counts[name] = 0
                    else:
                        counts[name] = statistics.completed_count
            return counts

        return check_accuracy(
            self._simulator.log.folder,
            CatalogLake(lake.lakehouse.catalog),
            timeout_seconds=timeout_seconds,
            checkpoint_counts=checkpoints,
        )

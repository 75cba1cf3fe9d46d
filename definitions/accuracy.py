"""Are the tables of the work-order story right, to the last row?

    python -m definitions.accuracy FOLDER WAREHOUSE [--rest-url URL]

``check_accuracy`` asks the simulator to hold, waits until every table equals DuckDB's answer over
the simulator's event log (or until its bound), and then, given a way to count checkpoints, lets
every job complete two more and compares again: a table that is right by chance, between two changes
that are still on their way, does not pass.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from definitions.comparison import TableComparison, compare
from definitions.event_log import EventLog
from definitions.simulator import hold
from definitions.truth import EXPECTED, load_events
from lakehouse_dagster.errors import ConfigurationError, LakehouseError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from lakehouse_dagster.flink import FlinkCluster
    from lakehouse_dagster.paimon import PaimonCatalog

POLL_SECONDS = 1.0
MORE_CHECKPOINTS = 2
JOBS = tuple(table.replace(".", "_") for table in EXPECTED)
"""The jobs of the story: each is named after the table that it writes."""


class Lake(Protocol):
    """What the check needs to read of a catalog; tables are named ``database.table``."""

    def latest_snapshot_id(self, table: str) -> int | None:
        """The newest snapshot, or None while the table does not exist or holds nothing."""

    def read(self, table: str, snapshot_id: int) -> pa.Table:
        """The merged rows of that snapshot."""


class CatalogLake:
    """A Paimon catalog as the check reads it."""

    def __init__(self, catalog: PaimonCatalog) -> None:
        self._catalog = catalog.open()

    def latest_snapshot_id(self, table: str) -> int | None:
        return self._catalog.table(table).latest_snapshot_id()

    def read(self, table: str, snapshot_id: int) -> pa.Table:
        return self._catalog.table(table).read(snapshot_id=snapshot_id)


CheckpointCounts = Callable[[], Mapping[str, int]]
"""How many checkpoints each of the story's jobs has completed so far, by job."""


@dataclass(frozen=True)
class AccuracyReport:
    """The outcome of one check: every table, compared after round ``round_number``.

    ``stayed_equal`` is None when it was not looked at (no checkpoint counts, or not equal before).
    """

    round_number: int
    events: int
    tables: tuple[TableComparison, ...]
    snapshots: Mapping[str, int | None]
    waited_seconds: float
    compared_at: datetime
    stayed_equal: bool | None = None

    @property
    def equal(self) -> bool:
        """Whether every table held exactly the rows that it must, and still did later."""
        return all(table.equal for table in self.tables) and self.stayed_equal is not False

    def describe(self) -> str:
        """A few lines for a person."""
        head = (
            f"{'Equal' if self.equal else 'NOT equal'} after round {self.round_number} "
            f"({self.events} events), compared after {self.waited_seconds:.1f} s"
        )
        if self.stayed_equal is not None:
            head += f"; {MORE_CHECKPOINTS} checkpoints later "
            head += "still equal" if self.stayed_equal else "no longer equal"
        return "\n".join([head, *(table.describe() for table in self.tables)])


def check_accuracy(
    folder: Path | str,
    lake: Lake,
    *,
    timeout_seconds: float = 120.0,
    checkpoint_counts: CheckpointCounts | None = None,
    tables: Sequence[str] = tuple(EXPECTED),
    on_wait: Callable[[AccuracyReport], None] | None = None,
) -> AccuracyReport:
    """Compare every table with the truth, once they have caught up or ``timeout_seconds`` are over.

    ``folder`` is the simulator's; it writes no round meanwhile. ``on_wait`` hears of every
    comparison that was not equal. Raises ConfigurationError when no round was written yet, or when
    another check holds the simulator.
    """
    log = EventLog(Path(folder).absolute())
    with hold(log.folder):
        comparer = _Comparer(log, lake, tables)
        report = comparer.wait_until_equal(timeout_seconds, on_wait)
        if not report.equal or checkpoint_counts is None:
            return report
        _wait_for_more_checkpoints(checkpoint_counts, timeout_seconds)
        return comparer.once_more(report)


class _Comparer:
    """Compares again and again, reading only what changed."""

    def __init__(self, log: EventLog, lake: Lake, tables: Sequence[str]) -> None:
        self._log = log
        self._lake = lake
        self._tables = tables
        self._begun = time.monotonic()
        self._round: int | None = None
        self._events = 0
        self._truth: duckdb.DuckDBPyConnection | None = None
        self._compared: dict[str, tuple[int | None, TableComparison]] = {}

    def wait_until_equal(
        self, timeout_seconds: float, on_wait: Callable[[AccuracyReport], None] | None
    ) -> AccuracyReport:
        while True:
            report = self.report()
            if report.equal or time.monotonic() - self._begun > timeout_seconds:
                return report
            if on_wait is not None:
                on_wait(report)
            time.sleep(POLL_SECONDS)

    def once_more(self, before: AccuracyReport) -> AccuracyReport:
        """The report after more checkpoints, about the same round."""
        after = self.report()
        if after.round_number != before.round_number:
            raise ConfigurationError(
                f"Round {after.round_number} was written while the check held the simulator.",
                remedy="Check again; something else than the simulator writes into its folder.",
            )
        return AccuracyReport(
            after.round_number,
            after.events,
            after.tables,
            after.snapshots,
            before.waited_seconds,
            after.compared_at,
            stayed_equal=after.equal,
        )

    def report(self) -> AccuracyReport:
        truth = self._load_truth()
        for table in self._tables:
            snapshot_id = self._lake.latest_snapshot_id(table)
            known = self._compared.get(table)
            if known is not None and known[0] == snapshot_id:
                continue
            found = None if snapshot_id is None else self._lake.read(table, snapshot_id)
            self._compared[table] = (snapshot_id, compare(truth, table, EXPECTED[table], found))
        assert self._round is not None
        return AccuracyReport(
            round_number=self._round,
            events=self._events,
            tables=tuple(self._compared[table][1] for table in self._tables),
            snapshots={table: self._compared[table][0] for table in self._tables},
            waited_seconds=time.monotonic() - self._begun,
            compared_at=datetime.now(timezone.utc),
        )

    def _load_truth(self) -> duckdb.DuckDBPyConnection:
        """The truth after the last round; a round in progress when we began may still end."""
        last = self._log.last_round()
        if last is None:
            raise ConfigurationError(
                f"No round was written in {self._log.folder} yet: there is nothing to compare.",
                remedy="Start the simulator first.",
            )
        if self._truth is None or self._round != last.number:
            self._truth = load_events(self._log, last)
            self._round = last.number
            self._events = sum(last.log_lines.values())
            self._compared.clear()
        return self._truth


def _wait_for_more_checkpoints(counts: CheckpointCounts, timeout_seconds: float) -> None:
    """Wait until every job has completed MORE_CHECKPOINTS more, or say which did not."""
    before = dict(counts())
    deadline = time.monotonic() + timeout_seconds
    while True:
        now = counts()
        # A job that was started anew meanwhile counts from zero again.
        before = {job: min(count, now.get(job, 0)) for job, count in before.items()}
        behind = [
            job for job, count in before.items() if now.get(job, 0) < count + MORE_CHECKPOINTS
        ]
        if not behind:
            return
        if time.monotonic() > deadline:
            raise ConfigurationError(
                f"{', '.join(behind)}: fewer than {MORE_CHECKPOINTS} checkpoints in "
                f"{timeout_seconds:.0f} s.",
                remedy="Look at the job's checkpoints and exceptions in Flink's own UI.",
            )
        time.sleep(POLL_SECONDS)


def checkpoint_counts_of(cluster: FlinkCluster) -> CheckpointCounts:
    """Counts the completed checkpoints of the story's running jobs, found by name.

    For a cluster that runs the story once. The counts raise ClusterUnreachableError when it cannot
    be asked, and ConfigurationError when one of the jobs does not run.
    """

    def counts() -> Mapping[str, int]:
        with cluster.job_manager() as job_manager:
            running = {
                job.name: job.job_id for job in job_manager.jobs() if not job.status.is_terminal
            }
            absent = [name for name in JOBS if name not in running]
            if absent:
                raise ConfigurationError(
                    f"{', '.join(absent)}: no such job runs on {cluster.rest_url}.",
                    remedy="Start the story's jobs, or leave the cluster out of the check.",
                )
            return {name: job_manager.checkpoints(running[name]).completed_count for name in JOBS}

    return counts


def main(arguments: list[str] | None = None) -> int:
    from lakehouse_dagster import FlinkCluster, PaimonCatalog

    parser = argparse.ArgumentParser(description="Compare the story's tables with the event log.")
    parser.add_argument("folder", type=Path, help="the simulator's folder")
    parser.add_argument("warehouse")
    parser.add_argument("--rest-url", help="compare again two checkpoints later")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds (default: 120)")
    chosen = parser.parse_args(arguments)
    cluster = FlinkCluster(chosen.rest_url, sql_gateway_url="") if chosen.rest_url else None
    try:
        report = check_accuracy(
            chosen.folder,
            CatalogLake(PaimonCatalog(warehouse=chosen.warehouse)),
            timeout_seconds=chosen.timeout,
            checkpoint_counts=checkpoint_counts_of(cluster) if cluster else None,
        )
    except LakehouseError as error:
        parser.exit(1, f"{error}\n")
    print(report.describe())
    return 0 if report.equal else 1


if __name__ == "__main__":
    raise SystemExit(main())

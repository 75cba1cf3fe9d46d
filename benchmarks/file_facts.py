"""``file_facts``: the facts of a table with 100,000 live files, against pypaimon's ``$files``.

Two goals, both in wall time. After one more commit, where the process has only just opened the
system database in which the sums lie: against reading the ``$files`` system table whole, in a
process that imports none of our code and has the table open. Nothing moved: milliseconds, held
against 5, where the sums are at hand.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.child import child
from benchmarks.goal import Goal, say
from benchmarks.made_table import MadeTable
from lakehouse_dagster import FlinkCluster, PaimonCatalog, SystemDatabase
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.streaming.runtime import Runtime

PARTITIONS, BUCKETS, FILES_EACH = 500, 4, 50
TURNS = 3
LOOKS = 101
STILL_MS = 5.0
NAME = "b.big"

_BARE = """
import sys, time
import pypaimon
catalog = pypaimon.CatalogFactory.create({"warehouse": sys.argv[1]})
for _ in sys.stdin:
    began = time.perf_counter()
    builder = catalog.get_table("b.big$files").new_read_builder()
    files = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    seconds = time.perf_counter() - began
    sys.stderr.write(f"$files: {files.num_rows} rows, {seconds:.1f} s\\n")
    assert files.num_rows > 50_000
    print(seconds, flush=True)
"""


def run() -> list[Goal]:
    """Interleaved turns; the median of the ratios counts."""
    with tempfile.TemporaryDirectory() as folder:
        table = MadeTable(Path(folder) / "warehouse", PARTITIONS, BUCKETS, FILES_EACH)
        _look(Path(folder), table)
        moved = _moved(Path(folder), table)
        still = _still(Path(folder), table)
    return [
        Goal("file_facts: after a commit", moved, at_most=0.01),
        Goal("file_facts: nothing moved (ms / 5)", still, at_most=1.0),
    ]


def _moved(folder: Path, table: MadeTable) -> list[float]:
    with child("-c", _BARE, str(table.warehouse)) as bare:
        turns = []
        for turn in range(TURNS + 1):
            table.commit()
            ours, listing = _look(folder, table), bare("")
            if turn:
                turns.append((ours, listing))
    ours, listing = (statistics.median(column) * 1000 for column in zip(*turns, strict=True))
    say(
        f"file_facts: {ours:.1f} ms for the facts of {table.files} files after a commit, "
        f"{listing:.0f} ms to read $files; medians of {TURNS} turns"
    )
    return [ours / listing for ours, listing in turns]


def _still(folder: Path, table: MadeTable) -> list[float]:
    keeper = _keeper(folder, table)
    keeper.facts(NAME)
    seconds = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        keeper.facts(NAME)
        seconds.append(time.perf_counter() - began)
    say(f"file_facts: {statistics.median(seconds) * 1000:.2f} ms where nothing moved")
    return [one * 1000 / STILL_MS for one in seconds]


def _look(folder: Path, table: MadeTable) -> float:
    """Seconds of one look by somebody who opens the system database for it."""
    began = time.perf_counter()
    facts = _keeper(folder, table).facts(NAME)
    seconds = time.perf_counter() - began
    assert facts.problem is None, facts.problem
    assert facts.files == table.files, (facts.files, table.files)
    return seconds


def _keeper(folder: Path, table: MadeTable) -> Keeper:
    return Keeper(
        Runtime(
            lakehouse="bench",
            cluster=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
            catalog=PaimonCatalog(warehouse=str(table.warehouse)),
            system_database=SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}"),
            jobs={},
        )
    )

"""``progress_tick``: looking at 1,000 tables, against reading their snapshot hints bare.

Two goals. Nothing moved: wall time of the look against reading the hint files with as many threads.
100 moved: the whole tick with its 100 events, against writing 100 such events to the same Dagster
instance bare. The baselines import none of our code.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.goal import Goal, say
from lakehouse_dagster import PaimonCatalog, ProgressPolicy
from lakehouse_dagster.streaming.progress import ProgressCursor, advance, moved

TABLES = 1_000
MOVED = 100
PAIRS = 7
ROUNDS = 5

_BARE_HINTS = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
folder = Path(sys.argv[1])
tables, threads, rounds = (int(number) for number in sys.argv[2:5])
def hint(number):
    # As Paimon reads it: the hint, and whether the next snapshot is there already.
    snapshots = folder / "b.db" / f"t{number:04d}" / "snapshot"
    newest = int((snapshots / "LATEST").read_text())
    (snapshots / f"snapshot-{newest + 1}").exists()
    return newest
times = []
for _ in range(rounds + 1):
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        newest = list(pool.map(hint, range(tables)))
    times.append(time.perf_counter() - began)
print(sorted(times[1:])[rounds // 2])
"""

_BARE_EVENTS = """
import sys, time
import dagster as dg
home, count = sys.argv[1], int(sys.argv[2])
with dg.DagsterInstance.local_temp(home) as instance:
    events = [
        dg.AssetMaterialization(
            dg.AssetKey(["b", f"t{n:04d}"]),
            description="Snapshots 2 to 2.",
            metadata={
                "snapshot": 2, "snapshots": "2 to 2", "commits": "1 APPEND",
                "committed_at": dg.MetadataValue.timestamp(time.time()), "rows_written": 1,
                "rows_removed": 0, "files_added": 1, "files_deleted": 0, "bytes_added": 900,
                "age_seconds": 1.0, "commit_user": "job-1", "partitions_changed": 1,
            },
            tags={"dagster/data_version": "2"},
        )
        for n in range(count)
    ]
    instance.report_runless_asset_event(events[0])
    began = time.perf_counter()
    for event in events:
        instance.report_runless_asset_event(event)
    print(time.perf_counter() - began)
"""


def run() -> list[Goal]:
    """Interleaved pairs; the median of the ratios counts."""
    policy = ProgressPolicy(events_per_tick=TABLES)
    still: list[float] = []
    moving: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        warehouse = _warehouse(Path(folder))
        for pair in range(PAIRS):
            bare, ours = _bare_hints(warehouse, policy), _still(warehouse, policy)
            still.append(ours / bare)
            say(
                f"progress_tick: {ours * 1000:.1f} ms to see that none of {TABLES} tables moved, "
                f"{bare * 1000:.1f} ms to read the hints bare, pair {pair + 1}"
            )
            bare, ours = _bare_events(Path(folder)), _moving(Path(folder), warehouse, pair)
            moving.append(ours / bare)
            say(
                f"progress_tick: {ours * 1000:.0f} ms for a tick in which {MOVED} tables moved, "
                f"{bare * 1000:.0f} ms to write {MOVED} events bare, pair {pair + 1}"
            )
    return [
        Goal("progress_tick: none moved", still, at_most=1.5),
        Goal(f"progress_tick: {MOVED} moved", moving, at_most=1.3),
    ]


def _still(warehouse: Path, policy: ProgressPolicy) -> float:
    """The median of some looks, after one that reports all."""
    catalog = PaimonCatalog(warehouse=str(warehouse)).open()
    names = [f"b.t{n:04d}" for n in range(TABLES)]
    now = datetime.now(timezone.utc)
    first = moved(catalog, names, ProgressCursor(), now=now, policy=policy)
    cursor = advance(ProgressCursor(), first.events, now).model_dump_json()
    times = []
    for round_number in range(ROUNDS):
        began = time.perf_counter()
        parsed = ProgressCursor.parse(cursor)
        later = now + timedelta(hours=round_number + 1)
        news = moved(catalog, names, parsed, now=later, policy=policy)
        assert news.events == ()
        assert news.problems == {}
        advance(parsed, news.events, later).model_dump_json()
        times.append(time.perf_counter() - began)
    return sorted(times)[ROUNDS // 2]


def _moving(folder: Path, warehouse: Path, pair: int) -> float:
    """One whole tick of the sensor, with the events that Dagster then stores."""
    import dagster as dg

    from benchmarks.moving_tables import Ticking

    ticking = Ticking(folder, warehouse, TABLES, MOVED, pair)
    home = folder / f"ours-{pair}"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        return ticking.tick(instance)


def _bare_hints(warehouse: Path, policy: ProgressPolicy) -> float:
    arguments = [str(warehouse), str(TABLES), str(policy.threads), str(ROUNDS)]
    return float(_child(_BARE_HINTS, *arguments))


def _bare_events(folder: Path) -> float:
    home = folder / "bare"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    return float(_child(_BARE_EVENTS, str(home), str(MOVED)))


def _child(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()[-1]


def _warehouse(folder: Path) -> Path:
    """Tables of one row and one snapshot: one is made with pypaimon, the others are copies."""
    import pyarrow as pa
    import pypaimon

    warehouse = folder / "warehouse"
    catalog = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("b", True)
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    schema = pypaimon.Schema.from_pyarrow_schema(columns, options={"bucket": "-1"})
    catalog.create_table("b.t0000", schema, False)
    table = catalog.get_table("b.t0000")
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(pa.table({"id": [1], "v": ["x"]}, schema=columns))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
    made = warehouse / "b.db" / "t0000"
    for number in range(1, TABLES):
        shutil.copytree(made, warehouse / "b.db" / f"t{number:04d}")
    assert json.loads((made / "snapshot" / "snapshot-1").read_text())["id"] == 1
    return warehouse

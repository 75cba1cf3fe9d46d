"""``progress_tick``: looking at 1,000 tables, against reading their snapshot hints bare.

Two goals. Nothing moved: wall time of the look against reading the hint files with as many threads.
100 moved: the whole tick with its 100 events, against writing 100 such events to the same Dagster
instance bare. The baselines import none of our code.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.child import child
from benchmarks.goal import Goal, say
from lakehouse_dagster import PaimonCatalog, ProgressPolicy
from lakehouse_dagster.streaming.progress import ProgressCursor, advance, moved

TABLES = 1_000
MOVED = 100
LOOKS = 31
TICKS = 11
IN_TURN = 5

_BARE_HINTS = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
folder = Path(sys.argv[1])
tables, threads = (int(number) for number in sys.argv[2:4])
def hint(number):
    # As Paimon reads it: the hint, and whether the next snapshot is there already.
    snapshots = folder / "b.db" / f"t{number:04d}" / "snapshot"
    newest = int((snapshots / "LATEST").read_text())
    (snapshots / f"snapshot-{newest + 1}").exists()
    return newest
for _ in sys.stdin:
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        newest = list(pool.map(hint, range(tables)))
    print(time.perf_counter() - began, flush=True)
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
    for line in sys.stdin:
        first, end = map(int, line.split())
        began = time.perf_counter()
        for event in events[first:end]:
            instance.report_runless_asset_event(event)
        print(time.perf_counter() - began, flush=True)
"""


def run() -> list[Goal]:
    """Interleaved turns; the median of the ratios counts."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = _warehouse(Path(folder))
        still = _none_moved(warehouse)
        moving = _some_moved(Path(folder), warehouse)
    return [
        Goal("progress_tick: none moved", still, at_most=1.5),
        Goal(f"progress_tick: {MOVED} moved", moving, at_most=1.3),
    ]


def _none_moved(warehouse: Path) -> list[float]:
    policy = ProgressPolicy(events_per_tick=TABLES)
    catalog = PaimonCatalog(warehouse=str(warehouse)).open()
    names = [f"b.t{n:04d}" for n in range(TABLES)]
    now = datetime.now(timezone.utc)
    first = moved(catalog, names, ProgressCursor(), now=now, policy=policy)
    cursor = advance(ProgressCursor(), first.events, now).model_dump_json()

    def look(turn: int) -> float:
        began = time.perf_counter()
        parsed, later = ProgressCursor.parse(cursor), now + timedelta(hours=turn)
        news = moved(catalog, names, parsed, now=later, policy=policy)
        advance(parsed, news.events, later).model_dump_json()
        seconds = time.perf_counter() - began
        assert news.events == ()
        assert news.problems == {}
        return seconds

    with child("-c", _BARE_HINTS, str(warehouse), str(TABLES), str(policy.threads)) as bare:
        turns = [(look(turn), bare("")) for turn in range(LOOKS + 1)][1:]
    ours, hints = (statistics.median(column) * 1000 for column in zip(*turns, strict=True))
    say(
        f"progress_tick: {ours:.1f} ms to see that none of {TABLES} tables moved, {hints:.1f} ms "
        f"to read the hints bare; medians of {LOOKS} turns"
    )
    return [ours / bare for ours, bare in turns]


def _some_moved(folder: Path, warehouse: Path) -> list[float]:
    """Whole ticks of the sensor, with the events that Dagster then stores; one warm-up of each."""
    import dagster as dg

    from benchmarks.moving_tables import Ticking

    homes = [folder / "ours", folder / "bare"]
    for home in homes:
        home.mkdir()
    ratios = []
    with (
        dg.DagsterInstance.local_temp(str(homes[0])) as instance,
        child("-c", _BARE_EVENTS, str(homes[1]), str(MOVED)) as bare,
    ):
        ticking = Ticking(folder, warehouse, TABLES, MOVED, instance)
        for turn in range(TICKS + 1):
            events, looking = ticking.tick()
            # A few of each in turn: how long a disk takes changes within seconds.
            storing = writing = 0.0
            for start in range(0, MOVED, IN_TURN):
                storing += ticking.store(events[start : start + IN_TURN])
                writing += bare(f"{start} {start + IN_TURN}")
            say(
                f"progress_tick: {looking * 1000:.0f} ms to look and {storing * 1000:.0f} ms to "
                f"store the events when {MOVED} tables moved, {writing * 1000:.0f} ms to write "
                f"{MOVED} events bare{'' if turn else ' (warm-up)'}"
            )
            if turn:
                ratios.append((looking + storing) / writing)
    return ratios


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

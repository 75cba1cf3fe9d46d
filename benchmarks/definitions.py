"""``definitions``: loading 1,000 tables in 300 scripts with column lineage.

Cold is ``Lakehouse.definitions()`` with nothing read before, held against parsing the same text
with the dialect alone; warm is the same again without a change, held against cold. Every measure
is a process of its own. A process that has imported Dagster, as every code location has, begins to
count when it makes the lakehouse; the one that parses when it imports sqlglot, as ours does then.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import definitions_scripts
from benchmarks.goal import Goal, say

ROUNDS = 5
MEMORY_MIB = 400

_BARE = """
import pathlib, sys, time
texts = [path.read_text() for path in pathlib.Path(sys.argv[1]).rglob("*.sql")]
began = time.perf_counter()
import sqlglot
from lakehouse_dagster.sql.dialect import Flink
trees = 0
for text in texts:
    trees += len(sqlglot.parse(text, dialect=Flink))
print('{"cold": %f, "trees": %d}' % (time.perf_counter() - began, trees))
"""

_LOADED = """
import json, resource, sys, time
import dagster as dg
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
def load():
    began = time.perf_counter()
    lake = Lakehouse(
        catalog=PaimonCatalog(warehouse="/nowhere"),
        flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
    )
    definitions = lake.definitions("**/*.sql", base_folder=sys.argv[1])
    return time.perf_counter() - began, definitions
first, definitions = load()
known = sum("dagster/column_lineage" in spec.metadata
            for asset in definitions.assets
            for spec in ([asset] if isinstance(asset, dg.AssetSpec) else asset.specs))
again, _ = load()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"first": first, "again": again, "with_lineage": known, "memory": memory}))
"""


def run() -> list[Goal]:
    """Rounds of parsing, loading and loading again; the median of the ratios counts."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = Path(folder) / "sql"
        definitions_scripts.write(scripts)
        rounds = [_round(scripts, Path(folder) / f"home{n}") for n in range(ROUNDS)]
    bare, cold, warm, same, memory = (
        statistics.median(column) for column in zip(*rounds, strict=True)
    )
    say(
        f"definitions: {definitions_scripts.TABLES} tables in {definitions_scripts.SCRIPTS} "
        f"scripts: parsed alone in {bare:.2f} s, loaded cold in {cold:.2f} s, again in another "
        f"process in {warm:.2f} s, in the same one in {same:.2f} s; at most {memory:.0f} MiB"
    )
    return [
        Goal("definitions_cold", [cold / bare for bare, cold, *_ in rounds], at_most=3),
        Goal("definitions_warm", [warm / cold for _, cold, warm, *_ in rounds], at_most=0.1),
        Goal("definitions_reload", [same / cold for _, cold, _, same, _ in rounds], at_most=0.1),
        Goal("definitions_memory", [memory / MEMORY_MIB for *_, memory in rounds], at_most=1),
    ]


def _round(scripts: Path, home: Path) -> tuple[float, float, float, float, float]:
    """Seconds of parsing, of a cold load, of a warm one, of one in the same process; MiB."""
    bare = _measured(_BARE, scripts, home)
    cold = _measured(_LOADED, scripts, home)
    warm = _measured(_LOADED, scripts, home)
    assert cold["with_lineage"] == warm["with_lineage"] == definitions_scripts.TABLES, cold
    memory_mib = max(cold["memory"], warm["memory"]) / 1024
    return bare["cold"], cold["first"], warm["first"], warm["again"], memory_mib


def _measured(program: str, scripts: Path, home: Path) -> Mapping[str, float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(scripts)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
        env={**os.environ, "LAKEHOUSE_HOME": str(home)},
    )
    found: Mapping[str, float] = json.loads(done.stdout)
    return found

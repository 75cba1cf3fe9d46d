"""``definitions``: loading 1,000 tables in 300 scripts with column lineage.

What counts is processor time, of a process and its children, so that neither the number of cores
nor what else the machine does decides. Cold is ``Lakehouse.definitions()`` with nothing read
before: starting the processes that read, with sqlglot's import in each, reading, the cache, the
asset graph and Dagster's own objects. It is held against parsing the same text with the dialect
alone. Warm is the same again without a change, in a new process as when Dagster reloads a code
location, held against cold; ``reload`` is the same in the process that has loaded already. Each
measure is a process of its own, and the rounds alternate. Of no side the imports in the measured
process count: sqlglot and the dialect there, Dagster and this package here.

With ``LAKEHOUSE_BENCHMARK_QUICK`` set, one round.
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

ROUNDS = 1 if os.environ.get("LAKEHOUSE_BENCHMARK_QUICK") else 3
MEMORY_MIB = 400

_CLOCK = """
import resource, sys
def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)
"""
_BARE = f"""{_CLOCK}
import pathlib
import sqlglot
from lakehouse_dagster.sql.dialect import Flink
texts = [path.read_text() for path in pathlib.Path(sys.argv[1]).rglob("*.sql")]
sqlglot.parse("SELECT 1", dialect=Flink)
began = seconds()
trees = 0
for text in texts:
    trees += len(sqlglot.parse(text, dialect=Flink))
print('{{"cold": %f, "trees": %d}}' % (seconds() - began, trees))
"""

_LOADED = f"""{_CLOCK}
import importlib, json, pkgutil
import dagster as dg
import lakehouse_dagster.streaming
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
for module in pkgutil.iter_modules(lakehouse_dagster.streaming.__path__):
    importlib.import_module("lakehouse_dagster.streaming." + module.name)
def load():
    began = seconds()
    lake = Lakehouse(
        catalog=PaimonCatalog(warehouse="/nowhere"),
        flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
    )
    definitions = lake.definitions("**/*.sql", base_folder=sys.argv[1])
    return seconds() - began, definitions
first, definitions = load()
assert "sqlglot" not in sys.modules
known = sum("dagster/column_lineage" in spec.metadata
            for asset in definitions.assets
            for spec in ([asset] if isinstance(asset, dg.AssetSpec) else asset.specs))
again, _ = load()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"first": first, "again": again, "with_lineage": known, "memory": memory}}))
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
        f"scripts, in seconds of processor time: parsed alone {bare:.2f}, loaded cold {cold:.2f}, "
        f"again in another process {warm:.2f}, in the same one {same:.2f}; at most {memory:.0f} MiB"
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

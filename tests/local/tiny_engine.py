"""An engine of a few bytes, and a program that fetches it: ``python -m … HOME ENGINE_AS_JSON``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lakehouse_dagster.local import engines
from lakehouse_dagster.local.engines import ClassPath, Engine, MavenJar, PythonPackage
from lakehouse_dagster.local.fetch import InstalledEngine, prefetch
from lakehouse_dagster.local.progress import PlainProgress
from tests.local.wheels import write_wheel

PACKAGE = PythonPackage("tiny-engine", "1.0")


def tiny_engine(jars: Sequence[MavenJar]) -> Engine:
    """An engine of version 1.0 with these jars."""
    return Engine("tiny", "1.0", "1.0", PACKAGE, tuple(jars), (17, 21))


def write_engine_wheel(folder: Path) -> None:
    """Write the wheel from which the engine itself is installed."""
    files = {f"pyflink/{name}": name.encode() for name in tiny_engine(()).marker_jars}
    write_wheel(folder, PACKAGE, files)


def as_json(engine: Engine) -> str:
    """The engine's jars, for the command line."""
    return json.dumps([dataclasses.asdict(jar) for jar in engine.jars])


def main(home: str, jars: str) -> InstalledEngine:
    """Fetch the tiny engine with these jars into the cache folder."""
    engine = tiny_engine(
        [
            MavenJar(**{**jar, "class_path": ClassPath(jar["class_path"])})
            for jar in json.loads(jars)
        ]
    )
    engines.ENGINES[engine.name] = engine
    return prefetch(engine.name, PlainProgress(sys.stdout), home=Path(home))


if __name__ == "__main__":
    main(*sys.argv[1:])

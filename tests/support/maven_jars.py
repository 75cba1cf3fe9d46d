"""Jars that only tests need, each pinned, kept in the cache of the local stack.

``<name>-jars.txt`` beside this file lists them: group, artifact, version, SHA-256, classifier.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from lakehouse_dagster.local.engines import MavenJar
from lakehouse_dagster.local.filesystem import lakehouse_home, locked
from lakehouse_dagster.local.jars import fetch_jar, is_whole, jar_path
from lakehouse_dagster.local.progress import SilentProgress


def listed(name: str) -> list[MavenJar]:
    """The jars of a list."""
    lines = Path(__file__).with_name(f"{name}-jars.txt").read_text().splitlines()
    return [_jar(*line.split()) for line in lines if line]


def _jar(group: str, artifact: str, version: str, sha256: str, classifier: str = "") -> MavenJar:
    return MavenJar(group, artifact, version, sha256, classifier=classifier)


def fetched(jars: Sequence[MavenJar]) -> list[Path]:
    """Where the jars are; those that are not in the cache are fetched."""
    home = lakehouse_home()
    folder, incoming = home / "jars", home / "incoming-tests"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(
        home / "fetch.lock", wait_seconds=600, on_wait=lambda: None, what="fetching jars for tests"
    ):
        try:
            for jar in jars:
                if not is_whole(jar, folder):
                    incoming.mkdir(exist_ok=True)
                    fetch_jar(jar, folder, incoming, SilentProgress())
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    return [jar_path(jar, folder) for jar in jars]

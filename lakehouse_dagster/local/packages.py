"""Python packages that carry an engine or a Java, each in a folder of its own in the cache.

Nothing is installed into the user's environment. pip does the fetching, so an index mirror, a
proxy or certificates are pip's own configuration; uv stands in where pip is not installed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import DownloadError
from lakehouse_dagster.local.filesystem import disk_full, naming_a_full_disk, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehouse_dagster.local.engines import PythonPackage
    from lakehouse_dagster.local.progress import Progress

_WATCH_SECONDS = 0.5

_NO_NETWORK = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "Connection refused",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "error sending request",  # uv
    "dns error",  # uv
)
_DISK_FULL = ("No space left on device", "os error 28", "Disk quota exceeded")


def package_folder(package: PythonPackage, packages: Path) -> Path:
    """Where the cache keeps the package."""
    return packages / f"{package.name}-{package.version}"


def is_whole(package: PythonPackage, packages: Path, needed: Sequence[str]) -> bool:
    """Whether the kept package has every file of its own list, unchanged.

    Files are read and compared with the checksums of that list only when one of them changed
    since they were last found right, which a file beside the folder remembers: an engine has
    300 MB.

    Args:
        needed: paths below the folder that must be among the files.
    """
    folder = package_folder(package, packages)
    records = _records(folder)
    listed = {record.path for record in records}
    if not listed.issuperset(needed):
        return False
    seen: dict[str, list[int]] = {}
    for record in records:
        try:
            facts = (folder / record.path).stat()
        except OSError:
            return False
        if facts.st_size != record.size_bytes:
            return False
        seen[record.path] = [facts.st_size, facts.st_mtime_ns]
    verified = folder.with_name(f"{folder.name}.verified")
    try:
        if json.loads(verified.read_text(encoding="utf-8")) == seen:
            return True
    except (FileNotFoundError, ValueError):
        pass
    if any(_sha256(folder / record.path) != record.sha256 for record in records):
        return False
    write_atomically(verified, json.dumps(seen))
    return True


def fetch_package(
    package: PythonPackage,
    packages: Path,
    incoming: Path,
    needed: Sequence[str],
    progress: Progress,
) -> Path:
    """Fetch the package into ``incoming`` and, once whole, move it into the cache.

    Raises DownloadError when neither pip nor uv is there, the index does not answer or does not
    have the package; StackError when the disk is full.
    """
    folder = package_folder(package, packages)
    with naming_a_full_disk(packages):
        work = Path(tempfile.mkdtemp(prefix=f"{package.name}-", dir=incoming))
        target = work / "target"
        _install(package, target, work, progress)
        if folder.exists():
            # Aside first: a crash between the two moves leaves nothing that looks whole.
            folder.rename(work / "damaged")
        target.rename(folder)
        shutil.rmtree(work, ignore_errors=True)
    if not is_whole(package, packages, needed):
        raise DownloadError(
            f"{package.requirement} was fetched, but is not whole: {folder} lacks files it needs.",
            remedy="Remove that folder and fetch again.",
        )
    return folder


def _install(package: PythonPackage, target: Path, work: Path, progress: Progress) -> None:
    temporary = work / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        _installer_command(package, target),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # What pip downloads and builds lands beside the target: seen by the progress, on the
        # same disk, and gone with the folder when the fetch is interrupted.
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    output: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=_collect, args=(process.stdout, output), daemon=True)
    reader.start()
    try:
        with progress.transfer(f"fetching {package.requirement}", None) as advance:
            seen_bytes = 0
            while True:
                try:
                    process.wait(_WATCH_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    size_bytes = _size_of(work)
                    advance(max(0, size_bytes - seen_bytes))
                    seen_bytes = max(seen_bytes, size_bytes)
            advance(max(0, _size_of(target) - seen_bytes))
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join(timeout=5)
    if process.returncode != 0:
        raise _failure(package, target, "".join(output))


def _collect(stream: object, output: list[str]) -> None:
    for line in stream:  # type: ignore[attr-defined]
        output.append(line)


def _installer_command(package: PythonPackage, target: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [
            sys.executable,
            *("-m", "pip", "install", "--no-deps", "--no-input", "--no-user"),
            *("--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"),
            *("--target", str(target), package.requirement),
        ]
    uv = shutil.which("uv")
    if uv is not None:
        return [
            uv,
            *("pip", "install", "--no-deps", "--no-progress", "--python", sys.executable),
            *("--target", str(target), package.requirement),
        ]
    raise DownloadError(
        f"{package.requirement} cannot be fetched: neither pip nor uv is installed.",
        remedy=f"Install pip into the environment of {sys.executable}.",
    )


def _failure(package: PythonPackage, target: Path, output: str) -> Exception:
    if any(sign in output for sign in _DISK_FULL):
        return disk_full(target.parent)
    if any(sign in output for sign in _NO_NETWORK):
        return DownloadError(
            f"{package.requirement} could not be fetched: the Python package index does not "
            "answer.",
            remedy="Check the network, or name a mirror in pip's configuration (PIP_INDEX_URL).",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    reason = (errors or lines or ["no reason given"])[-1]
    return DownloadError(f"{package.requirement} could not be fetched: {reason}")


def _size_of(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # pip moves its files as we look
    return total


@dataclass(frozen=True)
class _Record:
    """One line of a package's own list of files (RECORD of the wheel format)."""

    path: str
    sha256: str
    size_bytes: int


def _records(folder: Path) -> list[_Record]:
    rows: list[list[str]] = []
    for record in folder.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as file:
            rows += csv.reader(file)
    # The list itself has no checksum; compiled Python files are made on the spot.
    return [
        _Record(path, hash_.removeprefix("sha256="), int(size))
        for path, hash_, size in (row for row in rows if len(row) == 3)
        if hash_.startswith("sha256=") and size and not path.endswith(".pyc")
    ]


def _sha256(path: Path) -> str:
    """The checksum as RECORD writes it: base 64 for addresses, without padding."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()

"""Jars from a Maven repository, each checked against its pinned SHA-256, kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse_dagster.errors import DownloadError
from lakehouse_dagster.local.filesystem import naming_a_full_disk, write_atomically

if TYPE_CHECKING:
    from lakehouse_dagster.local.engines import MavenJar
    from lakehouse_dagster.local.progress import Progress

MIRROR_VARIABLE = "LAKEHOUSE_MAVEN_MIRROR"

_CONNECT_TIMEOUT_SECONDS = 30
_ATTEMPTS = 3


def jar_path(jar: MavenJar, folder: Path) -> Path:
    """Where the cache keeps the jar."""
    return folder / jar.file_name


def is_whole(jar: MavenJar, folder: Path) -> bool:
    """Whether the kept jar is the file it should be.

    A file is read whole only when its size or time of change differ from when it was last found
    right, which a side file remembers: hashing 100 MB on every start would cost a noticeable
    part of a second.
    """
    path = jar_path(jar, folder)
    try:
        facts = path.stat()
    except FileNotFoundError:
        return False
    seen = [jar.sha256, facts.st_size, facts.st_mtime_ns]
    verified = _verified_path(path)
    try:
        if json.loads(verified.read_text(encoding="utf-8")) == seen:
            return True
    except (FileNotFoundError, ValueError):
        pass
    if _sha256(path) != jar.sha256:
        return False
    write_atomically(verified, json.dumps(seen))
    return True


def fetch_jar(jar: MavenJar, folder: Path, incoming: Path, progress: Progress) -> Path:
    """Fetch the jar into ``incoming`` and, found right, move it into ``folder``.

    Raises DownloadError when no repository answers, none has it, or the file that came is not the
    pinned one; StackError when the disk is full.
    """
    with naming_a_full_disk(folder):
        came = _download(jar, incoming, progress)
        found = _sha256(came)
        if found != jar.sha256:
            came.unlink()
            raise DownloadError(
                f"{jar.coordinate} from {_repository()} has SHA-256 {found}, "
                f"but it should be {jar.sha256}.",
                remedy=f"Use another repository ({MIRROR_VARIABLE}); the file was thrown away.",
            )
        path = jar_path(jar, folder)
        os.replace(came, path)
    if not is_whole(jar, folder):
        raise DownloadError(f"{path} changed while it was fetched.", remedy="Fetch it again.")
    return path


def _download(jar: MavenJar, incoming: Path, progress: Progress) -> Path:
    import requests
    from jgo.maven import MavenContext, PythonResolver
    from tenacity import (
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        wait_exponential,
    )

    mirror = os.environ.get(MIRROR_VARIABLE)
    context = MavenContext(
        repo_cache=incoming,
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        resolver=PythonResolver(progress_callback=progress.transfer),
        timeout=_CONNECT_TIMEOUT_SECONDS,
    )
    # Only this artifact: resolving would read the POMs of its parents, and Paimon's cannot be had.
    project = context.project(jar.group, jar.artifact)
    artifact = project.at_version(jar.version).artifact(classifier=jar.classifier)

    def attempt() -> Path:
        # A file cut short by an earlier attempt would be taken for the whole one.
        (incoming / artifact.component.path_prefix / jar.file_name).unlink(missing_ok=True)
        return Path(artifact.resolve())

    retrying = Retrying(
        retry=retry_if_exception_type(requests.RequestException),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=0.25, max=2.0),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except requests.RequestException as error:
        raise DownloadError(
            f"{jar.coordinate} could not be fetched: no answer from {_repository()} "
            f"({type(error).__name__}).",
            remedy=f"Check the network, or name a Maven mirror in {MIRROR_VARIABLE}.",
        ) from error
    except RuntimeError as error:
        # jgo's word for "every repository answered, none with the file".
        raise DownloadError(
            f"{_repository()} does not have {jar.coordinate}.",
            remedy=f"Name a complete Maven mirror in {MIRROR_VARIABLE}.",
        ) from error


def _repository() -> str:
    """What to call the repository in messages, without a user name or password in its address."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    if not mirror:
        return "Maven Central"
    parts = urlsplit(mirror)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _verified_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            digest.update(block)
    return digest.hexdigest()

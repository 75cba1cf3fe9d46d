"""Everything a local stack needs, in the cache: the engine, its jars and a Java.

``python -m lakehouse_dagster.local.fetch [ENGINE…]`` fetches it ahead of time.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.local import jars, packages
from lakehouse_dagster.local.engines import DEFAULT_ENGINE, ClassPath, Engine, engine_named
from lakehouse_dagster.local.filesystem import lakehouse_home, locked, make_folder
from lakehouse_dagster.local.java import Java, fetch_java, fetched_java, installed_java
from lakehouse_dagster.local.progress import Progress, SilentProgress, progress_to

_LOCK_WAIT_SECONDS = 1800.0


@dataclass(frozen=True)
class InstalledEngine:
    """An engine that is ready to run: its folder, its jars by use, and a Java."""

    engine: Engine
    pyflink: Path
    jars: tuple[Path, ...]
    sql_gateway_jars: tuple[Path, ...]
    java: Java

    @property
    def lib(self) -> Path:
        """Flink's ``lib`` folder."""
        return self.pyflink / "lib"

    @property
    def opt(self) -> Path:
        """Flink's ``opt`` folder."""
        return self.pyflink / "opt"


@dataclass(frozen=True)
class _Cache:
    home: Path

    @property
    def jars(self) -> Path:
        return self.home / "jars"

    @property
    def packages(self) -> Path:
        return self.home / "packages"

    @property
    def incoming(self) -> Path:
        """Where half-fetched files live; only the holder of the lock uses it."""
        return self.home / "incoming"


def missing(engine_name: str = DEFAULT_ENGINE, *, home: Path | None = None) -> tuple[str, ...]:
    """What would have to be fetched before the engine can run, as requirements and coordinates."""
    engine = engine_named(engine_name)
    cache = _Cache(lakehouse_home(home))
    names: list[str] = []
    if _engine_folder(engine, cache) is None:
        names.append(engine.package.requirement)
    names += [jar.coordinate for jar in engine.jars if not jars.is_whole(jar, cache.jars)]
    java, _ = installed_java(engine.java_versions)
    if java is None and fetched_java(cache.packages) is None:
        names.append("a Java")
    return tuple(names)


def prefetch(
    engine_name: str = DEFAULT_ENGINE,
    progress: Progress | None = None,
    *,
    home: Path | None = None,
) -> InstalledEngine:
    """Make sure that the engine, its jars and a Java are in the cache, fetching what is missing.

    Args:
        engine_name: a name in ``ENGINES``.
        progress: told about every transfer; None says nothing.
        home: the cache folder; by default ``LAKEHOUSE_HOME`` or ``~/.cache/lakehouse``.

    Finished files are kept, damaged ones fetched again; an interrupted call goes on where it was,
    file by file. Two processes may call this at once.

    Raises DownloadError (no network, wrong file), JavaNotFoundError, StackError (disk full, cache
    not writable), ConfigurationError (unknown engine).
    """
    engine = engine_named(engine_name)
    progress = progress or SilentProgress()
    cache = _Cache(lakehouse_home(home))
    ready = _installed(engine, cache)
    if ready is not None:
        return ready
    for folder in (cache.home, cache.jars, cache.packages):
        make_folder(folder, purpose="the engine and its jars")
    with _fetching(cache, progress):
        # Another process may have done the work while we waited; whatever it finished is kept.
        java = _ensure_java(engine, cache, progress)
        pyflink = _ensure_engine(engine, cache, progress)
        for jar in engine.jars:
            if not jars.is_whole(jar, cache.jars):
                jars.fetch_jar(jar, cache.jars, cache.incoming, progress)
    return _assemble(engine, cache, pyflink, java)


@contextmanager
def _fetching(cache: _Cache, progress: Progress) -> Iterator[None]:
    def waiting() -> None:
        progress.message("another process is fetching into the cache; waiting for it")

    with locked(
        cache.home / "fetch.lock",
        wait_seconds=_LOCK_WAIT_SECONDS,
        on_wait=waiting,
        what=f"fetching into {cache.home}",
    ):
        # Left over from an interrupted fetch: nobody else is here while we hold the lock.
        shutil.rmtree(cache.incoming, ignore_errors=True)
        make_folder(cache.incoming, purpose="files being fetched")
        try:
            yield
        finally:
            shutil.rmtree(cache.incoming, ignore_errors=True)


def _installed(engine: Engine, cache: _Cache) -> InstalledEngine | None:
    pyflink = _engine_folder(engine, cache)
    if pyflink is None or not all(jars.is_whole(jar, cache.jars) for jar in engine.jars):
        return None
    java, _ = installed_java(engine.java_versions)
    java = java or fetched_java(cache.packages)
    return _assemble(engine, cache, pyflink, java) if java else None


def _assemble(engine: Engine, cache: _Cache, pyflink: Path, java: Java) -> InstalledEngine:
    def paths(use: ClassPath) -> tuple[Path, ...]:
        return tuple(jars.jar_path(jar, cache.jars) for jar in engine.jars if jar.class_path is use)

    return InstalledEngine(
        engine, pyflink, paths(ClassPath.ALL), paths(ClassPath.SQL_GATEWAY), java
    )


def _engine_folder(engine: Engine, cache: _Cache) -> Path | None:
    """The engine of the current environment when it is the very same one, else the cached one."""
    in_environment = _environment_folder(engine)
    if in_environment is not None:
        return in_environment
    needed = [f"pyflink/{name}" for name in engine.marker_jars]
    if packages.is_whole(engine.package, cache.packages, needed):
        return packages.package_folder(engine.package, cache.packages) / "pyflink"
    return None


def _environment_folder(engine: Engine) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(engine.package.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = Path(str(distribution.locate_file("pyflink")))
    if distribution.version != engine.package.version:
        return None
    return folder if all((folder / name).is_file() for name in engine.marker_jars) else None


def _ensure_engine(engine: Engine, cache: _Cache, progress: Progress) -> Path:
    found = _engine_folder(engine, cache)
    if found is not None:
        return found
    needed = [f"pyflink/{name}" for name in engine.marker_jars]
    folder = packages.fetch_package(
        engine.package, cache.packages, cache.incoming, needed, progress
    )
    return folder / "pyflink"


def _ensure_java(engine: Engine, cache: _Cache, progress: Progress) -> Java:
    java, rejected = installed_java(engine.java_versions)
    java = java or fetched_java(cache.packages)
    if java is not None:
        return java
    for one in rejected:
        progress.message(f"{one.where} {one.reason}, which Flink cannot use")
    return fetch_java(cache.packages, cache.incoming, engine.java_versions, rejected, progress)


def main(arguments: list[str] | None = None) -> int:
    """Fetch the engines named by the arguments (the default one without)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        for engine in [engine_named(name) for name in arguments or [DEFAULT_ENGINE]]:
            installed = prefetch(engine.name, progress_to())
            sys.stdout.write(
                f"{engine.name}: Flink {engine.flink_version}, Paimon {engine.paimon_version}, "
                f"Java {installed.java.version} are ready\n"
            )
    except LakehouseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

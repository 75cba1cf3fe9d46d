"""Reads Flink SQL scripts: text in, model out, no cluster and no catalog asked.

The reading itself happens in processes of its own (``worker``); what was read before is not read
again (``cache``). So whoever loads definitions never imports sqlglot.
"""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from lakehouse_dagster.sql.cache import ScriptCache, key_of
from lakehouse_dagster.sql.kept_reading import KeptReading
from lakehouse_dagster.sql.model import Location, Problem, Project, Script, Severity
from lakehouse_dagster.sql.project import read_units
from lakehouse_dagster.sql.transport import to_data
from lakehouse_dagster.sql.unit import (
    Asked,
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    SourceText,
    Unit,
    normalized,
    unit_of,
)
from lakehouse_dagster.sql.worker_pool import WorkerPool

_LARGEST_FILE_BYTES = 64 * 1024 * 1024


def read_script(
    path: str | Path,
    *,
    catalog: str = "lake",
    text: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Script:
    """Read one script by itself.

    Whatever the file holds, this returns: what cannot be used is a ``Problem`` with its place.

    Args:
        path: The file, and what locations call it.
        catalog: Name of the lake's catalog, current when the script begins.
        text: The script's text, if it is known already; then no file is opened.
        variables: The project's variables.

    Raises:
        ConfigurationError: The process that reads cannot be started.
    """
    opened = _opened(Path(path), str(path)) if text is None else SourceText(str(path), text)
    if isinstance(opened, Script):
        return opened
    file = SourceText(opened.path, normalized(opened.text))
    unit = unit_of([file], lambda included: _included(Path(), included))
    return _read([unit], ReadingContext(catalog, variables=dict(variables or {})), ()).scripts[-1]


def read_project(
    paths: Iterable[str | Path],
    *,
    catalog: str = "lake",
    base: str | Path | None = None,
    session: Sequence[str | Path] = (),
    sessions: Literal["file", "folder"] = "file",
    variables: Mapping[str, str] | None = None,
    other_catalogs: Mapping[str, tuple[str, ...]] | None = None,
) -> Project:
    """Read all scripts of a project and resolve names across them.

    Args:
        paths: The files, in any order; read sorted, so that the result does not depend on it.
        catalog: Name of the lake's catalog.
        base: Folder that locations are given relative to.
        session: Scripts that run, in this order, before each of the others in its session.
        sessions: Whether each file is a session, or the files of a folder, sorted, are one.
        variables: The project's variables.
        other_catalogs: Further Paimon catalogs of the project: key prefix of their tables by name.

    Raises:
        ConfigurationError: The process that reads cannot be started.
    """
    root = Path(base or "")
    shown_from = None if base is None else root.resolve()
    failed: list[Script] = []

    def unit(files: Iterable[Path]) -> Unit:
        opened = [_opened(path, _shown(path, shown_from)) for path in files]
        failed.extend(one for one in opened if isinstance(one, Script))
        texts = [one for one in opened if isinstance(one, SourceText)]
        return unit_of(texts, lambda included: _included(root, included))

    before = [Path(path) for path in session]
    own = sorted({Path(path) for path in paths} - set(before))
    groups = [[path] for path in own]
    if sessions == "folder":
        groups = [list(group) for _, group in itertools.groupby(own, lambda path: path.parent)]
    context = ReadingContext(
        catalog, unit(before), dict(variables or {}), dict(other_catalogs or {})
    )
    units = [found for found in map(unit, groups) if found.files]
    return _read(units, context, failed)


def _read(units: Sequence[Unit], context: ReadingContext, failed: Sequence[Script]) -> Project:
    cache = ScriptCache()
    key = key_of("project", to_data(context), [to_data(unit) for unit in units])
    with WorkerPool() as pool:
        reading = KeptReading(pool, cache)
        kept = reading.kept(cache.get(key) or ()) if units else None
        if kept:
            return _put_together(units, context, kept, failed)
        project = read_units(units, context, reading.declarations, reading.jobs, failed=failed)
    if all(reading.kept_as):
        cache.put(key, reading.kept_as)
    cache.prune()
    return project


def _put_together(
    units: Sequence[Unit],
    context: ReadingContext,
    readings: Sequence[Reading],
    failed: Sequence[Script],
) -> Project:
    """Nothing has changed since all was read: who declares what need not be found out again."""
    waiting = iter(readings)
    return read_units(
        units,
        context,
        lambda batch, *_: [Declarations(Externals(), Asked())] * len(batch),
        lambda batch, *_: list(itertools.islice(waiting, len(batch))),
        failed=failed,
    )


def _shown(path: Path, base: Path | None) -> str:
    if base is None:
        return path.as_posix()
    try:
        return path.resolve().relative_to(base).as_posix()
    except ValueError:
        return path.as_posix()


def _included(root: Path, path: str) -> str | None:
    opened = _opened(root / path, path)
    return opened.text if isinstance(opened, SourceText) else None


def _opened(path: Path, shown: str) -> SourceText | Script:
    """The text of a file, or a script that has nothing but the reason why it cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return _failed(shown, "The script is no file.", "Name a file.")
        if found.st_size > _LARGEST_FILE_BYTES:
            remedy = "Leave it out of the scripts."
            return _failed(shown, "The file is too large for a script (64 MiB).", remedy)
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _failed(shown, f"The script cannot be opened: {reason}.", "Check the path.")
    if b"\0" in content:
        return _failed(shown, "The file is binary, not SQL.", "Leave it out of the scripts.")
    try:
        return SourceText(shown, normalized(content.decode("utf-8")))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = "The file is not UTF-8 text."
        return _failed(shown, message, "Save it as UTF-8.", line, column)


def _failed(path: str, message: str, remedy: str, line: int = 1, column: int = 1) -> Script:
    problem = Problem(Location(path, line, column), Severity.ERROR, message, remedy)
    return Script(path=path, problems=(problem,))

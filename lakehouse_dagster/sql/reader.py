"""Reads Flink SQL scripts: text in, model out, no cluster and no catalog asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lakehouse_dagster.sql.model import Location, Problem, Project, Script, Severity
from lakehouse_dagster.sql.project import merge
from lakehouse_dagster.sql.script_reader import ScriptReader


def read_script(path: str | Path, *, catalog: str = "lake", text: str | None = None) -> Script:
    """Read one script.

    Whatever the file holds, this returns: what cannot be used is a ``Problem`` with its place.

    Args:
        path: The file, and what locations call it.
        catalog: Name of the lake's catalog, current when the script begins.
        text: The script's text, if it is known already; then no file is opened.

    Raises:
        ConfigurationError: The environment holds the compiled build of sqlglot.
    """
    return _read(Path(path), str(path), catalog, text)


def read_project(
    paths: Iterable[str | Path], *, catalog: str = "lake", base: str | Path | None = None
) -> Project:
    """Read all scripts of a project and resolve names across them.

    Args:
        paths: The files, in any order; read sorted, so that the result does not depend on it.
        catalog: Name of the lake's catalog.
        base: Folder that locations are given relative to.
    """
    scripts = []
    for path in sorted({Path(path) for path in paths}):
        scripts.append(_read(path, _shown(path, base), catalog, None))
    return merge(scripts, catalog=catalog)


def _shown(path: Path, base: str | Path | None) -> str:
    if base is None:
        return path.as_posix()
    try:
        return path.resolve().relative_to(Path(base).resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def _read(path: Path, shown: str, catalog: str, text: str | None) -> Script:
    if text is None:
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            return _failed(shown, f"The script cannot be opened: {reason}.", "Check the path.")
        if b"\0" in content:
            return _failed(shown, "The file is binary, not SQL.", "Leave it out of the scripts.")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            column = error.start - content.rfind(b"\n", 0, error.start)
            return _failed(shown, "The file is not UTF-8 text.", "Save it as UTF-8.", line, column)
    # A byte-order mark, and the line ends of other systems: Path.read_text would drop these.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return ScriptReader(text, shown, stem=path.stem, lake=catalog).read()


def _failed(path: str, message: str, remedy: str, line: int = 1, column: int = 1) -> Script:
    location = Location(path, line, column)
    return Script(path=path, problems=(Problem(location, Severity.ERROR, message, remedy),))

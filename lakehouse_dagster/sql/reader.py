"""Reads Flink SQL scripts: text in, model out, no cluster and no catalog asked.

The reading itself happens in a process of its own (``worker``); what was read before is not read
again (``cache``). So whoever loads definitions never imports sqlglot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse_dagster.sql.cache import ScriptCache, key_of
from lakehouse_dagster.sql.model import Location, Problem, Project, Script, Severity
from lakehouse_dagster.sql.project import merge
from lakehouse_dagster.sql.transport import from_data
from lakehouse_dagster.sql.worker_pool import Question, Unanswered, WorkerPool


@dataclass(frozen=True)
class _File:
    """A file's text, or the problem with it."""

    path: str
    stem: str
    text: str = field(default="", repr=False)
    problem: Problem | None = None


def read_script(path: str | Path, *, catalog: str = "lake", text: str | None = None) -> Script:
    """Read one script.

    Whatever the file holds, this returns: what cannot be used is a ``Problem`` with its place.

    Args:
        path: The file, and what locations call it.
        catalog: Name of the lake's catalog, current when the script begins.
        text: The script's text, if it is known already; then no file is opened.

    Raises:
        ConfigurationError: The process that reads cannot be started.
    """
    file = _opened(Path(path), str(path), text)
    return _read([file], catalog)[0]


def read_project(
    paths: Iterable[str | Path], *, catalog: str = "lake", base: str | Path | None = None
) -> Project:
    """Read all scripts of a project and resolve names across them.

    Args:
        paths: The files, in any order; read sorted, so that the result does not depend on it.
        catalog: Name of the lake's catalog.
        base: Folder that locations are given relative to.

    Raises:
        ConfigurationError: The process that reads cannot be started.
    """
    files = [_opened(path, _shown(path, base)) for path in sorted({Path(p) for p in paths})]
    return merge(_read(files, catalog))


def _read(files: Sequence[_File], catalog: str) -> list[Script]:
    """Read files from the cache, and by the process where they are not in it."""
    kept = ScriptCache()
    keys = [key_of("script", f.path, f.stem, f.text, catalog) for f in files]
    found = {
        number: kept.get(key)
        for number, (file, key) in enumerate(zip(files, keys, strict=True))
        if file.problem is None
    }
    missing = [number for number, data in found.items() if data is None]
    questions = [
        Question(
            "read",
            {"text": f.text, "path": f.path, "stem": f.stem},
            characters=len(f.text),
        )
        for f in (files[number] for number in missing)
    ]
    answers: list[Any] = []
    if questions:
        with WorkerPool() as pool:
            answers = pool.ask_all(questions, {"catalog": catalog})
    failed: dict[int, Unanswered] = {}
    for number, answer in zip(missing, answers, strict=True):
        if isinstance(answer, Unanswered):
            failed[number] = answer
            continue
        found[number] = answer["script"]
        if not answer["holds_secret"]:
            kept.put(keys[number], answer["script"])
    kept.prune()
    return [_script(f, found.get(n), failed.get(n)) for n, f in enumerate(files)]


def _script(file: _File, data: object, failed: Unanswered | None) -> Script:
    problem = file.problem
    if failed is not None:
        problem = _error(
            file.path,
            f"The script is not known: {failed.reason}.",
            "Split it, or leave it out of the scripts; if it is an ordinary one, please report it.",
        )
    if problem is not None:
        return Script(path=file.path, problems=(problem,))
    return from_data(Script, data)


def _shown(path: Path, base: str | Path | None) -> str:
    if base is None:
        return path.as_posix()
    try:
        return path.resolve().relative_to(Path(base).resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def _opened(path: Path, shown: str, text: str | None = None) -> _File:
    problem = None
    if text is None:
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"The script cannot be opened: {reason}."
            return _File(shown, path.stem, problem=_error(shown, message, "Check the path."))
        text, problem = _decoded(content, shown)
    # A byte-order mark, and the line ends of other systems: Path.read_text would drop these.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return _File(shown, path.stem, text, problem)


def _decoded(content: bytes, shown: str) -> tuple[str, Problem | None]:
    if b"\0" in content:
        remedy = "Leave it out of the scripts."
        return "", _error(shown, "The file is binary, not SQL.", remedy)
    try:
        return content.decode("utf-8"), None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = "The file is not UTF-8 text."
        return "", _error(shown, message, "Save it as UTF-8.", line, column)


def _error(path: str, message: str, remedy: str, line: int = 1, column: int = 1) -> Problem:
    return Problem(Location(path, line, column), Severity.ERROR, message, remedy)

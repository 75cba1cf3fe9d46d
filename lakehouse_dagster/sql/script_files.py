"""Which files the scripts of a project are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from lakehouse_dagster.errors import ConfigurationError

Scripts: TypeAlias = str | Path | Sequence[str | Path]
"""Files, folders (all ``.sql`` files below them) or glob patterns."""


def find_scripts(scripts: Scripts, base_folder: str | Path | None = None) -> list[Path]:
    """The script files that ``scripts`` names, sorted and each once.

    Raises ``ConfigurationError`` for a name that matches nothing.
    """
    base = Path(base_folder) if base_folder is not None else Path.cwd()
    named: Iterable[str | Path] = [scripts] if isinstance(scripts, str | Path) else scripts
    found: dict[Path, None] = {}
    for name in named:
        matches = sorted(_matches(base, Path(name)))
        if not matches:
            raise ConfigurationError(
                f"No SQL script matches {str(name)!r} below {base}.",
                remedy="Name a file, a folder with .sql files, or a pattern such as sql/**/*.sql.",
            )
        found.update((Path(os.path.normpath(path)), None) for path in matches)
    if not found:
        raise ConfigurationError("No SQL script was named.", remedy='Give scripts="sql/**/*.sql".')
    return list(found)


def _matches(base: Path, name: Path) -> Iterable[Path]:
    whole = base / name
    if whole.is_file():
        return [whole]
    if whole.is_dir():
        return whole.rglob("*.sql")
    # Only what the user wrote is a pattern: the folder below which it counts may hold brackets.
    root = Path(name.anchor) if name.is_absolute() else base
    pattern = str(name.relative_to(name.anchor)) if name.is_absolute() else str(name)
    return (path for path in root.glob(pattern) if path.is_file())

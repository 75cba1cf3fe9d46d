"""A SQLite file that somebody else writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Nobody else writes while the block runs; a write that is under way is waited for."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            holder.execute("ROLLBACK")

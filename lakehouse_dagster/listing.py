"""Lists in texts for people: short however long they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

NAMES_TOLD = 10
_LIKENESS = 0.75


def some(names: Sequence[str], separator: str = ", ", *, most: int = NAMES_TOLD) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    told = separator.join(names[:most])
    return f"{told} and {more} more" if more > 0 else told


def tables_meant(name: str, known: Collection[str]) -> str:
    """The remedy for a table that there is not: those that are called alike, or which there are."""
    meant = get_close_matches(name, known, n=3, cutoff=_LIKENESS)
    if meant:
        return f"Did you mean {' or '.join(meant)}?"
    return f"Tables of the project: {some(sorted(known)) or 'none'}."

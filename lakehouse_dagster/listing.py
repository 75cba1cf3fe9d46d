"""Lists in texts for people: short however long they are."""

from __future__ import annotations

from collections.abc import Sequence

NAMES_TOLD = 10


def some(names: Sequence[str], separator: str = ", ", *, most: int = NAMES_TOLD) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    told = separator.join(names[:most])
    return f"{told} and {more} more" if more > 0 else told

"""What a sensor leaves to its next tick, stored by Dagster as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

C = TypeVar("C", bound="Cursor")
T = TypeVar("T")


class Cursor(BaseModel):
    """A small cursor whose loss does no harm."""

    @classmethod
    def parse(cls: type[C], text: str | None) -> C:
        """Read a stored cursor; one that is damaged or of another version counts as none."""
        if not text:
            return cls()
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return cls()

    def stored(self) -> str:
        """The text that ``parse`` reads: without what has its default, so that it is small."""
        return self.model_dump_json(exclude_defaults=True)


def in_turn(items: Sequence[T], rotation: int, most: int) -> Sequence[T]:
    """At most so many of the items: those whose turn it is in the ``rotation``-th tick."""
    if not items or most <= 0:
        return ()
    start = rotation * most % len(items)
    return [*items, *items][start : start + min(most, len(items))]

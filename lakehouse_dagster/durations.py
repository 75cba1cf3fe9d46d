"""Durations as users write them: ``30s``, ``10m``, ``12h``, ``1d``, ``1d12h``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import ConfigurationError

if TYPE_CHECKING:
    from pendulum import Duration

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_CENTURY_SECONDS = 36525 * 86400.0
"""What is subtracted from now must not leave the calendar."""


def duration(value: str | timedelta | Duration, *, what: str = "duration") -> Duration:
    """Turn ``"1d12h"`` (or a ``timedelta``) into a ``pendulum.Duration``.

    Raises ``ConfigurationError`` naming ``what`` when the text is not a duration.
    """
    import pendulum

    if isinstance(value, timedelta):
        return pendulum.duration(seconds=value.total_seconds())
    # In lower case only: who writes 3M means months, which have no one length.
    parts = _PART.findall(value)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not parts or _PART.sub("", value).strip():
        raise ConfigurationError(
            f"{what} is {value!r}, which is not a duration.",
            remedy="Write a number with a unit (ms, s, m, h, d, w), such as 30s, 12h or 1d12h.",
        )
    if seconds > _CENTURY_SECONDS:
        raise ConfigurationError(
            f"{what} is {value!r}, which is longer than a century.",
            remedy="Write a shorter one, such as 3650d.",
        )
    return pendulum.duration(seconds=seconds)


def in_words(seconds: float) -> str:
    """Seconds in the notation that :func:`duration` reads, rounded to two units: ``3m20s``."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    words: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words[:2]) or "0s"

"""Which day or time a partition is of, read from the value of one of its columns."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import lru_cache

from lakehouse_dagster.errors import ConfigurationError

_REMEMBERED_TIMES = 65_536
"""Reading ten thousand partition values as times takes longer than all else that is decided."""
_SAMPLES = tuple(datetime(*day, tzinfo=timezone.utc) for day in ((1987, 11, 23), (2026, 2, 14)))
"""They differ in everything that a format can say of a day."""


def check_format(written: object) -> None:
    """Refuse a ``strptime`` format that cannot be read, or from which no day follows.

    Without a year, say, every value would be of 1900, and every partition long past.

    Raises:
        ConfigurationError: says what is wrong and what to write.
    """
    remedy = "Write year, month and day as strptime does, such as %Y%m%d or %Y-%m-%d %H."
    try:
        fixed = isinstance(written, str) and all(
            datetime.strptime(day.strftime(written), written).date() == day.date()
            for day in _SAMPLES
        )
    except (ValueError, re.error) as error:
        why = str(error).rstrip(".")
        raise ConfigurationError(
            f"The format of expiring partitions is {written!r}, which cannot be read: {why}.",
            remedy=remedy,
        ) from None
    if not fixed:
        raise ConfigurationError(
            f"The format of expiring partitions is {written!r}, from which no day follows.",
            remedy=remedy,
        )


@lru_cache(_REMEMBERED_TIMES)
def time_of(value: str | None, written: str) -> datetime | None:
    """The time that a partition's value says, UTC unless it says otherwise; None where it is none.

    Args:
        value: of the partition's column; None for NULL.
        written: its format, as ``strptime`` takes it.
    """
    if value is None:
        return None
    try:
        at = datetime.strptime(value, written)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)

"""Which day or time a partition is of, read from the value of one of its columns."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache

from lakehouse_dagster.errors import ConfigurationError

_REMEMBERED_TIMES = 65_536
"""Reading ten thousand partition values as times takes longer than all else that is decided."""
_SAMPLES = tuple(datetime(*day, tzinfo=timezone.utc) for day in ((1987, 11, 23), (2026, 2, 14)))
"""They differ in everything that a format can say of a day."""


class _Covers(Enum):
    """What a partition covers, as far as the format of its values tells."""

    DAY = "day"
    MONTH = "month"
    YEAR = "year"

    def begins(self, at: datetime) -> datetime:
        """The first day of what covers this time."""
        if self is _Covers.DAY:
            return at
        return at.replace(day=1) if self is _Covers.MONTH else at.replace(month=1, day=1)

    def last_day(self, at: datetime) -> datetime:
        """The last day of it; nothing in the partition is of a later one."""
        if self is _Covers.DAY:
            return at
        month = at.month if self is _Covers.MONTH else 12
        return at.replace(month=month, day=monthrange(at.year, month)[1])


def check_format(written: object) -> None:
    """Refuse a ``strptime`` format that cannot be read, or from which no time follows.

    Without a year, say, every value would be of 1900, and every partition long past.

    Raises:
        ConfigurationError: says what is wrong and what to write.
    """
    remedy = "Write it as strptime takes it, with the year, such as %Y%m%d, %Y-%m-%d %H or %Y%m."
    try:
        covers = _covers(written) if isinstance(written, str) else None
    except (ValueError, re.error) as error:
        why = str(error).rstrip(".")
        raise ConfigurationError(
            f"The format of expiring partitions is {written!r}, which cannot be read: {why}.",
            remedy=remedy,
        ) from None
    if covers is None:
        raise ConfigurationError(
            f"The format of expiring partitions is {written!r}, from which no day, month or year "
            "follows.",
            remedy=remedy,
        )


@lru_cache
def _covers(written: str) -> _Covers | None:
    """What values of this format tell apart; None where they do not tell the year, or more."""
    for covers in _Covers:
        if all(
            day.strftime(written) == covers.begins(day).strftime(written)
            and datetime.strptime(day.strftime(written), written).date()
            == covers.begins(day).date()
            for day in _SAMPLES
        ):
            return covers
    return None


@lru_cache(_REMEMBERED_TIMES)
def time_of(value: str | None, written: str) -> datetime | None:
    """The time that a partition's value says, UTC unless it says otherwise; None where it is none.

    Of a month or a year it is the last day: what is in it is as young as that.

    Args:
        value: of the partition's column; None for NULL.
        written: its format, as ``strptime`` takes it.
    """
    if value is None:
        return None
    try:
        at = datetime.strptime(value, written)
        covers = _covers(written)
    except ValueError:
        return None
    if covers is not None:
        at = covers.last_day(at)
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)

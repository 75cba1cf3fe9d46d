"""What a user declares about the partitions of a table: by time, from a list, or as they appear.

Nothing here knows a table; ``partition_keys.py`` puts a declaration and a table together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakehouse_dagster.errors import ConfigurationError

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
"""What Paimon calls the partition of NULL (its table option ``partition.default-name``)."""
LONGEST_KEY = 255
_SAMPLES = 800
"""So many windows must be told apart by a format: two years of days, a month of hours."""


class Every(str, Enum):
    """How long the window of a time partition is."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    """Begins on the weekday of ``start``."""
    MONTH = "month"

    @classmethod
    def read(cls, written: object) -> Every:
        """Raises ``ConfigurationError`` with what may be written instead."""
        try:
            return cls(written)
        except ValueError:
            raise ConfigurationError(
                f"partitions.every is {written!r}.",
                remedy=f"Write one of: {', '.join(every.value for every in cls)}.",
            ) from None

    def step(self, moment: datetime, windows: int) -> datetime:
        """The beginning of the window so many windows after one that begins at ``moment``."""
        if self is Every.MONTH:
            months = moment.year * 12 + moment.month - 1 + windows
            return moment.replace(year=months // 12, month=months % 12 + 1)
        return moment + windows * _LENGTHS[self]


_LENGTHS = {
    Every.HOUR: timedelta(hours=1),
    Every.DAY: timedelta(days=1),
    Every.WEEK: timedelta(weeks=1),
}


@dataclass(frozen=True)
class TimePartitions:
    """A partition for each hour, day, week or month, written in one column or spread over several.

    Args:
        columns: each column with the strftime format of its values, such as
            ``{"dt": "%Y%m%d", "hh": "%H"}``. ``%-d`` and the like stand for numbers without a
            leading zero.
        every: the length of a window.
        start: the first window, as its Dagster key: the formatted columns joined by ``-``.
        end_offset: so many windows that are not over yet are partitions too; 1 shows today's.
        timezone: in which the values are to be read.

    Raises:
        ConfigurationError: the formats cannot tell one window from the next or be read back, or
            the first window does not fit them.
    """

    columns: Mapping[str, str]
    every: Every
    start: str
    end_offset: int = 0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        object.__setattr__(self, "every", Every.read(self.every))
        object.__setattr__(self, "start", str(self.start))
        if not self.columns:
            raise ConfigurationError(
                "partitions.columns is empty.", remedy='Write {column: dt, format: "%Y%m%d", …}.'
            )
        if not isinstance(self.end_offset, int) or self.end_offset < 0:
            raise ConfigurationError(
                f"partitions.end_offset is {self.end_offset!r}.",
                remedy="It is a number of windows: 0, or 1 to show the one that is still open.",
            )
        self._check_formats()
        self._check_zone()

    def __hash__(self) -> int:
        return hash((tuple(self.columns.items()), self.every, self.start, self.timezone))

    @property
    def key_format(self) -> str:
        """The format of the Dagster keys, which Python can also read back."""
        return "-".join(padded(fmt) for fmt in self.columns.values())

    @property
    def first(self) -> datetime:
        """When the first window begins, in the partitions' time zone, without it."""
        return datetime.strptime(self.start, self.key_format)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def begins(self, moment: datetime) -> bool:
        """Whether a window begins at this moment."""
        if moment.second or moment.microsecond or moment.minute:
            return False
        if self.every is Every.HOUR:
            return True
        if moment.hour:
            return False
        if self.every is Every.WEEK:
            return moment.weekday() == self.first.weekday()
        return self.every is Every.DAY or moment.day == 1

    def _check_formats(self) -> None:
        example = datetime(2026, 1, 1)
        for column, fmt in self.columns.items():
            if "%" not in str(fmt):
                raise ConfigurationError(
                    f"partitions.format of {column} is {fmt!r}, which holds no time.",
                    remedy='Write a strftime format, such as "%Y%m%d".',
                )
        if _REFUSED_BY_DAGSTER.search(self.key_format):
            raise ConfigurationError(
                f"partitions.format {self.key_format!r} has characters that no key can have.",
                remedy="Leave out '|', '...' and control characters.",
            )
        try:
            first = self.first
        except ValueError as error:
            _refuse_unreadable(self.key_format, example)
            raise ConfigurationError(
                f"partitions.start is {self.start!r}, which does not fit the format "
                f"{self.key_format!r}: {error}.",
                remedy=f'Write it in that format, such as "{example.strftime(self.key_format)}".',
            ) from None
        if not self.begins(first):
            raise ConfigurationError(
                f"partitions.start is {self.start!r}, at which no {self.every.value} begins.",
                remedy="Let it be the first of a month."
                if self.every is Every.MONTH
                else f"Let it be the beginning of a {self.every.value}.",
            )
        for moment in (self.every.step(first, n) for n in range(_SAMPLES)):
            if _read_back(moment, self.key_format) != moment:
                raise ConfigurationError(
                    f"partitions.format {self.key_format!r} does not tell every {self.every.value} "
                    f"from the others: {moment:%Y-%m-%d %H:%M} becomes "
                    f"{moment.strftime(self.key_format)!r}, which is read as "
                    f"{_read_back(moment, self.key_format) or 'no time'}.",
                    remedy="Give all that makes up the window, such as "
                    + (
                        '"%Y%m%d%H", or columns: {dt: "%Y%m%d", hh: "%H"}.'
                        if self.every is Every.HOUR
                        else '"%Y%m" for months or "%Y%m%d" for days and weeks.'
                    ),
                )

    def _check_zone(self) -> None:
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError(
                f"partitions.timezone is {self.timezone!r}, which is no time zone.",
                remedy="Write one such as UTC or Asia/Shanghai.",
            ) from None
        year = max(self.first.year, 2020)
        winter, summer = (datetime(year, month, 1, tzinfo=zone) for month in (1, 7))
        if self.every is Every.HOUR and winter.utcoffset() != summer.utcoffset():
            raise ConfigurationError(
                f"partitions.timezone is {self.timezone}, where clocks are put back: one hour of "
                "the year would be two.",
                remedy="Write the hours in UTC.",
            )


@dataclass(frozen=True)
class StaticPartitions:
    """One partition for each of these values of a column; None stands for NULL.

    Raises:
        ConfigurationError: there is no value, or one twice, or one is too long for a key.
    """

    column: str
    values: tuple[str | None, ...]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not self.values:
            raise ConfigurationError(
                f"partitions.values of {self.column} is {self.values!r}.",
                remedy="Write a list of values, such as [eu, us].",
            )
        values = tuple(value_text(value) for value in self.values)
        object.__setattr__(self, "values", values)
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ConfigurationError(
                f"partitions.values of {self.column} has {', '.join(twice)} more than once.",
                remedy="Name each value once; NULL, an empty text and a blank one are the same.",
            )
        long = [value for value in values if len(escaped(value)) > LONGEST_KEY]
        if long:
            raise ConfigurationError(
                f"partitions.values of {self.column} has a value of {len(long[0])} characters.",
                remedy=f"A partition's key has at most {LONGEST_KEY}.",
            )


@dataclass(frozen=True)
class DynamicPartitions:
    """Partitions that are added as they appear in the table.

    Args:
        columns: the columns whose values make up the key; none: all partition columns of the
            table. The key of one column is its value, of several ``dt=20260101/region=eu``.
    """

    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))


Dimension: TypeAlias = TimePartitions | StaticPartitions | DynamicPartitions


@dataclass(frozen=True)
class TablePartitions:
    """How the partitions of a table become those of its asset: in one dimension or in two.

    ``TablePartitions.read({"column": "dt", "every": "day", "format": "%Y%m%d", "start":
    "20260101"})`` is the same as in YAML.

    Raises:
        ConfigurationError: more than Dagster can show; the message says what to write instead.
    """

    dimensions: tuple[Dimension, ...] = field()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        one = 'Write {dynamic: true}: all columns make up one key, such as "dt=20260101/region=eu".'
        if not 1 <= len(self.dimensions) <= 2:
            raise ConfigurationError(
                f"partitions has {len(self.dimensions)} dimensions; Dagster shows one or two.",
                remedy=one,
            )
        for kind, what in ((TimePartitions, "time"), (DynamicPartitions, "dynamic")):
            if sum(isinstance(dimension, kind) for dimension in self.dimensions) > 1:
                remedy = "Put its columns together: columns: {dt: …, hh: …}."
                raise ConfigurationError(
                    f"partitions has two {what} dimensions.",
                    remedy=remedy if kind is TimePartitions else one,
                )
        named = list(self.columns)
        if len(named) != len(set(named)):
            raise ConfigurationError(
                f"partitions names a column twice: {', '.join(named)}.",
                remedy="Each column belongs to one dimension.",
            )

    @property
    def columns(self) -> Iterator[str]:
        """The columns that are named, in order."""
        for dimension in self.dimensions:
            yield from (
                (dimension.column,)
                if isinstance(dimension, StaticPartitions)
                else dimension.columns
            )

    @classmethod
    def read(cls, written: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> TablePartitions:
        """From what stands in YAML: a mapping for one dimension, a list of them for two.

        Raises:
            ConfigurationError: a field that there is not, or one that is missing or wrong.
        """
        from lakehouse_dagster.streaming.partitions_written import read_dimensions

        return cls(read_dimensions(written))


def _refuse_unreadable(fmt: str, example: datetime) -> None:
    """A format that Python can write and cannot read is to blame before the start is."""
    try:
        datetime.strptime(example.strftime(fmt), fmt)
    except ValueError as error:
        raise ConfigurationError(
            f"partitions.format {fmt!r} cannot be read back: {error}.",
            remedy="Use directives that Python's strptime knows, such as %Y, %m, %d and %H.",
        ) from None


def _read_back(moment: datetime, fmt: str) -> datetime | None:
    try:
        return datetime.strptime(moment.strftime(fmt), fmt)
    except ValueError:
        return None


def padded(fmt: str) -> str:
    """A format to read with: ``%d`` reads a number without a leading zero, ``%-d`` nothing."""
    return re.sub(r"(?<!%)((?:%%)*)%-(?=[A-Za-z])", r"\1%", fmt)


_REFUSED_BY_DAGSTER = re.compile(r"\||\.\.\.|[\x00-\x1f\x7f]")
"""Dagster refuses these in partition keys, or parts keys by them."""
_REFUSED = re.compile(rf"%|{_REFUSED_BY_DAGSTER.pattern}")
_REFUSED_IN_PARTS = re.compile(rf"{_REFUSED.pattern}|[/=]")


def escaped(text: str, *, among_others: bool = False) -> str:
    """A value as it may stand in a Dagster key: what Dagster refuses is percent-encoded.

    ``among_others``: it is one of several values of a key, told apart by ``/`` and ``=``.
    """
    pattern = _REFUSED_IN_PARTS if among_others else _REFUSED
    return pattern.sub(lambda found: "".join(f"%{ord(c):02X}" for c in found[0]), text)


def value_text(value: object) -> str:
    """A partition's value as text; NULL, empty and blank ones are Paimon's default partition."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return DEFAULT_PARTITION
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime) and value.microsecond and value.microsecond % 1000 == 0:
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)

"""The partitions of one table and the partition keys of its asset: each from the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.partitions import (
    DEFAULT_PARTITION,
    LONGEST_KEY,
    Dimension,
    DynamicPartitions,
    StaticPartitions,
    TablePartitions,
    TimePartitions,
    escaped,
    padded,
    value_text,
)

if TYPE_CHECKING:
    import dagster as dg

Partition = Mapping[str, object]
"""The value of each partition column, in the table's order, as Paimon keeps it; None is NULL."""

_DAY = timedelta(days=1)
_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT")


@dataclass(frozen=True)
class PartitionKeys:
    """What a declaration means for one table.

    Args:
        table: ``database.table``.
        declared: the partitions that were declared for it.
        columns: its partition columns in its own order, each with its Flink type (empty where it
            is not known).
        namespace: comes first in the names of dynamic partitions, which all projects of a Dagster
            instance share: the asset key.

    Raises:
        ConfigurationError: the declaration does not fit the table.
    """

    table: str
    declared: TablePartitions
    columns: Mapping[str, str] = field(hash=False)
    namespace: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self.columns))
        where = f"tables.{self.table}.partitions"
        if not self.columns:
            raise ConfigurationError(
                f"{where} is given, but the table has no partitions.",
                remedy="Leave it out, or create the table PARTITIONED BY (…).",
            )
        named, known = list(self.declared.columns), ", ".join(self.columns)
        if unknown := [column for column in named if column not in self.columns]:
            raise ConfigurationError(
                f"{where} names {', '.join(unknown)}, by which the table is not partitioned.",
                remedy=f"It is partitioned by {known}.",
            )
        missing = [column for column in self.columns if column not in named]
        if missing and not any(self._columns(dim) == () for dim in self.declared.dimensions):
            raise ConfigurationError(
                f"{where} leaves out {', '.join(missing)}: the table is partitioned by {known}.",
                remedy="Add a dimension for the rest, or write {dynamic: true} for all of them.",
            )
        if len(self._by_name) < len(self.declared.dimensions):
            raise ConfigurationError(
                f"{where} has two dimensions of one name, {next(iter(self._by_name))}.",
                remedy="Write {dynamic: true}: all columns make up one key.",
            )
        if missing == [] and len(named) and () in map(self._columns, self.declared.dimensions):
            raise ConfigurationError(
                f"{where} leaves no column for its dynamic dimension.",
                remedy="Leave that dimension out.",
            )

    # -- to Dagster's key, and back -----------------------------------------------------------

    def key_of(self, partition: Partition) -> str | None:
        """The Dagster key of a partition; None where it is outside what was declared.

        Of two dimensions the keys are joined as Dagster does it, by ``|`` in the order of their
        names.
        """
        parts = []
        for dimension in self._by_name.values():
            part = self._part(dimension, partition)
            if part is None or len(part) > LONGEST_KEY:
                return None
            parts.append(part)
        return "|".join(parts)

    def partition_of(self, key: str) -> dict[str, object]:
        """The partition of a Dagster key: a value for each column, in the table's order."""
        found: dict[str, object] = {}
        for dimension, part in zip(self._by_name.values(), key.split("|"), strict=True):
            if isinstance(dimension, TimePartitions):
                moment = datetime.strptime(part, dimension.key_format)
                for column, fmt in dimension.columns.items():
                    found[column] = self._time_value(column, moment, fmt)
                continue
            columns = self._all_columns(dimension)
            texts = [part] if len(columns) == 1 else [t.split("=")[1] for t in part.split("/")]
            for column, text in zip(columns, texts, strict=True):
                found[column] = self._value(column, unquote(text))
        return {column: found[column] for column in self.columns}

    def _part(self, dimension: Dimension, partition: Partition) -> str | None:
        if isinstance(dimension, TimePartitions):
            return self._time_part(dimension, partition)
        columns = self._all_columns(dimension)
        if isinstance(dimension, StaticPartitions):
            text = value_text(partition[columns[0]])
            return escaped(text) if text in dimension.values else None
        if len(columns) == 1:
            return escaped(value_text(partition[columns[0]]))
        several = ((column, value_text(partition[column])) for column in columns)
        return "/".join(
            f"{escaped(column, among_others=True)}={escaped(text, among_others=True)}"
            for column, text in several
        )

    def _time_part(self, dimension: TimePartitions, partition: Partition) -> str | None:
        values = {column: partition[column] for column in dimension.columns}
        moment = _moment(dimension, tuple(values.values()))
        if moment is None or not dimension.begins(moment) or moment < dimension.first:
            return None
        # `1` and `01` are two partitions of a text column: only one of them is declared.
        if all(_is(values[c], moment, fmt) for c, fmt in dimension.columns.items()):
            return moment.strftime(dimension.key_format)
        return None

    def _time_value(self, column: str, moment: datetime, fmt: str) -> object:
        kind = _root(self.columns[column])
        if kind == "DATE":
            return moment.date()
        text = moment.strftime(fmt)
        if kind.startswith("TIMESTAMP"):
            return datetime.strptime(text, padded(fmt))
        return self._value(column, text)

    def _value(self, column: str, text: str) -> object:
        """A value of the column's type; of types that are seldom partitioned by, its text."""
        if text == DEFAULT_PARTITION:
            return None
        kind = _root(self.columns[column])
        if kind in _WHOLE_NUMBERS:
            return int(text)
        if kind == "BOOLEAN":
            return text == "true"
        if kind == "DATE":
            return date.fromisoformat(text)
        return datetime.fromisoformat(text) if kind.startswith("TIMESTAMP") else text

    # -- time ---------------------------------------------------------------------------------

    def window(self, key: str) -> tuple[datetime, datetime] | None:
        """When the window of a time partition begins and ends; None for what has no time."""
        if self._time is None:
            return None
        name, dimension = self._time
        part = key.split("|")[list(self._by_name).index(name)]
        return _window(dimension, datetime.strptime(part, dimension.key_format))

    def listed(self, key: str, now: datetime) -> bool:
        """Whether Dagster has this partition now: its window has ended, or may still be open."""
        window = self.window(key)
        if window is None or self._time is None:
            return True
        _, dimension = self._time
        local = window[0].replace(tzinfo=None)
        last_open = dimension.every.step(local, 1 - dimension.end_offset)
        return last_open.replace(tzinfo=dimension.zone) <= now

    def has_begun(self, key: str, now: datetime) -> bool:
        """Whether the partition's window may have data; clocks may differ by a day."""
        window = self.window(key)
        return window is None or window[0] <= now + _DAY or self.listed(key, now)

    def order(self, key: str) -> tuple[datetime | None, str]:
        """Sorts keys oldest first."""
        window = self.window(key)
        return (window[0] if window else None, key)

    # -- Dagster's definition -----------------------------------------------------------------

    def definition(self) -> dg.PartitionsDefinition[Any]:
        """The partitions of the asset."""
        import dagster as dg

        made = {name: self._definition(name, dim) for name, dim in self._by_name.items()}
        return next(iter(made.values())) if len(made) == 1 else dg.MultiPartitionsDefinition(made)

    def _definition(self, name: str, dimension: Dimension) -> dg.PartitionsDefinition[Any]:
        import dagster as dg

        if isinstance(dimension, StaticPartitions):
            return dg.StaticPartitionsDefinition([escaped(str(v)) for v in dimension.values])
        if isinstance(dimension, DynamicPartitions):
            return dg.DynamicPartitionsDefinition(name=self._dynamic_name(name))
        weekday = (dimension.first.weekday() + 1) % 7  # cron counts from Sunday
        cron = {"hour": "0 * * * *", "day": "0 0 * * *", "month": "0 0 1 * *"}
        return dg.TimeWindowPartitionsDefinition(
            start=dimension.start,
            fmt=dimension.key_format,
            end_offset=dimension.end_offset,
            timezone=dimension.timezone,
            cron_schedule=cron.get(dimension.every.value, f"0 0 * * {weekday}"),
        )

    def dynamic(self, keys: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """The name of the dynamic partitions and the ones that these keys need; None without."""
        for index, (name, dimension) in enumerate(self._by_name.items()):
            if isinstance(dimension, DynamicPartitions):
                parts = (key.split("|")[index] for key in keys)
                return self._dynamic_name(name), tuple(dict.fromkeys(parts))
        return None

    def event_key(self, key: str) -> str:
        """The key as an event carries it: of two dimensions, one that knows them."""
        import dagster as dg

        if len(self._by_name) == 1:
            return key
        return dg.MultiPartitionKey(dict(zip(self._by_name, key.split("|"), strict=True)))

    def _dynamic_name(self, dimension: str) -> str:
        return f"{self.namespace or self.table}/{dimension}"

    # -- dimensions ---------------------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[str, Dimension]:
        """The dimensions by name, in the order in which Dagster joins their keys."""
        named = {self._name(dimension): dimension for dimension in self.declared.dimensions}
        return dict(sorted(named.items()))

    @cached_property
    def _time(self) -> tuple[str, TimePartitions] | None:
        found = ((n, dim) for n, dim in self._by_name.items() if isinstance(dim, TimePartitions))
        return next(found, None)

    def _name(self, dimension: Dimension) -> str:
        return "_".join(re.sub(r"\W", "_", column) for column in self._all_columns(dimension))

    def _all_columns(self, dimension: Dimension) -> tuple[str, ...]:
        return self._columns(dimension) or tuple(
            column for column in self.columns if column not in set(self.declared.columns)
        )

    @staticmethod
    def _columns(dimension: Dimension) -> tuple[str, ...]:
        if isinstance(dimension, StaticPartitions):
            return (dimension.column,)
        return tuple(dimension.columns)


def in_words(partition: Partition) -> str:
    """A partition as Paimon's folders name it, such as ``dt=20260101/hour=7``; NULL is NULL."""
    return "/".join(f"{k}={'NULL' if v is None else v}" for k, v in partition.items())


@lru_cache(maxsize=20_000)
def _window(dimension: TimePartitions, begins: datetime) -> tuple[datetime, datetime]:
    ends = dimension.every.step(begins, 1)
    return begins.replace(tzinfo=dimension.zone), ends.replace(tzinfo=dimension.zone)


def _moment(dimension: TimePartitions, values: tuple[object, ...]) -> datetime | None:
    """When the window of these values begins, without time zone; None if they say no time."""
    first = values[0]
    if len(values) == 1 and isinstance(first, date):
        if isinstance(first, datetime):
            return first.replace(tzinfo=None)
        return datetime(first.year, first.month, first.day)
    texts = []
    for value, fmt in zip(values, dimension.columns.values(), strict=True):
        if isinstance(value, int):
            texts.append(str(value).zfill(len(dimension.first.strftime(padded(fmt)))))
        else:
            texts.append(value.strftime(fmt) if isinstance(value, date) else value_text(value))
    try:
        return datetime.strptime("-".join(texts), dimension.key_format)
    except ValueError:
        return None


def _is(value: object, moment: datetime, fmt: str) -> bool:
    """Whether a column holds this value in the window that begins at ``moment``."""
    text = moment.strftime(fmt)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) == datetime.strptime(text, padded(fmt))
    if isinstance(value, date):
        return value == moment.date()
    if isinstance(value, int):
        return text.isdigit() and int(text) == value
    return value == text


def _root(flink_type: str) -> str:
    return re.split(r"[\s(]", flink_type.strip().upper(), maxsplit=1)[0]

"""Reads the partitions of a table as they stand in YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.partitions import (
    Dimension,
    DynamicPartitions,
    Every,
    StaticPartitions,
    TimePartitions,
    value_text,
)

_FIELDS = (
    "column", "columns", "every", "format", "start", "end_offset", "timezone", "values", "dynamic",
)  # fmt: skip
_OF_TIME = ("every", "format", "start", "end_offset", "timezone")


def read_dimensions(written: object) -> tuple[Dimension, ...]:
    """A mapping for one dimension, a list of them for two.

    Raises:
        ConfigurationError: a field that there is not, or one that is missing or wrong.
    """
    several = [written] if isinstance(written, Mapping) else written
    if isinstance(several, str) or not isinstance(several, Sequence):
        raise _unreadable(written)
    return tuple(_dimension(one) for one in several)


def _dimension(written: object) -> Dimension:
    if not isinstance(written, Mapping):
        raise _unreadable(written)
    unknown = [str(name) for name in written if name not in _FIELDS]
    if unknown:
        raise ConfigurationError(
            f"partitions has no field {', '.join(unknown)}.",
            remedy=f"Its fields are {', '.join(_FIELDS)}.",
            field=(unknown[0],),
        )
    kinds = [
        kind
        for kind, said in (
            ("every", "every" in written),
            ("values", "values" in written),
            ("dynamic", written.get("dynamic") is True),
        )
        if said
    ]
    if len(kinds) != 1:
        raise ConfigurationError(
            f"partitions says {' and '.join(kinds)} at once."
            if kinds
            else "partitions says neither every, values nor dynamic.",
            remedy="Write one of every: day, values: [eu, us] and dynamic: true.",
        )
    if kinds != ["every"] and (wrong := [name for name in _OF_TIME if name in written]):
        raise ConfigurationError(
            f"partitions.{wrong[0]} goes with every, not with {kinds[0]}.",
            remedy=f"Leave out {', '.join(wrong)}.",
        )
    if kinds == ["values"]:
        return StaticPartitions(_one_column(written), _values(written["values"]))
    return _time(written) if kinds == ["every"] else DynamicPartitions(_names(written))


def _time(written: Mapping[str, Any]) -> TimePartitions:
    columns = written.get("columns")
    if columns is None:
        columns = {_one_column(written): written.get("format")}
    elif not isinstance(columns, Mapping) or "column" in written or "format" in written:
        raise ConfigurationError(
            f"partitions.columns is {columns!r}.",
            remedy='Give each column its format: columns: {dt: "%Y%m%d", hh: "%H"}.',
        )
    for name, value in (
        ("format", next(iter(columns.values()), 1)),
        ("start", written.get("start")),
    ):
        if value is None:
            raise ConfigurationError(
                f"partitions.{name} is missing.",
                remedy='Write {column: dt, every: day, format: "%Y%m%d", start: "20260101"}.',
            )
    offset = written.get("end_offset", 0)
    if isinstance(offset, str) and re.fullmatch(r"\d+", offset.strip()):
        offset = int(offset)
    return TimePartitions(
        {str(name): str(fmt) for name, fmt in columns.items()},
        Every.read(written["every"]),
        str(written["start"]),
        offset,
        str(written.get("timezone", "UTC")),
    )


def _one_column(written: Mapping[str, Any]) -> str:
    column = written.get("column")
    if not isinstance(column, str) or not column or "columns" in written:
        raise ConfigurationError(
            "partitions.column is missing." if not column else f"partitions.column is {column!r}.",
            remedy="Name one partition column of the table, such as column: dt.",
        )
    return column


def _names(written: Mapping[str, Any]) -> tuple[str, ...]:
    if "column" in written:
        return (_one_column(written),)
    columns = written.get("columns", ())
    if isinstance(columns, str | Mapping) or not isinstance(columns, Sequence):
        raise ConfigurationError(
            f"partitions.columns is {columns!r}.",
            remedy="Write a list of columns, such as [dt, region], or leave it out for all.",
        )
    return tuple(str(column) for column in columns)


def _values(written: object) -> tuple[str | None, ...]:
    if isinstance(written, str | Mapping) or not isinstance(written, Sequence):
        raise ConfigurationError(
            f"partitions.values is {written!r}.",
            remedy="Write a list of values, such as [eu, us].",
        )
    return tuple(None if value is None else value_text(value) for value in written)


def _unreadable(written: object) -> ConfigurationError:
    return ConfigurationError(
        f"partitions is {written!r}.",
        remedy='Write {column: dt, every: day, format: "%Y%m%d", start: "20260101"}, '
        "or a list of two such mappings.",
    )

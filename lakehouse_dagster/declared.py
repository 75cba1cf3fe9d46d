"""Checks what users declare, field by field, by the types that the fields are annotated with."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from lakehouse_dagster.durations import duration
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.sizes import size_bytes


def check_fields(declared: Any, *, such_as: str) -> None:
    """Check the switches, counts, shares, texts, sizes and spans of a frozen dataclass.

    Sizes become bytes and spans ``timedelta``. They are told by their annotations: ``bool``,
    ``int``, ``float``, ``str``, ``int | str``, and what has ``timedelta`` in it; others are left
    alone.

    Args:
        such_as: two spans that one could well write, for messages.

    Raises:
        ConfigurationError: names the class, the field and what to write.
    """
    for item in fields(declared):
        what, value = f"{type(declared).__name__}.{item.name}", getattr(declared, item.name)
        kind = str(item.type)
        if kind == "bool":
            if not isinstance(value, bool):
                raise ConfigurationError(f"{what} is {value!r}.", remedy="It is true or false.")
        elif kind == "int":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(
                    f"{what} is {value!r}.", remedy="It must be a whole number of at least 1."
                )
        elif kind == "float":
            if not (isinstance(value, int | float) and 0 < value <= 1):
                raise ConfigurationError(
                    f"{what} is {value!r}.", remedy="It is a share: above 0, at most 1."
                )
        elif kind in ("str", "str | None"):
            if not (isinstance(value, str) or (value is None and "None" in kind)):
                raise ConfigurationError(f"{what} is {value!r}.", remedy="It must be text.")
        elif kind == "int | str":
            object.__setattr__(declared, item.name, size_bytes(value, what=what))
        elif "timedelta" in kind and not (value is None and "None" in kind):
            object.__setattr__(declared, item.name, _span(value, what, such_as))


def _span(value: Any, what: str, such_as: str) -> timedelta:
    if not isinstance(value, str | timedelta):
        raise ConfigurationError(
            f"{what} is {value!r}.", remedy=f"Write a number with a unit, such as {such_as}."
        )
    seconds = duration(value, what=what).total_seconds()
    if seconds <= 0:
        raise ConfigurationError(f"{what} is {value!r}.", remedy="It must be longer than 0.")
    return timedelta(seconds=seconds)

"""Carries the model through JSON: for a reader in a process of its own, and for ``--json``."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

M = TypeVar("M")


def to_data(value: Any) -> Any:
    """Turn a model object into dicts, lists, strings and numbers."""
    if is_dataclass(value):
        return {f.name: to_data(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_data(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_data(member) for member in value]
    return value


def from_data(kind: type[M], data: Any) -> M:
    """Turn what ``to_data`` made of an object of this class into an equal object."""
    made: M = _made(kind, data)
    return made


def _made(kind: Any, data: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not type(None))
        return None if data is None else _made(inner, data)
    if origin is tuple:
        return tuple(_made(arguments[0], member) for member in data)
    if origin is not None and issubclass(origin, Mapping):
        return dict(data)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _made(hints[name], member) for name, member in data.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)

"""Carries the model through JSON: to and from the reading process, its cache, and for ``--json``.

How a class is turned around is worked out once, from its fields' types: a project holds a hundred
thousand objects, and definitions are loaded often.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

M = TypeVar("M")

_Encoder: typing.TypeAlias = Callable[[Any], Any]
_Decoder: typing.TypeAlias = Callable[[Any], Any]
_SCALARS = (str, int, float, bool, type(None))


def to_data(value: Any) -> Any:
    """Turn a model object into dicts, lists, strings and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        return _encoder(type(value))(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_data(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_data(member) for member in value]
    return value


def from_data(kind: type[M], data: Any) -> M:
    """Turn what ``to_data`` made of an object of this class into an equal object."""
    made: M = _decoder(typing.cast(Any, kind))(data)
    return made


@cache
def _encoder(kind: Any) -> _Encoder:
    """How a value of this type becomes plain data."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = _encoder(_not_none(arguments))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and _is_scalar(arguments[0]):
        return list
    if origin is tuple:
        member = _encoder(arguments[0])
        return lambda value: [member(one) for one in value]
    if origin is not None and issubclass(origin, Mapping):
        member = _encoder(arguments[1])
        return lambda value: {key: member(one) for key, one in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        plain, others = _split_fields(kind)
        encoders = [(name, _encoder(hint)) for name, hint in others.items()]

        def encode(value: Any) -> dict[str, Any]:
            data = {name: getattr(value, name) for name in plain}
            for name, encoder in encoders:
                data[name] = encoder(getattr(value, name))
            return data

        return encode
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: value.value
    return to_data


@cache
def _decoder(kind: Any) -> _Decoder:
    """How plain data becomes a value of this type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = _decoder(_not_none(arguments))
        return lambda data: None if data is None else inner(data)
    if origin is tuple and _is_scalar(arguments[0]):
        return tuple
    if origin is tuple:
        member = _decoder(arguments[0])
        return lambda data: tuple([member(one) for one in data])
    if origin is not None and issubclass(origin, Mapping):
        member = _decoder(arguments[1])
        return lambda data: {key: member(one) for key, one in data.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_decoder(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return lambda data: data


def _dataclass_decoder(kind: type) -> _Decoder:
    plain, others = _split_fields(kind)
    decoders = {name: _decoder(hint) for name, hint in others.items()}
    known = {*plain, *decoders}

    def decode(data: Any) -> Any:
        if not known.issuperset(data):
            raise ValueError(f"{kind.__name__} has no {', '.join(set(data) - known)}.")
        values = dict(data)
        for name, decoder in decoders.items():
            if name in values:
                values[name] = decoder(values[name])
        return kind(**values)

    return decode


def _split_fields(kind: type) -> tuple[list[str], dict[str, Any]]:
    """The names of fields that JSON knows as they are, and the types of the others."""
    hints = field_types(kind)
    plain = [name for name, hint in hints.items() if _is_scalar(without_none(hint))]
    return plain, {name: hint for name, hint in hints.items() if name not in plain}


def _is_scalar(kind: Any) -> bool:
    return kind in _SCALARS


def without_none(kind: Any) -> Any:
    """``X`` of ``X | None``; another type as it is."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return _not_none(typing.get_args(kind))
    return kind


def _not_none(arguments: tuple[Any, ...]) -> Any:
    return next(a for a in arguments if a is not type(None))


@cache
def field_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}

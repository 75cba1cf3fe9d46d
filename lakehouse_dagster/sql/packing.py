"""Packs what was read for its way between processes and for the cache: equal objects once.

A reading holds most of its objects many times over: every job holds the whole session before it.
So objects are told by class and field, ``{"Column": [[names…], [types…], …], …}``, and an object
within another by its number. Classes come after those that they hold; what was packed is the last.
A long tuple of objects that begins with the last long one of its field, as the sessions of a
script's jobs do, is told by that one's length as a negative number and by what comes after it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from lakehouse_dagster.sql.transport import field_types, without_none

M = TypeVar("M")

Packed: typing.TypeAlias = dict[str, list[list[Any]]]

_Objects: typing.TypeAlias = dict[type, list[Any]]
_Unpacks: typing.TypeAlias = Callable[[list[Any], _Objects], Iterable[Any]]
_SCALARS = (str, int, float, bool)
_LONG = 32


def pack(value: Any) -> Packed:
    """Turn an object of the model into plain data."""
    kind: Any = type(value)
    packer = _Packer()
    packer.number(value)
    return {inner.__name__: packer.columns[inner] for inner in _within(kind)}


def unpack(kind: type[M], data: Mapping[str, list[list[Any]]]) -> M:
    """Turn what ``pack`` made of an object of this class into an equal object."""
    objects: _Objects = {}
    for inner in _within(typing.cast(Any, kind)):
        columns = data[inner.__name__]
        values = [f(column, objects) for f, column in zip(_unpacks(inner), columns, strict=True)]
        objects[inner] = list(map(inner, *values))
    made: M = objects[kind][0]
    return made


class _Packer:
    """Numbers objects as it meets them; those within an object before the object."""

    def __init__(self) -> None:
        self.columns: dict[type, list[list[Any]]] = {}
        self._met: dict[int, int] = {}
        self._known: dict[type, dict[tuple[Any, ...], int]] = {}
        self.last_long: dict[tuple[Any, str], tuple[Any, ...]] = {}

    def number(self, value: Any) -> int:
        # What is packed holds all of it meanwhile: no two objects get one id.
        found = self._met.get(id(value))
        if found is None:
            found = self._met[id(value)] = self._add(value)
        return found

    def _add(self, value: Any) -> int:
        kind: Any = type(value)
        columns = self.columns.get(kind)
        if columns is None:
            for inner in _within(kind):
                self.columns.setdefault(inner, [[] for _ in fields(inner)])
            columns = self.columns[kind]
        row = tuple([packs(getattr(value, name), self) for name, packs in _packs(kind)])
        new = len(columns[0])
        if _may_be_equal(kind):
            known = self._known.setdefault(kind, {}).setdefault(row, new)
            if known != new:
                return known
        for column, member in zip(columns, row, strict=True):
            column.append(member)
        return new


@cache
def _within(kind: Any) -> tuple[type, ...]:
    """The classes of all that an object of a class may hold, and itself as the last."""
    found: dict[type, None] = {}
    for hint in field_types(kind).values():
        inner = _innermost(hint)
        if is_dataclass(inner):
            found.update(dict.fromkeys(_within(typing.cast(Any, inner))))
    return (*found, kind)


def _innermost(hint: Any) -> Any:
    """The class in ``tuple[X, ...] | None`` and the like."""
    hint = without_none(hint)
    return _innermost(typing.get_args(hint)[0]) if typing.get_origin(hint) is tuple else hint


@cache
def _may_be_equal(kind: Any) -> bool:
    """Whether rows of a class can be looked up: those with options cannot, and are never equal."""
    return not any(_is_mapping(without_none(hint)) for hint in field_types(kind).values())


@cache
def _packs(kind: Any) -> list[tuple[str, Callable[[Any, _Packer], Any]]]:
    return [
        (n, _packs_field(without_none(hint), (kind, n))) for n, hint in field_types(kind).items()
    ]


def _packs_field(hint: Any, field: tuple[Any, str]) -> Callable[[Any, _Packer], Any]:
    if is_dataclass(hint):
        return lambda value, packer: None if value is None else packer.number(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value, packer: None if value is None else value.value
    if typing.get_origin(hint) is tuple and is_dataclass(typing.get_args(hint)[0]):

        def pack_all(value: Any, packer: _Packer) -> Any:
            return None if value is None else tuple([packer.number(one) for one in value])

        def pack_rest(value: Any, packer: _Packer) -> Any:
            if value is None or len(value) < _LONG:
                return pack_all(value, packer)
            last = packer.last_long.get(field, ())
            packer.last_long[field] = value
            # The same objects: comparing them is quick.
            if not last or value[: len(last)] != last:
                return pack_all(value, packer)
            return (-len(last), *pack_all(value[len(last) :], packer))

        # A row that is looked up must look alike wherever it stands.
        return pack_all if _may_be_equal(field[0]) else pack_rest
    if _is_mapping(hint):
        return lambda value, packer: None if value is None else dict(value)
    return lambda value, packer: value


@cache
def _unpacks(kind: Any) -> list[_Unpacks]:
    return [_unpacks_field(without_none(hint)) for hint in field_types(kind).values()]


def _unpacks_field(hint: Any) -> _Unpacks:
    """How a column of packed fields becomes the fields."""
    if is_dataclass(hint):
        kind = typing.cast(type, hint)

        def objects_of(column: list[Any], objects: _Objects) -> Iterable[Any]:
            known = objects[kind]
            return [None if number is None else known[number] for number in column]

        return objects_of
    if isinstance(hint, type) and issubclass(hint, Enum):
        members: dict[Any, Any] = {None: None, **{member.value: member for member in hint}}
        return lambda column, objects: map(members.__getitem__, column)
    if typing.get_origin(hint) is tuple:
        member = typing.get_args(hint)[0]
        if is_dataclass(member):
            return _tuples_of(typing.cast(type, member))
        inner = tuple if member in _SCALARS else _deep_tuple
        return lambda column, objects: [None if one is None else inner(one) for one in column]
    return lambda column, objects: column


def _tuples_of(kind: type) -> _Unpacks:
    def tuples(column: list[Any], objects: _Objects) -> Iterable[Any]:
        known = objects[kind].__getitem__
        last_long: tuple[Any, ...] = ()
        for numbers in column:
            if numbers is None:
                yield None
                continue
            goes_on = bool(numbers) and numbers[0] < 0
            found = tuple(map(known, numbers[1:] if goes_on else numbers))
            found = last_long + found if goes_on else found
            last_long = found if len(found) >= _LONG else last_long
            yield found

    return tuples


def _deep_tuple(value: Any) -> Any:
    return tuple(map(_deep_tuple, value)) if isinstance(value, list) else value


def _is_mapping(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)

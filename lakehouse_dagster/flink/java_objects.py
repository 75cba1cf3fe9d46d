"""Walks over one object that Java's own serialization wrote, to see that it is whole.

Nothing is ever made of the object: only the names of its classes and the texts in it are kept.
(Source: "Java Object Serialization Specification", chapter 6, the grammar of the stream.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakehouse_dagster.flink.byte_cursor import ByteCursor

_STREAM_MAGIC, _STREAM_VERSION = 0xACED, 5
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING = 0x70, 0x71, 0x72, 0x73, 0x74
_END_BLOCK, _ENUM = 0x78, 0x7E
_FIRST_HANDLE = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE = 0x01, 0x02
_FIELD_SIZES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_DEEPEST = 24


@dataclass(frozen=True)
class _ClassDescription:
    name: str
    flags: int
    fields: tuple[str, ...]
    """The type codes of its fields: one letter of a primitive, ``L`` or ``[``."""
    parent: _ClassDescription | None


@dataclass
class JavaObject:
    """What is known of an object: its class, all classes in it, all texts in it."""

    class_name: str = ""
    class_names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def walk_object(cursor: ByteCursor) -> JavaObject:
    """Read one object, stream header included; raises ``DamagedBytesError``.

    Knows plain objects, texts, enumerations and null: what Flink's checkpoint properties are
    made of. Anything else raises ``ForeignBytesError``.
    """
    if cursor.uint16() != _STREAM_MAGIC or cursor.uint16() != _STREAM_VERSION:
        raise cursor.damaged("no Java object")
    walk = _Walk(cursor)
    walk.content(0)
    return walk.found


class _Walk:
    def __init__(self, cursor: ByteCursor) -> None:
        self.found = JavaObject()
        self._cursor = cursor
        self._handles: list[object] = []

    def content(self, depth: int) -> object:
        cursor = self._cursor
        if depth > _DEEPEST:
            raise cursor.damaged("objects nested too deeply")
        kind = cursor.byte()
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self._referenced()
        if kind == _STRING:
            return self._string()
        if kind == _OBJECT:
            return self._object(depth)
        if kind == _ENUM:
            self._class_description(depth)
            self._handles.append(None)
            return self.content(depth + 1)
        raise cursor.foreign(f"an unknown kind of Java object ({kind})")

    def _referenced(self) -> object:
        handle = self._cursor.int32() - _FIRST_HANDLE
        if not 0 <= handle < len(self._handles):
            raise self._cursor.damaged("a reference to nothing")
        return self._handles[handle]

    def _string(self) -> str:
        text = self._cursor.text()
        self._handles.append(text)
        self.found.texts.append(text)
        return text

    def _object(self, depth: int) -> object:
        description = self._class_description(depth)
        if description is None:
            raise self._cursor.damaged("an object without a class")
        if not self.found.class_name:
            self.found.class_name = description.name
        self._handles.append(description)
        # Values stand in the stream from the topmost class down.
        lineage: list[_ClassDescription] = []
        level: _ClassDescription | None = description
        while level is not None:
            lineage.append(level)
            level = level.parent
        for of_class in reversed(lineage):
            if of_class.flags & _WRITE_METHOD or not of_class.flags & _SERIALIZABLE:
                raise self._cursor.foreign(f"a class that writes itself ({of_class.name})")
            for code in of_class.fields:
                if code in _FIELD_SIZES:
                    self._cursor.skip(_FIELD_SIZES[code])
                else:
                    self.content(depth + 1)
        return description

    def _class_description(self, depth: int) -> _ClassDescription | None:
        cursor = self._cursor
        if depth > _DEEPEST:
            raise cursor.damaged("classes nested too deeply")
        kind = cursor.byte()
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            known = self._referenced()
            if not isinstance(known, _ClassDescription):
                raise cursor.damaged("a reference to something else than a class")
            return known
        if kind != _CLASS_DESCRIPTION:
            raise cursor.damaged("no class")
        name = cursor.text()
        cursor.skip(8)  # serialVersionUID
        self.found.class_names.append(name)
        slot = len(self._handles)
        self._handles.append(None)
        flags = cursor.byte()
        fields = tuple(self._field(depth) for _ in range(cursor.uint16()))
        if cursor.byte() != _END_BLOCK:
            raise cursor.foreign("a class with annotations")
        parent = self._class_description(depth + 1)
        description = _ClassDescription(name, flags, fields, parent)
        self._handles[slot] = description
        return description

    def _field(self, depth: int) -> str:
        code = chr(self._cursor.byte())
        self._cursor.text()
        if code in _FIELD_SIZES:
            return code
        if code not in "L[":
            raise self._cursor.damaged("a field of an unknown type")
        if not isinstance(self.content(depth + 1), str):
            raise self._cursor.damaged("a field without a type")
        return code

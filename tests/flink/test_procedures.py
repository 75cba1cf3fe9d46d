"""Arguments of procedures are those that the engines' own classes name; no other one is sent."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.flink.byte_cursor import ByteCursor
from lakehouse_dagster.flink.procedures import PROCEDURES, call, call_positional
from lakehouse_dagster.local.engines import ENGINES
from tests.support.maven_jars import fetched

ONLY_NEWER = {("flink-2.0", "compact_manifest"): {"dry_run"}}
"""Arguments that one engine has more than the other, and that are not used."""


@pytest.mark.flink
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_arguments_are_those_of_the_engine(engine: str) -> None:
    (connector,) = [j for j in ENGINES[engine].jars if j.artifact.startswith("paimon-flink-")]
    (jar,) = fetched([connector])
    found = procedures_in(jar)
    for name, arguments in PROCEDURES.items():
        assert set(arguments) | ONLY_NEWER.get((engine, name), set()) == found[name], name


def test_an_argument_that_the_engine_would_ignore_is_refused() -> None:
    with pytest.raises(UnsupportedByEngineError, match="expire_snapshots has no argument keep"):
        call("expire_snapshots", table="a.b", keep=1)


def test_a_call_is_written_so_that_nothing_in_it_is_read_as_sql() -> None:
    text = call("compact", table="a.b", where="v = 'it''s'", partitions=None)
    assert text == "CALL sys.compact(`table` => 'a.b', `where` => 'v = ''it''''s''')"
    assert call("remove_orphan_files", table="a.b", dry_run=True) == (
        "CALL sys.remove_orphan_files(`table` => 'a.b', `dry_run` => true)"
    )
    assert call_positional("drop_partition", "a.b", "d=1") == (
        "CALL sys.drop_partition('a.b', 'd=1')"
    )


# The annotations @ArgumentHint(name = …) of each procedure's methods.


def procedures_in(jar: Path) -> dict[str, set[str]]:
    """The named arguments of each procedure in a connector's jar, by what ``identifier`` gives."""
    found: dict[str, set[str]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("org/apache/paimon/flink/procedure/") and name.endswith(
                "Procedure.class"
            ):
                texts, arguments = _read(archive.read(name))
                for procedure in texts & set(PROCEDURES):
                    if arguments:
                        found.setdefault(procedure, set()).update(arguments)
    return found


def _read(content: bytes) -> tuple[set[str], set[str]]:
    """The string constants of a class, and the names in the annotations of its methods."""
    pool = _Pool(memoryview(content))
    return pool.strings(), set(pool.argument_names())


_SIZES = {7: 2, 8: 2, 16: 2, 19: 2, 20: 2, 3: 4, 4: 4, 9: 4, 10: 4, 11: 4, 12: 4, 17: 4, 18: 4}
_SIZES |= {15: 3, 5: 8, 6: 8}
"""Bytes of each kind of constant but texts, by its tag."""


class _Pool:
    """The constant pool of a class file, and what follows it (JVM specification, chapter 4)."""

    def __init__(self, data: memoryview) -> None:
        self._cursor = cursor = ByteCursor(data)
        cursor.skip(8)
        self._texts: dict[int, str] = {}
        self._string_ids: list[int] = []
        number, count = 1, cursor.uint16()
        while number < count:
            tag = cursor.byte()
            if tag == 1:
                self._texts[number] = bytes(cursor.take(cursor.uint16())).decode(errors="replace")
            elif tag == 8:
                self._string_ids.append(cursor.uint16())
            else:
                cursor.skip(_SIZES[tag])
            number += 2 if tag in (5, 6) else 1

    def strings(self) -> set[str]:
        return {self._texts[number] for number in self._string_ids}

    def argument_names(self) -> Iterator[str]:
        cursor = self._cursor
        cursor.skip(6)
        cursor.skip(2 * cursor.uint16())
        for _ in range(cursor.uint16()):  # fields
            self._member()
        for _ in range(cursor.uint16()):  # methods
            yield from self._member()

    def _member(self) -> list[str]:
        cursor = self._cursor
        cursor.skip(6)
        found: list[str] = []
        for _ in range(cursor.uint16()):
            name = self._texts[cursor.uint16()]
            (length,) = struct.unpack(">I", cursor.take(4))
            content = cursor.take(length)
            if name == "RuntimeVisibleAnnotations":
                annotations = ByteCursor(content)
                for _ in range(annotations.uint16()):
                    self._annotation(annotations, found)
        return found

    def _annotation(self, cursor: ByteCursor, found: list[str]) -> None:
        hint = self._texts[cursor.uint16()].endswith("/ArgumentHint;")
        for _ in range(cursor.uint16()):
            key = self._texts[cursor.uint16()]
            value = self._value(cursor, found)
            if hint and key == "name" and value is not None:
                found.append(value)

    def _value(self, cursor: ByteCursor, found: list[str]) -> str | None:
        kind = chr(cursor.byte())
        if kind == "[":
            for _ in range(cursor.uint16()):
                self._value(cursor, found)
        elif kind == "@":
            self._annotation(cursor, found)
        elif kind == "e":
            cursor.skip(4)
        elif kind == "s":
            return self._texts[cursor.uint16()]
        else:
            cursor.skip(2)
        return None

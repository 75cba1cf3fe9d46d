"""Reads Java's binary form (``DataOutput``) step by step, and never past its end.

Every count is checked against the bytes that are left before anything is made of it, so a damaged
length costs neither memory nor time.
"""

from __future__ import annotations

import struct


class DamagedBytesError(ValueError):
    """The bytes are not what they should be; the text says what and where."""


class ForeignBytesError(ValueError):
    """The bytes may be sound, but mean something that is not known here."""


class ByteCursor:
    """A position in ``data``; reading moves it on.

    Raises ``DamagedBytesError`` from every method when the bytes end too early.
    """

    def __init__(self, data: bytes | memoryview, start: int = 0, end: int | None = None) -> None:
        self._data = memoryview(data)
        self._at = start
        self._end = len(self._data) if end is None else end

    @property
    def position(self) -> int:
        return self._at

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._end - self._at

    def damaged(self, what: str) -> DamagedBytesError:
        """An error that names the present position."""
        return DamagedBytesError(f"{what} at byte {self._at}")

    def foreign(self, what: str) -> ForeignBytesError:
        """As ``damaged``, for what a later version may well write."""
        return ForeignBytesError(f"{what} at byte {self._at}")

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes, not copied."""
        if count < 0:
            raise self.damaged(f"a length of {count}")
        if count > self.left:
            raise self.damaged(f"the end, where {count} more bytes should be,")
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def skip(self, count: int) -> None:
        self.take(count)

    def byte(self) -> int:
        """An unsigned byte."""
        return self.take(1)[0]

    def flag(self) -> bool:
        value = self.byte()
        if value > 1:
            raise self.damaged(f"neither true nor false ({value})")
        return value == 1

    def uint16(self) -> int:
        """An unsigned 16-bit number."""
        return int(struct.unpack(">H", self.take(2))[0])

    def int32(self) -> int:
        """A signed 32-bit number."""
        return int(struct.unpack(">i", self.take(4))[0])

    def int64(self) -> int:
        """A signed 64-bit number."""
        return int(struct.unpack(">q", self.take(8))[0])

    def size(self) -> int:
        """A number of bytes, which cannot be negative."""
        value = self.int64()
        if value < 0:
            raise self.damaged(f"a size of {value}")
        return value

    def count(self, smallest: int, most: int | None = None) -> int:
        """A number of things, each at least ``smallest`` bytes long, that still fit in here."""
        value = self.int32()
        if value < 0 or value * smallest > self.left or (most is not None and value > most):
            raise self.damaged(f"a count of {value}")
        return value

    def text(self) -> str:
        """A text as ``DataOutput.writeUTF`` writes it."""
        length = self.uint16()
        raw = bytes(self.take(length))
        try:
            # Java writes NUL as two bytes and other planes as surrogates; neither is in names.
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.damaged("a text that is not UTF-8") from error

    def at_end(self) -> None:
        """Raise unless everything has been read."""
        if self.left:
            raise self.damaged(f"{self.left} bytes too many")

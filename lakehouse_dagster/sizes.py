"""Sizes as options of Paimon have them: ``128 mb``, ``1g``, or a number of bytes."""

from __future__ import annotations

import re

from lakehouse_dagster.errors import ConfigurationError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b|bytes|[ei]bibytes)?", re.I)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def bytes_of(text: str) -> int | None:
    """Bytes of a size; None where the text is none."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else None


def size_bytes(value: int | str, *, what: str = "size") -> int:
    """Bytes of a size as users write it: ``50 gb``, ``64mb``, or a number of bytes.

    Raises ``ConfigurationError`` naming ``what``.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    # A text without a unit has lost it; who means bytes writes a number.
    has_unit = isinstance(value, str) and not value.strip().isdigit()
    found = bytes_of(str(value)) if has_unit else None
    if not found:
        raise ConfigurationError(
            f"{what} is {value!r}, which is no size.",
            remedy="Write a number with a unit (kb, mb, gb, tb), such as 64 mb.",
        )
    return found

"""Sizes as options of Paimon have them: ``128 mb``, ``1g``, or a number of bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b|bytes|[ei]bibytes)?", re.I)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def bytes_of(text: str) -> int | None:
    """Bytes of a size; None where the text is none."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else None

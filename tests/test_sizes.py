"""Sizes as Paimon's ``MemorySize`` reads them, and with a fraction."""

from __future__ import annotations

import pytest

from lakehouse_dagster.sizes import bytes_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", 7),
        ("7 b", 7),
        ("7 bytes", 7),
        ("10KB", 10 * 1024),
        (" 64 mb ", 64 * 1024**2),
        ("64 mebibytes", 64 * 1024**2),
        ("2 kibibytes", 2048),
        ("1g", 1024**3),
        ("1.5 gib", 3 * 1024**3 // 2),
        ("1 t", 1024**4),
        ("", None),
        ("big", None),
        ("-1 mb", None),
        ("1 mb 2", None),
        ("1 min", None),
    ],
)
def test_sizes(text: str, found: int | None) -> None:
    assert bytes_of(text) == found

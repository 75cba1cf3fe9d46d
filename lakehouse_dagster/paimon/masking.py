"""Keeps the secrets among a catalog's or table's options out of sight."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_dagster.secret_names import MASK, is_secret


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """The options with the values of secret ones replaced by ``****``."""
    return {key: MASK if is_secret(key) else value for key, value in options.items()}


def scrubbed(text: str, options: Mapping[str, str]) -> str:
    """A text of someone else (an exception's) without the secrets that these options hold."""
    for key, value in options.items():
        if value and is_secret(key):
            text = text.replace(value, MASK)
    return text

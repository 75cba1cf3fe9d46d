"""Keeps the secrets among a catalog's or table's options out of sight."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "****"

# Both spellings: Flink's `s3.secret-key` and pypaimon's `fs.s3.accessKeySecret`.
_SECRET_KEY = re.compile(
    r"(?i)passw|passphrase|secret|token(?![-_.]?(provider|path|loader|ecs|enabled))|credential|jaas"
    r"|(access|api|account|private)[-_.]?key|authorization"
)


def is_secret(key: str) -> bool:
    """Whether the value of an option of this name must not be shown."""
    return _SECRET_KEY.search(key) is not None


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """The options with the values of secret ones replaced by ``****``."""
    return {key: MASK if is_secret(key) else value for key, value in options.items()}


def scrubbed(text: str, options: Mapping[str, str]) -> str:
    """A text of someone else (an exception's) without the secrets that these options hold."""
    for key, value in options.items():
        if value and is_secret(key):
            text = text.replace(value, MASK)
    return text

"""Names that Dagster accepts, made of names that Flink and Paimon accept."""

from __future__ import annotations

import hashlib
import re

_READABLE = re.compile(r"[A-Za-z0-9]+(?:[_.][A-Za-z0-9]+)*")
_KEY_PART = re.compile(r"[A-Za-z0-9_.-]+")


def dagster_name(name: str) -> str:
    """A name that Dagster accepts for ops, jobs, sensors and groups; different for each ``name``.

    Dots become two underscores; a name that could not be told apart so gets a short hash, after
    three underscores, which no other name holds.
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.replace(".", "__"))
    if _READABLE.fullmatch(name):
        return plain
    return f"{plain}___{short_hash(name)}"


def key_part(name: str) -> str:
    """A part of an asset key such that Dagster can name an output after it."""
    return name if _KEY_PART.fullmatch(name) else dagster_name(name)


def is_key_part(name: str) -> bool:
    """Whether Dagster can name an output after it."""
    return _KEY_PART.fullmatch(name) is not None


def kind_name(connector: str) -> str:
    """The connector's name as Dagster takes it for a tag."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", connector)[:40].strip("_.-") or "unknown"


def output_name(key_path: tuple[str, ...]) -> str:
    """What Dagster calls the output of an asset: ``a-b`` and ``a_b`` are the same to it."""
    return "__".join(key_path).replace("-", "_").replace(".", "_")


def short_hash(name: str) -> str:
    """Six hex digits of the name."""
    return hashlib.sha256(name.encode()).hexdigest()[:6]

"""What a connector table stands for outside the lake: its asset key, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_KEY = re.compile(
    r"passw|secret|token|credential|access[-_.]?key|api[-_.]?key|private[-_.]?key"
    r"|jaas|authorization|passphrase",
    re.I,
)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=[?&;])(password|secret|token)=[^&;]*", re.I)
_SINK_ONLY = frozenset({"print", "blackhole"})
_UNSAFE_IN_KEY = re.compile(r"[^\w.\-]+")
_JDBC = re.compile(r"jdbc:(?P<system>\w+):(?://[^/]*)?/?(?P<database>[^?;/]+)")
_KAFKA = {"kafka": "kafka", "upsert-kafka": "kafka"}
_SYSTEMS = {"postgresql": "postgres"}

MASK = "****"


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the values of secrets replaced; variables are masked as well."""
    return {
        key: MASK if _SECRET_KEY.search(key) else _SECRET_IN_URL.sub(MASK, value)
        for key, value in options.items()
    }


def is_sink_only(connector: str) -> bool:
    """Whether nothing can be read through the connector."""
    return connector in _SINK_ONLY


def source_key(connector: str, table: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key parts of the external asset that a connector table reads or writes.

    The same topic or database table has the same key whatever the script calls it. Where an
    option that it would come from is missing or holds a variable, the table's own name is used.

    Args:
        connector: Value of the option ``connector``.
        table: Name of the connector table in the script.
        options: Its ``WITH`` options.
    """
    found = _key_from_options(connector, options)
    parts = found if found and not any("${" in part for part in found) else (connector, table)
    return tuple(key_part(part) for part in parts)


def key_part(text: str) -> str:
    """Return the text with all but letters, digits, ``_``, ``.`` and ``-`` made ``_``."""
    return _UNSAFE_IN_KEY.sub("_", text).strip("_") or "_"


def _key_from_options(connector: str, options: Mapping[str, str]) -> tuple[str, ...] | None:
    if connector in _KAFKA:
        return _parts(_KAFKA[connector], options.get("topic"))
    if connector == "pulsar":
        return _parts("pulsar", options.get("topics"))
    if connector in ("filesystem", "paimon"):
        return _parts(connector, *_last_segments(options.get("path", "")))
    if connector.endswith("-cdc"):
        names = ("database-name", "schema-name", "table-name")
        return _parts(
            connector[: -len("-cdc")], *(options[name] for name in names if name in options)
        )
    if connector == "jdbc" and (url := _JDBC.match(options.get("url", ""))):
        system = _SYSTEMS.get(url["system"], url["system"])
        return _parts(system, url["database"], options.get("table-name"))
    return None


def _parts(system: str, *names: str | None) -> tuple[str, ...] | None:
    if not names or not all(names):
        return None
    return (system, *(name for name in names if name))


def _last_segments(path: str) -> tuple[str, ...]:
    """Return the last two folders of a path, none from before a variable."""
    segments = [s for s in re.sub(r"^\w+:/*", "", path).split("/") if s]
    kept: list[str] = []
    for segment in reversed(segments[-2:]):
        if "${" in segment:
            break
        kept.insert(0, segment)
    return tuple(kept)

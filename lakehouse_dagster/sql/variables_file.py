"""Values for the variables of scripts, kept in a YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lakehouse_dagster.errors import ConfigurationError


def read_variables(path: str | Path) -> dict[str, str]:
    """The values of a YAML file by name: ``a: {b: 1}`` is ``a.b``, and stays the text ``1``.

    Raises:
        ConfigurationError: the file cannot be read, or holds something else than names and values.
    """
    import yaml  # type: ignore[import-untyped]

    try:
        # Text as it is written: 007 and 1_000 are no numbers to whoever writes SQL.
        data = yaml.load(Path(path).read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506
    except OSError as error:
        raise ConfigurationError(
            f"The variables of {path} cannot be read: {error.strerror or error}.",
            remedy="Look at the path.",
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ConfigurationError(f"{path}{place} is not YAML.") from None
    if data in (None, ""):
        return {}
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} holds no names with values.", remedy="Write NAME: value.")
    return dict(_flat(data, "", str(path)))


def _flat(data: Mapping[Any, Any], above: str, path: str) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.", path)
        elif isinstance(value, str):
            yield name, value
        else:
            raise ConfigurationError(
                f"The variable {name} in {path} is a list.", remedy="Give it one value."
            )

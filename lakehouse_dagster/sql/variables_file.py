"""Values for the variables of scripts, kept in a file: YAML, or lines such as ``NAME=value``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lakehouse_dagster.errors import ConfigurationError

_OF_LINES = (".env", ".properties")


def read_variables(path: str | Path) -> dict[str, str]:
    """The values of a file by name.

    ``.env`` and ``.properties`` hold lines ``NAME=value``, other files YAML, where ``a: {b: 1}`` is
    ``a.b``, and stays the text ``1``.

    Raises:
        ConfigurationError: the file cannot be read, or holds something else than names and values.
    """
    if Path(path).suffix in _OF_LINES:
        return dict(_lines(path))
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


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The variables of {path} cannot be read: {getattr(error, 'strerror', 'no UTF-8')}.",
            remedy="Look at the path.",
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line[0] in "#!":
            continue
        name, sign, value = (part.strip() for part in line.partition("="))
        if not sign or not name or any(letter.isspace() for letter in name):
            raise ConfigurationError(
                f"{path}:{number} is no line of the form NAME=value.",
                remedy="Write NAME=value, or # before a comment.",
            )
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        yield name, value[1:-1] if quoted else value


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

"""What pydantic says of a value of a wrong type, in sentences about the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lakehouse_dagster.components.places import FieldError

Path = tuple[str | int, ...]

_WANTED = {
    "string": "text",
    "list": "a list",
    "dict": "a mapping of names to values",
    "model": "a mapping of names to values",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
}
"""By the beginning of pydantic's error type."""
_REMEDIES = {
    "a list": "Write [one, another].",
    "a mapping of names to values": "Write {name: value}, or name: value in lines below it.",
}


def wrong_types(model: type[BaseModel], written: Mapping[str, Any]) -> list[FieldError]:
    """All that the model refuses in what is written; no value is repeated, it may be secret."""
    try:
        model.model_validate(written)
    except ValidationError as error:
        return list(_told(error.errors(include_url=False, include_input=False), model, written))
    return []


def _told(
    errors: Sequence[ErrorDetails], model: type[BaseModel], written: Mapping[str, Any]
) -> Iterator[FieldError]:
    by_path: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        by_path.setdefault(_path(error, written), []).append(error)
    for path, about in by_path.items():
        # Of a list with a wrong item, pydantic also says that it is no text.
        if not any(other[: len(path)] == path for other in by_path if other != path):
            yield _sentence(path, about, model, _value(path, written))


def _path(error: ErrorDetails, written: Any) -> Path:
    """The field's place in the file: without what pydantic calls the alternatives of a type."""
    path: list[str | int] = []
    value = written
    for part in error["loc"]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if error["type"] != "missing" or part != error["loc"][-1]:
                continue
        path.append(part)
    return tuple(path)


def _value(path: Path, written: Any) -> Any:
    for part in path:
        written = written[part] if not isinstance(written, Mapping) else written.get(part)
    return written


def _sentence(
    path: Path, about: Sequence[ErrorDetails], model: type[BaseModel], value: Any
) -> FieldError:
    kind, last = about[0]["type"], str(path[-1]) if path else "attributes"
    whole = ("attributes", *path)
    if kind == "missing":
        return FieldError(f"{last} is missing.", path=whole, remedy=f"Write {last} there.")
    if kind == "extra_forbidden":
        return _unknown(last, whole, _names_there(model, path))
    wanted = list(dict.fromkeys(_wanted(error) for error in about))
    remedies = [_REMEDIES[one] for one in wanted if one in _REMEDIES]
    if "text" in wanted and not isinstance(value, Mapping | list | None):
        remedies = [f'Put it in quotes: {last}: "…"' if isinstance(path[-1], str) else "Quote it."]
    return FieldError(
        f"{last} is {_called(value)}, but should be {' or '.join(wanted)}.",
        path=whole,
        remedy=remedies[0] if remedies else None,
    )


def _wanted(error: ErrorDetails) -> str:
    expected = error.get("ctx", {}).get("expected")
    if expected is not None:
        return f"one of {expected}".replace(" or ", ", ")
    return _WANTED.get(error["type"].partition("_")[0], error["msg"])


def _called(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "another text"
    return "a list" if isinstance(value, list) else "a mapping"


def _unknown(name: str, path: Path, known: Sequence[str]) -> FieldError:
    if path == ("attributes", name) and name in _LATER:
        return FieldError(
            f"{name} is not supported by this version of lakehouse-dagster.",
            path=path,
            remedy="Leave it out.",
        )
    close = get_close_matches(name, known, n=1)
    remedy = f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."
    return FieldError(f"There is no setting {name} here.", path=path, remedy=remedy)


_LATER = ("corrections", "cdc")
"""Planned, so that whoever reads of them in the design gets more than "no setting"."""


def _names_there(model: type[BaseModel], path: Path) -> list[str]:
    """The names of the settings among which the last part of the path stands."""
    at: Any = model.model_json_schema()
    definitions = at.get("$defs", {})
    for part in path[:-1]:
        below = at.get("properties", {}).get(part) if isinstance(part, str) else at.get("items")
        at = below or at.get("additionalProperties") or {}
        at = definitions.get(str(at.get("$ref", "")).rpartition("/")[2], at)
    return list(at.get("properties", {}))

"""The JSON schema of the attributes, such that a checker names the very field that is wrong.

Where a value may be of several types, pydantic writes ``anyOf``; of a typo below such a value a
checker can say no more than that no alternative fits.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def without_alternatives(schema: Schema) -> Schema:
    """The same schema with ``anyOf`` put together where one list of types says the same."""
    return {name: _simpler(value) for name, value in schema.items()}


def _simpler(value: Any) -> Any:
    if isinstance(value, list):
        return [_simpler(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {name: _simpler(item) for name, item in value.items()}
    choices = [choice for choice in value.get("anyOf", ()) if choice.get("type") != "null"]
    if not choices or not _can_be_one(choices):
        return value
    del value["anyOf"]
    merged: Schema = {}
    types: list[str] = []
    for choice in choices:
        said = choice.get("type", [])
        types.extend([said] if isinstance(said, str) else said)
        merged |= {name: item for name, item in choice.items() if name != "type"}
    if types:
        merged["type"] = types[0] if len(types) == 1 else types
    return {**merged, **value}


def _can_be_one(choices: list[Schema]) -> bool:
    """Whether no two alternatives say different things about the same type."""
    types = [choice.get("type") for choice in choices]
    return len(choices) == 1 or (None not in types and len({str(t) for t in types}) == len(types))

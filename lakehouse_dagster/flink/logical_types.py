"""The SQL Gateway's result types and values, as Flink SQL type names and Python values.

The JSON of a type is that of ``LogicalTypeJsonSerializer`` in flink-sql-gateway; that of values is
the ``json`` format's (``RowDataToJsonConverters`` with SQL timestamps).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

_NAMES = {
    "INTEGER": "INT",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ",
    "TIMESTAMP_WITH_TIME_ZONE": "TIMESTAMP WITH TIME ZONE",
    "TIME_WITHOUT_TIME_ZONE": "TIME",
}
_LONGEST = 2147483647
_UNBOUNDED = {"VARCHAR": "STRING", "VARBINARY": "BYTES"}


def type_name(logical_type: Mapping[str, Any]) -> str:
    """The Flink SQL name of a type; nullability is left out."""
    root = str(logical_type["type"])
    length = logical_type.get("length")
    if length == _LONGEST and root in _UNBOUNDED:
        return _UNBOUNDED[root]
    if root in ("ARRAY", "MULTISET"):
        return f"{root}<{type_name(logical_type['elementType'])}>"
    if root == "MAP":
        key, value = logical_type["keyType"], logical_type["valueType"]
        return f"MAP<{type_name(key)}, {type_name(value)}>"
    if root == "ROW":
        fields = (
            f"`{f['name'].replace('`', '``')}` {type_name(f['fieldType'])}"
            for f in logical_type["fields"]
        )
        return f"ROW<{', '.join(fields)}>"
    arguments = [
        str(logical_type[name])
        for name in ("length", "precision", "scale")
        if logical_type.get(name) is not None
    ]
    name = _NAMES.get(root, root)
    return f"{name}({', '.join(arguments)})" if arguments else name


def python_value(value: Any, logical_type: Mapping[str, Any]) -> Any:
    """A JSON value of this type as a Python value; as it came, where it cannot be read."""
    if value is None:
        return None
    root = logical_type["type"]
    try:
        if root == "ARRAY":
            return tuple(python_value(v, logical_type["elementType"]) for v in value)
        if root == "MAP":
            return {k: python_value(v, logical_type["valueType"]) for k, v in value.items()}
        if root == "ROW":
            return {
                f["name"]: python_value(value[f["name"]], f["fieldType"])
                for f in logical_type["fields"]
            }
        return _SCALARS[root](value) if root in _SCALARS else value
    except (ValueError, TypeError, KeyError, ArithmeticError, binascii.Error):
        # Such as year 12000, or a form that a newer Flink writes: the text is still the truth.
        return value


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(_microseconds(text.replace(" ", "T").rstrip("Z")))


def _microseconds(text: str) -> str:
    """Python 3.10 reads 3 or 6 digits of a second's fraction only, Flink writes 0 to 9."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[:6].ljust(6, '0')}" if fraction else whole


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "DECIMAL": lambda value: Decimal(str(value)),
    "FLOAT": float,
    "DOUBLE": float,
    "DATE": date.fromisoformat,
    "TIME_WITHOUT_TIME_ZONE": lambda text: time.fromisoformat(_microseconds(text)),
    "TIMESTAMP_WITHOUT_TIME_ZONE": _timestamp,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": lambda text: _timestamp(text).replace(tzinfo=timezone.utc),
    "BINARY": lambda text: base64.b64decode(text, validate=True),
    "VARBINARY": lambda text: base64.b64decode(text, validate=True),
}

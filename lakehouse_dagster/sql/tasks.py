"""What the reading process does when it is asked: plain data in, plain data out."""

from __future__ import annotations

from typing import Any

from lakehouse_dagster.sql.literal_secrets import hold_secret
from lakehouse_dagster.sql.script_reader import ScriptReader
from lakehouse_dagster.sql.transport import to_data


def run(task: str, arguments: dict[str, Any]) -> Any:
    """Do the named task."""
    return _TASKS[task](**arguments)


def _read(text: str, path: str, stem: str, catalog: str) -> Any:
    script = ScriptReader(text, path, stem=stem, lake=catalog).read()
    return {"script": to_data(script), "holds_secret": hold_secret(script.statements)}


_TASKS = {"read": _read}

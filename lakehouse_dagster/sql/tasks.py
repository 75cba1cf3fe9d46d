"""What the reading process does when it is asked: plain data in, plain data out."""

from __future__ import annotations

from typing import Any

from lakehouse_dagster.sql.literal_secrets import hold_secret
from lakehouse_dagster.sql.script_reader import ScriptReader
from lakehouse_dagster.sql.transport import to_data


class Tasks:
    """The tasks, in a setting that is the same for many of them."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._catalog: str = setting["catalog"]

    def run(self, task: str, arguments: dict[str, Any]) -> Any:
        """Do the named task."""
        return {"read": self._read}[task](**arguments)

    def _read(self, text: str, path: str, stem: str) -> Any:
        script = ScriptReader(text, path, stem=stem, lake=self._catalog).read()
        return {"script": to_data(script), "holds_secret": hold_secret(script.statements)}

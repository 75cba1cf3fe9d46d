"""Flink's own SQL parser, asked from tests: it is the judge of what our dialect reads and writes.

A small Java program, given to the JDK as source, holds the parser of an engine's planner jar and
answers one statement after another. No cluster and no network is involved.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

from lakehouse_dagster.local.fetch import prefetch

_SOURCE = Path(__file__).with_name("FlinkParser.java")
_PLANNER = "flink-table-planner.jar"
NO_COMPILER = "a Java that can compile (a JDK, not only a runtime) is not installed"


@dataclass(frozen=True)
class Verdict:
    """What Flink's parser says about a statement.

    Args:
        accepted: whether it parses.
        kind: the class of its tree's root, or of the error.
        text: the tree written out with all brackets, white space made equal, and empty where
            Flink cannot write it; the message when it was not accepted.
    """

    accepted: bool
    kind: str
    text: str


class FlinkSqlParser:
    """The parser of one engine; a context manager that ends its process."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        installed = prefetch(engine)
        java = Path(installed.java.executable)
        if not _compiles(java):
            found = shutil.which("javac")
            if found is None:
                pytest.skip(NO_COMPILER)
            java = Path(found).resolve().with_name("java")
        (loader,) = installed.lib.glob("flink-table-planner-loader-*.jar")
        with zipfile.ZipFile(loader) as archive:
            archive.extract(_PLANNER, folder)
        class_path = [folder / _PLANNER]
        for name in ("flink-dist-*.jar", "flink-table-api-java-uber-*.jar"):
            class_path += installed.lib.glob(name)
        self._log = (folder / "parser.log").open("wb")
        self._process = subprocess.Popen(
            [str(java), "-cp", ":".join(map(str, class_path)), str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> FlinkSqlParser:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, sql: str) -> Verdict:
        """Give one statement, without its semicolon, to Flink's parser."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(base64.b64encode(sql.encode()) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode()
        if not answer:
            self._process.wait()
            raise AssertionError(Path(self._log.name).read_text(encoding="utf-8"))
        outcome, kind, text = answer.rstrip("\n").split(" ")
        written = re.sub(r"\s+", " ", base64.b64decode(text).decode()).strip()
        return Verdict(outcome == "OK", kind, written)


def _compiles(java: Path) -> bool:
    listed = subprocess.run([str(java), "--list-modules"], capture_output=True, text=True)
    return "jdk.compiler" in listed.stdout

"""Other processes that act on the same lakehouse: started, watched and killed by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.laboratory import Laboratory

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Actor:
    """A Python process that runs ``tests.support.actor`` on a laboratory."""

    process: subprocess.Popen[bytes]
    log: Path
    stop_file: Path

    @classmethod
    def start(
        cls, lab: Laboratory, what: str, name: str, *, sql_gateway_url: str | None = None
    ) -> Actor:
        """``what``: ``supervise`` (until told to end) or ``start`` (once)."""
        log, stop_file = lab.folder / f"{name}.log", lab.folder / f"{name}.stop"
        settings = {
            "folder": str(lab.folder),
            "rest_url": lab.rest_url,
            "sql_gateway_url": sql_gateway_url or lab.sql_gateway_url,
            "lakehouse": lab.lakehouse,
            "job": lab.job,
        }
        arguments = [what, name, str(stop_file), json.dumps(settings)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.actor", *arguments],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        return cls(process, log, stop_file)

    def kill(self) -> None:
        """``kill -9``: no clean-up of any kind runs in it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self) -> str:
        """Let it end by itself and return what it printed."""
        self.stop_file.touch()
        try:
            self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.kill()
        return self.log.read_text()

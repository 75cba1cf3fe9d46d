"""A server written in Java, started beside a test and ended by it."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from lakehouse_dagster.local.ports import HOST

_Service = TypeVar("_Service", bound="JavaService")


class JavaService:
    """One server process with a folder of its own; a context manager that ends it."""

    name: str
    patience_seconds: float
    """How long it may take until it listens."""
    port: int

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        """Write what the server needs into its folder."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """How the server is started."""
        raise NotImplementedError

    def __enter__(self: _Service) -> _Service:
        self._folder.mkdir(parents=True)
        self.prepare()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server; what it kept goes with its folder."""
        self._process.kill()
        self._process.wait(30)

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                said = self._log.read_text(errors="replace")[-3000:]
                assert self._process.poll() is None, said
                assert time.monotonic() < deadline, f"{self.name} does not listen: {said}"
                time.sleep(0.1)

"""Dagster's own processes, started for the demo and certainly ended again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.filesystem import write_atomically
from lakehouse_dagster.local.processes import alive, end, record_of
from lakehouse_dagster.local.state import ProcessRecord

_INSTANCE = """\
# Written by `lakehouse demo`: a small instance in one folder that does not grow for ever.
telemetry: {enabled: false}
nux: {enabled: false}
run_queue: {dequeue_interval_seconds: 1}
retention:
  sensor:
    purge_after_days: {skipped: 1, failure: 7, success: 7, started: 7}
"""


class DagsterProcess:
    """``dagster dev`` (webserver and daemon) or the daemon alone, for one module and one folder.

    Dagster's processes leave children behind when only the first of them is stopped, so they run
    in a process group of their own, which is written down and ended as a whole, also by a later
    demo when this one was killed.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "dagster"
        self.log = folder / "dagster.log"
        self._record = folder / "dagster.json"
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the instance's folder and end what an earlier demo left behind."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "dagster.yaml").write_text(_INSTANCE)
        self.end_leftover()

    def start(self, module: str, *, port: int | None) -> None:
        """Start it in this process's environment; without ``port``, the daemon alone."""
        program = Path(sys.executable).parent
        if port is None:
            command = [str(program / "dagster-daemon"), "run", "-m", module]
        else:
            command = [str(program / "dagster"), "dev", "-m", module, "-h", "127.0.0.1"]
            command += ["-p", str(port)]
        if not Path(command[0]).exists():
            raise StackError(
                f"{command[0]} is missing.",
                remedy="Install the demo's packages: pip install 'lakehouse-dagster[demo]'.",
            )
        self._make_instance()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "DAGSTER_HOME": str(self.home)},
                start_new_session=True,
            )
        record = record_of(self._process.pid)
        write_atomically(
            self._record, json.dumps({"pid": record.pid, "started_at": record.started_at_seconds})
        )

    def _make_instance(self) -> None:
        """Make the instance's databases before several processes do it at once.

        Two that create them at the same moment leave an instance that nobody can open any more.
        """
        import dagster as dg

        with dg.DagsterInstance.from_config(str(self.home)):
            return

    def ended(self) -> bool:
        """Whether it ended by itself, which it should not."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """End the whole group: TERM, then KILL."""
        if self._process is None:
            return
        _end_group(self._process.pid)
        self._process.wait(timeout=10)
        self._record.unlink(missing_ok=True)
        self._process = None

    def end_leftover(self) -> None:
        """End the group that an earlier demo wrote down, if it still runs."""
        try:
            found = json.loads(self._record.read_text())
            record = ProcessRecord(int(found["pid"]), float(found["started_at"]))
        except (OSError, ValueError, KeyError, TypeError):
            return
        if alive(record) is not None:
            _end_group(record.pid)
        self._record.unlink(missing_ok=True)


def _end_group(leader: int) -> None:
    """End every process of a session."""
    import psutil

    for _ in range(5):  # while it ends, Dagster may start a code server anew
        members = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == leader:
                    members.append(process)
            except (ProcessLookupError, PermissionError, psutil.Error):
                continue
        if not members:
            return
        end(members)

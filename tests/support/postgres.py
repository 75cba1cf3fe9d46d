"""A Postgres server of the tests' own, from the binaries that Debian's package installs.

It has its own folder, port and socket, trusts every local user but one, and is ended by whoever
started it. The cluster that the package may have made is never touched.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakehouse_dagster.local.ports import HOST, free_ports

PASSWORD_USER = "guarded"
"""The user who needs a password; it is ``PASSWORD``."""
PASSWORD = "hunter2@:/%"

_DEBIAN = Path("/usr/lib/postgresql")
_SECONDS = 60.0
_END_SECONDS = 20.0
_numbers = itertools.count(1)


def binaries() -> Path:
    """The folder of the newest Postgres that is installed; the test is skipped without one."""
    found = {
        int(folder.parent.name): folder
        for folder in _DEBIAN.glob("*/bin")
        if (folder / "initdb").is_file() and re.fullmatch(r"\d+", folder.parent.name)
    }
    if not found:
        pytest.skip(f"Postgres is not installed: no {_DEBIAN}/*/bin/initdb")
    return found[max(found)]


class PostgresServer:
    """A server that is started, stopped, crashed and restarted by tests."""

    def __init__(self, folder: Path) -> None:
        self._bin = binaries()
        self._folder = folder
        self._log = folder / "log"
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._initialise()

    def url(self, database: str, user: str = "postgres", password: str | None = None) -> str:
        """The URL of a database."""
        from sqlalchemy.engine import URL

        url = URL.create("postgresql", user, password, HOST, self.port, database)
        return url.render_as_string(hide_password=False)

    def new_database(self) -> str:
        """The URL of a database that is made now, and empty."""
        name = f"test{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as superuser, in a connection of its own, outside a transaction."""
        import psycopg

        with psycopg.connect(
            host=HOST, port=self.port, user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._bin / "postgres"), "-D", str(self._folder / "data")),
                    *("-p", str(self.port), "-k", str(self._folder), "-h", HOST),
                    *("-c", "fsync=off", "-c", "max_connections=60"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **_unprivileged(),
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut it down; sessions that are open are ended."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it at once, without writing anything."""
        self._end(signal.SIGQUIT)

    def pause(self) -> None:
        """Let it accept no more connections and answer nobody that is new, until resumed."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _initialise(self) -> None:
        run = [str(self._bin / "initdb"), "-D", str(self._folder / "data"), "-A", "trust"]
        subprocess.run(
            [*run, "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=self._folder,
            timeout=_SECONDS,
            **_unprivileged(),
        )
        access = self._folder / "data" / "pg_hba.conf"
        rule = f"host all {PASSWORD_USER} {HOST}/32 scram-sha-256\n"
        access.write_text(rule + access.read_text())

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _SECONDS
        ask = [str(self._bin / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        while subprocess.run(ask, check=False, timeout=_SECONDS).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end(signal.SIGQUIT)
                raise RuntimeError(f"Postgres did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_SECONDS)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server that runs for the length of a ``with`` block."""
    binaries()
    # Not in pytest's folder, which the user postgres may not enter; short, for the socket's path.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    try:
        server = PostgresServer(folder)
        try:
            server.start()
            server.execute(f"CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{PASSWORD}'")
            yield server
        finally:
            server.crash()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> dict[str, Any]:
    """Postgres refuses to run as root: it then runs as the user that its package has made."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

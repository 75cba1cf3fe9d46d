"""Where the system database is.

Without a URL it is one SQLite file: ``$DAGSTER_HOME/lakehouse.db`` where Dagster has a home, else
``~/.local/share/lakehouse/lakehouse.db``. (``LAKEHOUSE_HOME`` is a cache that may be deleted at any
time, so nothing that must be remembered lies there.)
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.secret_names import MASK, SECRETS

if TYPE_CHECKING:
    from lakehouse_dagster.system_db.engine import Database

_PASSWORD = re.compile(r"^([A-Za-z0-9+._-]+://[^:@/]*):.*@")
_WRITTEN_PASSWORD = re.compile(r"(?i)[a-z0-9+._-]+://[^:@/]*:[^@]+@|[?&](ssl)?password=[^&]")
SUPPORTED_URLS = (
    "Write sqlite:////absolute/path/to/lakehouse.db or postgresql://user@host/database."
)
_SECRET_PARAMETER = re.compile(rf"(?i)([?&][^=&]*(?:{SECRETS}|pass|key)[^=&]*)=[^&]*")


def masked_url(url: str) -> str:
    """A database URL that may be shown: its password is replaced by ``****``."""
    return _SECRET_PARAMETER.sub(rf"\1={MASK}", _PASSWORD.sub(rf"\1:{MASK}@", url))


def holds_password(text: str) -> bool:
    """Whether there is a password in what is, or has within it, a database URL."""
    return _WRITTEN_PASSWORD.search(text) is not None


def check_url(url: str) -> None:
    """Raise ``SystemDatabaseError`` unless it is the URL of a kind of database that we know."""
    kind, found, _ = url.partition("://")
    if not found:
        # What is no URL may be a password.
        shown = url.partition(":")[0]
        raise SystemDatabaseError(f"{shown!r} is not a database URL.", remedy=SUPPORTED_URLS)
    backend, _, driver = kind.partition("+")
    if backend not in ("sqlite", "postgresql", "postgres"):
        raise SystemDatabaseError(
            f"The system database {masked_url(url)} is of a kind that is not supported.",
            remedy=SUPPORTED_URLS,
        )
    if backend != "sqlite" and driver not in ("", "psycopg"):
        raise SystemDatabaseError(
            f"The system database {masked_url(url)} names a driver that is not supported.",
            remedy="Write postgresql:// or postgresql+psycopg://.",
        )


def default_url() -> str:
    """The URL of the SQLite file that is used when the user names no database.

    Raises:
        SystemDatabaseError: the folder of a user without ``DAGSTER_HOME`` cannot be made.
    """
    dagster_home = os.environ.get("DAGSTER_HOME")
    if dagster_home:
        folder = Path(dagster_home).expanduser().absolute()
        return f"sqlite:///{folder / 'lakehouse.db'}"
    folder = Path.home() / ".local" / "share" / "lakehouse"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemDatabaseError(
            f"The folder {folder} for the system database cannot be made: {error.strerror}.",
            remedy="Set DAGSTER_HOME, or name a database URL.",
        ) from error
    return f"sqlite:///{folder / 'lakehouse.db'}"


@dataclass(frozen=True, repr=False)
class SystemDatabase:
    """Where the project remembers jobs, incarnations and leases.

    Args:
        url: SQLAlchemy URL of the database, ``sqlite:////absolute/path.db``; without it, the
            default described above. The file must lie on a local disk: SQLite's write-ahead log
            does not work on network file systems.
        busy_timeout_seconds: how long to wait for another process that is writing.
    """

    url: str | None = None
    busy_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.url is not None:
            check_url(self.url)

    def __repr__(self) -> str:
        shown = None if self.url is None else masked_url(self.url)
        return f"SystemDatabase(url={shown!r})"

    def connect(self) -> Database:
        """Open the database, bringing its tables up to date first.

        Safe when several processes do it at once: one migrates, the others wait for it.

        Raises:
            SystemDatabaseError: it cannot be opened or written, or a newer version of
                lakehouse-dagster has migrated it.
        """
        from lakehouse_dagster.system_db.engine import Database
        from lakehouse_dagster.system_db.migrate import migrate

        database = Database(self.url or default_url(), self.busy_timeout_seconds)
        try:
            migrate(database)
        except BaseException:
            database.close()
            raise
        return database

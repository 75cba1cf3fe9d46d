"""A system database in Postgres, which several code locations and hosts can share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.secret_names import MASK
from lakehouse_dagster.system_db.database import masked_url

DRIVER = "postgresql+psycopg"

_STATEMENT_SECONDS = 60.0
"""What a statement may take beyond the wait for locks; ours take milliseconds."""

_CONNECT_SECONDS = 10

_MIGRATIONS_LOCK = 0x6C616B65686F7573
"""Key of the advisory lock of whoever migrates: the letters ``lakehous``."""


class PostgresBackend:
    """Opens the connections, and says what their errors mean.

    Args:
        url: SQLAlchemy URL; its query may hold any of libpq's connection parameters.
        busy_timeout_seconds: how long a transaction waits for another one that is writing.

    Raises:
        SystemDatabaseError: the URL is ambiguous, or psycopg is not installed.
    """

    # What is read in one transaction must fit together, as it does on SQLite.
    read_options: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ"}
    # Each statement sees what was committed while it waited for a lock.
    write_options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}

    def __init__(self, url: str, busy_timeout_seconds: float) -> None:
        parsed = make_url(url)
        self._busy_timeout_seconds = busy_timeout_seconds
        self._secrets = _secrets(parsed)
        self.location = masked_url(url)
        _refuse_ambiguous(parsed, self.location)
        try:
            self.engine: Engine = create_engine(
                parsed.set(drivername=DRIVER),
                hide_parameters=True,
                pool_pre_ping=True,
                connect_args=_connect_arguments(parsed),
            )
        except ImportError as error:
            raise SystemDatabaseError(
                f"The system database {self.location} needs the Python package psycopg: {error}.",
                remedy='Install it: pip install "lakehouse-dagster[postgres]".',
            ) from None
        _bound_waits(self.engine, busy_timeout_seconds)

    def lock_migrations(self, connection: Connection) -> None:
        """Wait until no other process migrates; held until the end of the transaction."""
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATIONS_LOCK})

    def explain(self, error: DBAPIError) -> SystemDatabaseError:
        """What the error means, and what to do about it."""
        state = getattr(error.orig, "sqlstate", None)
        cause = self._masked(_first_message(error))
        if state in _MEANINGS:
            meaning, remedy = _MEANINGS[state]
            seconds = f"{self._busy_timeout_seconds:g}"
            return SystemDatabaseError(
                meaning.format(location=self.location, seconds=seconds, cause=cause),
                remedy=remedy,
            )
        if error.connection_invalidated:
            return SystemDatabaseError(
                f"The connection to the system database {self.location} was lost: {cause}",
                remedy="Look at the present state and try again: the next use connects anew.",
            )
        if error.statement is None:
            return SystemDatabaseError(
                f"The system database {self.location} cannot be reached: {cause}",
                remedy="See that the server runs and that host, database, user and password are "
                "right, and try again.",
            )
        return SystemDatabaseError(
            f"The system database {self.location} refused a request: {cause}"
        )

    def _masked(self, words: str) -> str:
        for secret in self._secrets:
            words = words.replace(secret, MASK)
        return words


_OTHER_TABLES = (
    "The tables of the system database {location} are not those that this process has opened: "
    "{cause}",
    "Restart this process: it brings the tables up to date when it opens the database.",
)

_MEANINGS = {
    "55P03": (
        "The system database {location} stayed locked for {seconds} s.",
        "Find the session that holds the lock (pg_stat_activity), and try again.",
    ),
    "57014": (
        "The system database {location} took too long for a statement, or someone cancelled it.",
        "See what else the server is doing, and try again.",
    ),
    "25006": (
        "The system database {location} is read-only.",
        "Name the primary server, not a standby.",
    ),
    "53100": (
        "The disk of the system database {location} is full; nothing was changed.",
        "Make room on the server and try again.",
    ),
    "53300": (
        "The server of the system database {location} has no connection left.",
        "Raise max_connections, or close what holds them, and try again.",
    ),
    "42501": (
        "The user of the system database {location} may not do this: {cause}",
        "Grant it USAGE and CREATE on the schema; it should own the tables lakehouse_*.",
    ),
    "42P01": _OTHER_TABLES,
    "42703": _OTHER_TABLES,
}
"""By SQLSTATE (PostgreSQL's documentation, appendix A)."""


def _first_message(error: DBAPIError) -> str:
    """What the server or libpq said, without the details, which quote rows."""
    diagnosis = getattr(error.orig, "diag", None)
    words = getattr(diagnosis, "message_primary", None) or str(error.orig)
    return " ".join(words.split())


def _refuse_ambiguous(parsed: URL, shown: str) -> None:
    # Otherwise a part of the password would be taken for the host, and shown when it is not found.
    if "@" in f"{parsed.host}{parsed.database}":
        raise SystemDatabaseError(
            f"The system database {shown} has a password that cannot be told from the host.",
            remedy="Write @ in it as %40, / as %2F, : as %3A and % as %25.",
        )


def _connect_arguments(parsed: URL) -> dict[str, Any]:
    """Parameters of libpq that notice a dead server, unless the URL has its own."""
    ours: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        "application_name": "lakehouse-dagster",
    }
    chosen = {key: value for key, value in ours.items() if key not in parsed.query}
    # Connection poolers hand a session's prepared statements to others.
    return {**chosen, "prepare_threshold": None}


def _bound_waits(engine: Engine, busy_timeout_seconds: float) -> None:
    """Let the server end what waits too long, also for a process that was stopped or cut off."""
    bounds = {
        "lock_timeout": busy_timeout_seconds,
        "statement_timeout": busy_timeout_seconds + _STATEMENT_SECONDS,
        # A process that is stopped within a transaction must not make the others time out.
        "idle_in_transaction_session_timeout": max(5.0, busy_timeout_seconds / 2),
    }
    command = "SELECT " + ", ".join(
        f"set_config('{name}', '{max(1, round(seconds * 1000))}', false)"
        for name, seconds in bounds.items()
    )

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(command)
        connection.commit()


def _secrets(parsed: URL) -> tuple[str, ...]:
    """Texts that must not be shown, whatever message they would stand in."""
    in_query = [
        value
        for key, value in parsed.query.items()
        if isinstance(value, str) and "pass" in key.lower()
    ]
    return tuple(text for text in (parsed.password, *in_query) if text)

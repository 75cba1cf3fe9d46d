"""Bring the tables of a system database up to date, by alembic, without a command."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from lakehouse_dagster.errors import SystemDatabaseError

if TYPE_CHECKING:
    from alembic.config import Config

    from lakehouse_dagster.system_db.engine import Database

HEAD = "0003"
"""The newest migration in ``migrations/versions``; kept here so that alembic need not be imported
to find that there is nothing to do."""

VERSION_TABLE = "lakehouse_version"
"""Alembic's own table, under a name of ours: Dagster keeps its own ``alembic_version``."""

# Alembic keeps the migration that is running in module globals.
_one_at_a_time = threading.Lock()


def migrate(database: Database) -> None:
    """Run the migrations that the database has not had.

    Raises:
        SystemDatabaseError: the database is of a newer version than this code, or cannot be
            written.
    """
    with database.read() as connection:
        if _version(connection) == HEAD:
            return
    with _one_at_a_time, database.write() as connection:
        database.backend.lock_migrations(connection)
        # Another process may have migrated while we waited for the lock.
        version = _version(connection)
        if version == HEAD:
            return
        _refuse_newer(version, database.location)
        from alembic import command

        command.upgrade(_alembic_config(connection), "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    return None if version is None else str(version)


def _refuse_newer(version: str | None, location: str) -> None:
    if version is None:
        return
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory(str(_folder())).walk_revisions()}
    if version not in known:
        raise SystemDatabaseError(
            f"The system database {location} has version {version}, but this lakehouse-dagster "
            f"knows versions up to {HEAD}.",
            remedy="Install the newer lakehouse-dagster that migrated it, or name another "
            "database.",
        )


def _alembic_config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _folder() -> Path:
    return Path(__file__).parent / "migrations"

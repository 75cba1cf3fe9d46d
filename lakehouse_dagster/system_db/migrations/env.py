"""Run by alembic for each migration; the transaction is the caller's."""

from __future__ import annotations

from alembic import context

from lakehouse_dagster.system_db.migrate import VERSION_TABLE
from lakehouse_dagster.system_db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()

"""What maintenance needs: the sums over each table's files, and every action with its outcome."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_POINT_IN_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "lakehouse_table_files",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("small_below_bytes", sa.BigInteger, nullable=False),
        sa.Column("sums", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", _POINT_IN_TIME, nullable=False),
        sa.PrimaryKeyConstraint("lakehouse", "table_name", name="pk_lakehouse_table_files"),
    )
    op.create_table(
        "lakehouse_maintenance_action",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("flink_job_id", sa.String(32), nullable=True),
        sa.Column("session_handle", sa.Text, nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("writer_restarts", sa.Integer, nullable=False),
        sa.Column("started_at", _POINT_IN_TIME, nullable=False),
        sa.Column("ended_at", _POINT_IN_TIME, nullable=True),
        sa.Column("before", sa.Text, nullable=True),
        sa.Column("after", sa.Text, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("lakehouse", "id", name="pk_lakehouse_maintenance_action"),
    )
    op.create_index(
        "ix_lakehouse_maintenance_action_table_name",
        "lakehouse_maintenance_action",
        ["lakehouse", "table_name", "started_at"],
    )

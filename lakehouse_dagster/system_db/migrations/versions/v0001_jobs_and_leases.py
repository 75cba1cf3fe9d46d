"""Leases, jobs and incarnations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_POINT_IN_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "lakehouse_lease",
        sa.Column("key", sa.String(512), nullable=False),
        sa.Column("fencing", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=True),
        sa.Column("ttl_seconds", sa.Float, nullable=True),
        sa.Column("expires_at", _POINT_IN_TIME, nullable=True),
        sa.PrimaryKeyConstraint("key", name="pk_lakehouse_lease"),
    )
    op.create_table(
        "lakehouse_job",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("desired", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_attempt_at", _POINT_IN_TIME, nullable=True),
        sa.Column("last_error", sa.Text, nullable=True),
        sa.Column("fencing", sa.BigInteger, nullable=False),
        sa.Column("updated_at", _POINT_IN_TIME, nullable=False),
        sa.PrimaryKeyConstraint("lakehouse", "name", name="pk_lakehouse_job"),
    )
    op.create_table(
        "lakehouse_incarnation",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("job_name", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("flink_job_id", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("session_handle", sa.Text, nullable=True),
        sa.Column("operation_handle", sa.Text, nullable=True),
        sa.Column("restored_from", sa.Text, nullable=True),
        sa.Column("fencing", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", _POINT_IN_TIME, nullable=False),
        sa.Column("submitted_at", _POINT_IN_TIME, nullable=True),
        sa.Column("running_at", _POINT_IN_TIME, nullable=True),
        sa.Column("ended_at", _POINT_IN_TIME, nullable=True),
        sa.Column("stop_trigger_id", sa.String(64), nullable=True),
        sa.Column("savepoint_path", sa.Text, nullable=True),
        sa.Column("checkpoint_path", sa.Text, nullable=True),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=True),
        sa.Column("checkpoint_at", _POINT_IN_TIME, nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("restarts_before_window", sa.Integer(), nullable=False),
        sa.Column("restart_window_at", _POINT_IN_TIME, nullable=True),
        sa.Column("end_reason", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(
            ["lakehouse", "job_name"],
            ["lakehouse_job.lakehouse", "lakehouse_job.name"],
            name="fk_lakehouse_incarnation_lakehouse_job",
        ),
        sa.PrimaryKeyConstraint("lakehouse", "job_name", "number", name="pk_lakehouse_incarnation"),
    )
    op.create_index(
        "ix_lakehouse_incarnation_flink_job_id", "lakehouse_incarnation", ["flink_job_id"]
    )

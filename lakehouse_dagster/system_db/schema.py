"""The tables as they are now; ``migrations/`` brings older databases here.

All names begin with ``lakehouse_``, so that the tables can live in the database that Dagster uses.
"""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time: aware going in, UTC in the database, aware UTC coming out.

    SQLite keeps no time zone, so there it is stored as naive UTC text, which sorts by time.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"A time without a time zone cannot be stored: {value!r}")
        utc = value.astimezone(timezone.utc)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

leases = Table(
    "lakehouse_lease",
    metadata,
    Column("key", String(512), primary_key=True),
    # One row a key for ever: the fencing number must go on growing after a release.
    Column("fencing", BigInteger, nullable=False),
    Column("holder", Text, nullable=True),
    Column("ttl_seconds", Float, nullable=True),
    Column("expires_at", UtcDateTime, nullable=True),
)

jobs = Table(
    "lakehouse_job",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("desired", String(32), nullable=False),
    Column("fingerprint", String(128), nullable=True),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", UtcDateTime, nullable=True),
    Column("last_error", Text, nullable=True),
    # The highest fencing number that anybody acted on the job with; lower ones are refused.
    Column("fencing", BigInteger, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # NULL: the job's own name; empty: the operator ids are not ours.
    Column("operator_name", Text, nullable=True),
    Column("alerted_at", UtcDateTime, nullable=True),
)

incarnations = Table(
    "lakehouse_incarnation",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("job_name", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("flink_job_id", String(32), nullable=False),
    Column("fingerprint", String(128), nullable=False),
    Column("state", String(32), nullable=False),
    Column("session_handle", Text, nullable=True),
    Column("operation_handle", Text, nullable=True),
    Column("restored_from", Text, nullable=True),
    Column("fencing", BigInteger, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("submitted_at", UtcDateTime, nullable=True),
    Column("running_at", UtcDateTime, nullable=True),
    Column("ended_at", UtcDateTime, nullable=True),
    Column("stop_trigger_id", String(64), nullable=True),
    Column("savepoint_path", Text, nullable=True),
    Column("checkpoint_path", Text, nullable=True),
    Column("checkpoint_id", BigInteger, nullable=True),
    Column("checkpoint_at", UtcDateTime, nullable=True),
    Column("restarts", Integer, nullable=False),
    Column("restarts_before_window", Integer, nullable=False),
    Column("restart_window_at", UtcDateTime, nullable=True),
    Column("end_reason", Text, nullable=True),
    Column("origin", String(16), nullable=False, server_default="submitted"),
    Column("savepoint_at", UtcDateTime, nullable=True),
    Column("failed_checkpoints", Integer, nullable=False, server_default="0"),
    Column("root_cause", Text, nullable=True),
    Column("root_cause_at", UtcDateTime, nullable=True),
    Column("read_positions", Text, nullable=True),
    Column("read_moved_at", UtcDateTime, nullable=True),
    Column("restore_points_deleted_at", UtcDateTime, nullable=True),
    ForeignKeyConstraint(
        ["lakehouse", "job_name"], ["lakehouse_job.lakehouse", "lakehouse_job.name"]
    ),
    Index(None, "flink_job_id"),
)

script_versions = Table(
    "lakehouse_script_version",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("job_name", String(255), primary_key=True),
    Column("fingerprint", String(128), primary_key=True),
    Column("definition", Text, nullable=True),
    Column("plan", Text, nullable=True),
    Column("recorded_at", UtcDateTime, nullable=False),
)

# One row a lakehouse. Triggers write another random token whenever any of its jobs or incarnations
# is changed, by whatever program: who has seen the token has seen the rows.
changes = Table(
    "lakehouse_change",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("token", BigInteger, nullable=False),
)

# The sums over a table's live files as of one snapshot (`paimon/bucket_facts.py`), compressed: so
# that the next look needs the new snapshots' manifests alone.
table_files = Table(
    "lakehouse_table_files",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("small_below_bytes", BigInteger, nullable=False),
    Column("sums", LargeBinary, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

maintenance_actions = Table(
    "lakehouse_maintenance_action",
    metadata,
    Column("lakehouse", String(255), primary_key=True),
    Column("id", String(32), primary_key=True),
    Column("table_name", String(255), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("holder", Text, nullable=False),
    # Chosen before the procedure is called, so that the job is found whatever happens to an answer.
    Column("flink_job_id", String(32), nullable=True),
    Column("session_handle", Text, nullable=True),
    Column("attempts", Integer, nullable=False),
    Column("writer_restarts", Integer, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=True),
    Column("before", Text, nullable=True),
    Column("after", Text, nullable=True),
    Column("error", Text, nullable=True),
    Index("ix_lakehouse_maintenance_action_table_name", "lakehouse", "table_name", "started_at"),
)

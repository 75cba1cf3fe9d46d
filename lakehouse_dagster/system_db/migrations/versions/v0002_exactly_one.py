"""What exactly-one needs: operator names, origins, root causes, positions, versions of scripts.

Also the tokens by which a process sees that nothing has changed. They are written by triggers, so a
later migration that makes one of these tables anew (alembic's batch mode) must make them anew too.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_POINT_IN_TIME = sa.DateTime(timezone=True)
_WATCHED = ("lakehouse_job", "lakehouse_incarnation")
_EVENTS = {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}


def upgrade() -> None:
    """Add the columns and tables."""
    _add_columns()
    op.create_table(
        "lakehouse_script_version",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("job_name", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("definition", sa.Text, nullable=True),
        sa.Column("plan", sa.Text, nullable=True),
        sa.Column("recorded_at", _POINT_IN_TIME, nullable=False),
        sa.PrimaryKeyConstraint(
            "lakehouse", "job_name", "fingerprint", name="pk_lakehouse_script_version"
        ),
    )
    op.create_table(
        "lakehouse_change",
        sa.Column("lakehouse", sa.String(255), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("lakehouse", name="pk_lakehouse_change"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _make_triggers_of_postgres()
    else:
        _make_triggers_of_sqlite()


def _add_columns() -> None:
    added: dict[str, list[sa.Column[Any]]] = {
        "lakehouse_job": [
            sa.Column("operator_name", sa.Text, nullable=True),
            sa.Column("alerted_at", _POINT_IN_TIME, nullable=True),
        ],
        "lakehouse_incarnation": [
            sa.Column("origin", sa.String(16), nullable=False, server_default="submitted"),
            sa.Column("savepoint_at", _POINT_IN_TIME, nullable=True),
            sa.Column("failed_checkpoints", sa.Integer, nullable=False, server_default="0"),
            sa.Column("root_cause", sa.Text, nullable=True),
            sa.Column("root_cause_at", _POINT_IN_TIME, nullable=True),
            sa.Column("read_positions", sa.Text, nullable=True),
            sa.Column("read_moved_at", _POINT_IN_TIME, nullable=True),
            sa.Column("restore_points_deleted_at", _POINT_IN_TIME, nullable=True),
        ],
    }
    for table, columns in added.items():
        for column in columns:
            op.add_column(table, column)


def _make_triggers_of_sqlite() -> None:
    for table in _WATCHED:
        for event, row in _EVENTS.items():
            note = _note_change(row, "random()")
            op.execute(f"CREATE TRIGGER {_trigger(table, event)} BEGIN {note}; END")


def _make_triggers_of_postgres() -> None:
    for row in ("NEW", "OLD"):
        note = _note_change(row, "CAST(random() * 9007199254740992 AS bigint)")
        op.execute(
            f"CREATE FUNCTION lakehouse_note_change_of_{row.lower()}() RETURNS trigger "
            f"LANGUAGE plpgsql AS $$ BEGIN {note}; RETURN {row}; END $$"
        )
    for table in _WATCHED:
        for event, row in _EVENTS.items():
            op.execute(
                f"CREATE TRIGGER {_trigger(table, event)} FOR EACH ROW "
                f"EXECUTE FUNCTION lakehouse_note_change_of_{row.lower()}()"
            )


def _trigger(table: str, event: str) -> str:
    return f"{table}_{event.lower()}_is_a_change AFTER {event} ON {table}"


def _note_change(row: str, token: str) -> str:
    return (
        "INSERT INTO lakehouse_change (lakehouse, token) "  # noqa: S608 - constants of this file
        f"VALUES ({row}.lakehouse, {token}) "
        f"ON CONFLICT (lakehouse) DO UPDATE SET token = {token}"
    )

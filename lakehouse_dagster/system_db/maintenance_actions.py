"""Every piece of maintenance work that was begun, and what became of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any, TypedDict

from sqlalchemy import RowMapping, delete, select, update

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database

_actions = schema.maintenance_actions


class ActionState(str, Enum):
    """How far an action has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """Looked at once more, it must not be done: nothing was changed."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self is not ActionState.RUNNING


@dataclass(frozen=True)
class ActionRecord:
    """One action.

    Args:
        kind: value of ``maintenance.actions.ActionKind``.
        details: JSON: partitions, names, figures.
        holder: the run or command that does it.
        flink_job_id: chosen beforehand; None where no Flink job is needed.
        before, after: JSON of the table's figures.
    """

    id: str
    table_name: str
    kind: str
    state: ActionState
    reason: str
    details: str
    holder: str
    flink_job_id: str | None
    session_handle: str | None
    attempts: int
    writer_restarts: int
    started_at: datetime
    ended_at: datetime | None
    before: str | None
    after: str | None
    error: str | None


class ActionChanges(TypedDict, total=False):
    """What changes of an action after it was begun."""

    state: ActionState
    flink_job_id: str | None
    session_handle: str | None
    attempts: int
    writer_restarts: int
    ended_at: datetime | None
    before: str | None
    after: str | None
    error: str | None


_columns = [_actions.c[field.name] for field in fields(ActionRecord)]


class MaintenanceActions:
    """The actions of one lakehouse.

    Args:
        db: the open system database.
        lakehouse: identity of the lakehouse.
        clock: what time it is.
    """

    def __init__(self, db: Database, lakehouse: str, clock: Clock = utc_now) -> None:
        self._db = db
        self._lakehouse = lakehouse
        self._clock = clock

    def begin(
        self, table: str, kind: str, *, reason: str, details: str, holder: str, before: str | None
    ) -> ActionRecord:
        """Write down that an action begins; done before anything is asked of the cluster."""
        record = ActionRecord(
            id=uuid.uuid4().hex,
            table_name=table,
            kind=kind,
            state=ActionState.RUNNING,
            reason=reason,
            details=details,
            holder=holder,
            flink_job_id=None,
            session_handle=None,
            attempts=0,
            writer_restarts=0,
            started_at=self._clock(),
            ended_at=None,
            before=before,
            after=None,
            error=None,
        )
        values = {field.name: getattr(record, field.name) for field in fields(record)}
        with self._db.write() as connection:
            connection.execute(
                _actions.insert().values(
                    {**values, "lakehouse": self._lakehouse, "state": record.state.value}
                )
            )
        return record

    def update(self, action_id: str, changes: ActionChanges) -> ActionRecord:
        """Change what is on record of an action.

        Raises:
            SystemDatabaseError: there is no such action.
        """
        values: dict[str, Any] = dict(changes)
        if "state" in changes:
            values["state"] = changes["state"].value
        this = (_actions.c.lakehouse == self._lakehouse) & (_actions.c.id == action_id)
        with self._db.write() as connection:
            connection.execute(update(_actions).where(this).values(values))
            row = connection.execute(select(*_columns).where(this)).mappings().one_or_none()
        if row is None:
            raise SystemDatabaseError(f"No maintenance action {action_id} is on record.")
        return _record(row)

    def running(self) -> tuple[ActionRecord, ...]:
        """The actions that are not over, as far as is known."""
        query = (
            select(*_columns)
            .where(_actions.c.lakehouse == self._lakehouse)
            .where(_actions.c.state == ActionState.RUNNING.value)
            .order_by(_actions.c.started_at)
        )
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())

    def of_table(self, table: str, most: int = 50) -> tuple[ActionRecord, ...]:
        """At most so many of the newest actions on a table, newest first."""
        query = (
            select(*_columns)
            .where(_actions.c.lakehouse == self._lakehouse)
            .where(_actions.c.table_name == table)
            .order_by(_actions.c.started_at.desc())
            .limit(most)
        )
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())

    def ended_since(self, moment: datetime) -> tuple[ActionRecord, ...]:
        """The actions that were over at or after a moment, oldest first."""
        query = (
            select(*_columns)
            .where(_actions.c.lakehouse == self._lakehouse)
            .where(_actions.c.ended_at >= moment)
            .order_by(_actions.c.ended_at)
        )
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())

    def all_outcomes(self) -> tuple[tuple[str, str, ActionState, datetime | None], ...]:
        """Table, kind, state and end of every action, oldest first: cheap, for all tables."""
        query = (
            select(_actions.c.table_name, _actions.c.kind, _actions.c.state, _actions.c.ended_at)
            .where(_actions.c.lakehouse == self._lakehouse)
            .order_by(_actions.c.started_at)
        )
        with self._db.read() as connection:
            return tuple(
                (table, kind, ActionState(state), ended)
                for table, kind, state, ended in connection.execute(query)
            )

    def prune(self, ended_before: datetime) -> int:
        """Forget actions that ended before a moment; how many they were."""
        old = (_actions.c.lakehouse == self._lakehouse) & (_actions.c.ended_at < ended_before)
        with self._db.write() as connection:
            return int(connection.execute(delete(_actions).where(old)).rowcount)


def _record(row: RowMapping) -> ActionRecord:
    return ActionRecord(**{**row, "state": ActionState(row["state"])})

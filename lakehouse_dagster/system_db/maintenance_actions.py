"""Every piece of maintenance work that was begun, and what became of it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypedDict

from sqlalchemy import (
    ColumnElement,
    RowMapping,
    Select,
    Subquery,
    case,
    delete,
    func,
    select,
    update,
)

from lakehouse_dagster.errors import SystemDatabaseError
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database
from lakehouse_dagster.system_db.schema import UtcDateTime

_actions = schema.maintenance_actions

REMEMBERED = timedelta(days=30)
"""Older actions are forgotten, but for the last of each kind on a table."""
COMMITS_AFTER = "commits_after"
"""In the details of an action that commits to its table: the newest snapshot before it began."""
COMMIT_USERS = "commit_users"
"""In the details of one that has ended: under which users it did."""
_INTERRUPTIONS_THAT_COUNT = 2
"""In a row: what dies again may be what its runs die of."""


class ActionState(str, Enum):
    """How far an action has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """Its run died, or could not reach anybody to end it: told by whoever came next."""


@dataclass(frozen=True)
class ActionRecord:
    """One action.

    Args:
        kind: value of ``maintenance.actions.ActionKind``.
        details: JSON: partitions, names, figures, commit users.
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
    details: str
    ended_at: datetime | None
    after: str | None
    error: str | None


@dataclass(frozen=True)
class OwnCommits:
    """The users under which our actions committed to a table.

    ``under_way``: one that does has not ended yet, and its users are not known.
    """

    users: frozenset[str]
    under_way: bool


@dataclass(frozen=True)
class Outcome:
    """How one kind of action went on one table so far.

    Args:
        done_at: when it was last done; None if never.
        failed_at: when it last failed since then.
        failures: how often it failed since then. To be interrupted is no failure of the table's,
            and counts only when it happened again.
        writer_restarts: how often writers were restarted during all of them on record.
    """

    table_name: str
    kind: str
    done_at: datetime | None
    failed_at: datetime | None
    failures: int
    writer_restarts: int = 0


@dataclass(frozen=True)
class Latest:
    """The newest action on a table, and how many there are on record."""

    records: int
    state: ActionState
    ended_at: datetime | None


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

        What is over stays as it is: whoever was fenced off does not overrule who took over.

        Raises:
            SystemDatabaseError: there is no such action.
        """
        values: dict[str, Any] = dict(changes)
        if "state" in changes:
            values["state"] = changes["state"].value
        this = (_actions.c.lakehouse == self._lakehouse) & (_actions.c.id == action_id)
        with self._db.write() as connection:
            connection.execute(
                update(_actions)
                .where(this, _actions.c.state == ActionState.RUNNING.value)
                .values(values)
            )
            row = connection.execute(select(*_columns).where(this)).mappings().one_or_none()
        if row is None:
            raise SystemDatabaseError(f"No maintenance action {action_id} is on record.")
        return _record(row)

    def running(self) -> tuple[ActionRecord, ...]:
        """The actions that are not over, as far as is known."""
        running = self._where(_actions.c.state == ActionState.RUNNING.value)
        return self._read(running.order_by(_actions.c.started_at))

    def of_table(self, table: str, most: int = 50) -> tuple[ActionRecord, ...]:
        """At most so many of the newest actions on a table, newest first."""
        of_table = self._where(_actions.c.table_name == table)
        return self._read(of_table.order_by(_actions.c.started_at.desc()).limit(most))

    def ended_since(self, moment: datetime) -> tuple[ActionRecord, ...]:
        """The actions that were over at or after a moment, oldest first."""
        return self._read(self._where(_actions.c.ended_at >= moment).order_by(_actions.c.ended_at))

    def outcomes(self) -> tuple[Outcome, ...]:
        """How each kind of action went on each table so far, by one query."""
        done = _last(self._lakehouse, ActionState.DONE)
        since = done.c.at.is_(None) | (_actions.c.ended_at > done.c.at)
        failed = since & (_actions.c.state == ActionState.FAILED.value)
        interrupted = since & (_actions.c.state == ActionState.INTERRUPTED.value)
        query = (
            select(
                _actions.c.table_name,
                _actions.c.kind,
                func.max(done.c.at, type_=UtcDateTime),
                func.max(case((failed, _actions.c.ended_at)), type_=UtcDateTime),
                func.count(case((failed, 1))),
                func.max(case((interrupted, _actions.c.ended_at)), type_=UtcDateTime),
                func.count(case((interrupted, 1))),
                func.sum(_actions.c.writer_restarts),
            )
            .select_from(_actions.outerjoin(done, _is_alike(done)))
            .where(_actions.c.lakehouse == self._lakehouse, _actions.c.ended_at.is_not(None))
            .group_by(_actions.c.table_name, _actions.c.kind)
        )
        with self._db.read() as connection:
            return tuple(_outcome(*row) for row in connection.execute(query))

    def latest(self) -> dict[str, Latest]:
        """The newest action on each table, and how many there are, by one query."""
        newest = (
            select(
                _actions.c.table_name,
                func.max(_actions.c.started_at, type_=UtcDateTime).label("started_at"),
                func.count().label("records"),
            )
            .where(_actions.c.lakehouse == self._lakehouse)
            .group_by(_actions.c.table_name)
            .subquery()
        )
        query = (
            select(_actions.c.table_name, newest.c.records, _actions.c.state, _actions.c.ended_at)
            .join(
                newest,
                (newest.c.table_name == _actions.c.table_name)
                & (newest.c.started_at == _actions.c.started_at),
            )
            .where(_actions.c.lakehouse == self._lakehouse)
        )
        with self._db.read() as connection:
            return {
                table: Latest(records, ActionState(state), ended)
                for table, records, state, ended in connection.execute(query)
            }

    def last_done(self, kind: str) -> dict[str, ActionRecord]:
        """The newest action of a kind that was done on each table, by table."""
        last = _last(self._lakehouse, ActionState.DONE)
        query = self._where(
            _actions.c.kind == kind, _actions.c.state == ActionState.DONE.value
        ).join(last, _is(last))
        return {record.table_name: record for record in self._read(query)}

    def last_errors(self) -> dict[tuple[str, str], str]:
        """What each kind of action on each table said that failed last, by table and kind."""
        last = _last(self._lakehouse, ActionState.FAILED, ActionState.INTERRUPTED)
        query = (
            select(_actions.c.table_name, _actions.c.kind, _actions.c.error)
            .join(last, _is(last))
            .where(_actions.c.lakehouse == self._lakehouse, _actions.c.error.is_not(None))
        )
        with self._db.read() as connection:
            return {(table, kind): error for table, kind, error in connection.execute(query)}

    def unmended(self, word: str) -> dict[str, tuple[str, ...]]:
        """The errors with a word in them of actions that failed and were not done since, by table.

        Newest first, each once.
        """
        done = _last(self._lakehouse, ActionState.DONE)
        query = (
            select(_actions.c.table_name, _actions.c.error)
            .outerjoin(done, _is_alike(done))
            .where(
                _actions.c.lakehouse == self._lakehouse,
                _actions.c.state == ActionState.FAILED.value,
                _actions.c.error.contains(word, autoescape=True),
                done.c.at.is_(None) | (_actions.c.ended_at > done.c.at),
            )
            .order_by(_actions.c.ended_at.desc())
        )
        found: dict[str, dict[str, None]] = {}
        with self._db.read() as connection:
            for table, error in connection.execute(query):
                found.setdefault(table, {})[error] = None
        return {table: tuple(errors) for table, errors in found.items()}

    def own_commits(self, table: str) -> OwnCommits:
        """Who committed to a table because an action did, not counting compactions."""
        query = select(_actions.c.state, _actions.c.details).where(
            _actions.c.lakehouse == self._lakehouse,
            _actions.c.table_name == table,
            _actions.c.details.contains(COMMITS_AFTER, autoescape=True),
        )
        with self._db.read() as connection:
            found = connection.execute(query).all()
        return OwnCommits(
            frozenset(
                user for _, details in found for user in json.loads(details).get(COMMIT_USERS, ())
            ),
            any(state == ActionState.RUNNING.value for state, _ in found),
        )

    def prune(self, ended_before: datetime) -> int:
        """Forget actions that ended before a moment; how many they were.

        The last one of its kind that was done on its table stays: what is due follows from it.
        """
        done = _last(self._lakehouse, ActionState.DONE)
        last = (
            select(done.c.at)
            .where(done.c.table_name == _actions.c.table_name, done.c.kind == _actions.c.kind)
            .scalar_subquery()
        )
        old = (_actions.c.lakehouse == self._lakehouse) & (_actions.c.ended_at < ended_before)
        superseded = last.is_(None) | (_actions.c.ended_at < last)
        with self._db.write() as connection:
            return int(connection.execute(delete(_actions).where(old, superseded)).rowcount)

    def _where(self, *conditions: ColumnElement[bool]) -> Select[Any]:
        """A query for the actions of this lakehouse that fulfil the conditions."""
        return select(*_columns).where(_actions.c.lakehouse == self._lakehouse, *conditions)

    def _read(self, query: Select[Any]) -> tuple[ActionRecord, ...]:
        with self._db.read() as connection:
            return tuple(_record(row) for row in connection.execute(query).mappings())


def _outcome(
    table: str,
    kind: str,
    done_at: datetime | None,
    failed_at: datetime | None,
    failures: int,
    interrupted_at: datetime | None,
    interruptions: int,
    writer_restarts: int,
) -> Outcome:
    if interruptions < _INTERRUPTIONS_THAT_COUNT:
        return Outcome(table, kind, done_at, failed_at, failures, writer_restarts)
    at = max(moment for moment in (failed_at, interrupted_at) if moment is not None)
    return Outcome(table, kind, done_at, at, failures + interruptions, writer_restarts)


def _is(last: Subquery) -> ColumnElement[bool]:
    """Whether an action is the one of its kind and table that was looked for."""
    return _is_alike(last) & (last.c.at == _actions.c.ended_at)


def _is_alike(last: Subquery) -> ColumnElement[bool]:
    return (last.c.table_name == _actions.c.table_name) & (last.c.kind == _actions.c.kind)


def _last(lakehouse: str, *states: ActionState) -> Subquery:
    """When each kind of action last ended in one of these ways on each table."""
    return (
        select(
            _actions.c.table_name,
            _actions.c.kind,
            func.max(_actions.c.ended_at, type_=UtcDateTime).label("at"),
        )
        .where(_actions.c.lakehouse == lakehouse, _actions.c.state.in_([s.value for s in states]))
        .group_by(_actions.c.table_name, _actions.c.kind)
        .subquery()
    )


def _record(row: RowMapping) -> ActionRecord:
    return ActionRecord(**{**row, "state": ActionState(row["state"])})

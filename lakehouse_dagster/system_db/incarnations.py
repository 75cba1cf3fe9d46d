"""The table of incarnations, inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypedDict

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Update,
    and_,
    bindparam,
    delete,
    func,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from lakehouse_dagster.errors import IncarnationConflictError, SystemDatabaseError
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.records import Incarnation, IncarnationState, Origin

_table = schema.incarnations
_jobs = schema.jobs
_names = tuple(field.name for field in fields(Incarnation))
_columns = [_table.c[name] for name in _names]
_STATE, _ORIGIN = _names.index("state"), _names.index("origin")
_OVER = tuple(state.value for state in IncarnationState if state.is_over)


class IncarnationChanges(TypedDict, total=False):
    """The fields of an incarnation that change after it was recorded."""

    state: IncarnationState
    session_handle: str | None
    operation_handle: str | None
    restored_from: str | None
    submitted_at: datetime | None
    running_at: datetime | None
    ended_at: datetime | None
    stop_trigger_id: str | None
    savepoint_path: str | None
    savepoint_at: datetime | None
    checkpoint_path: str | None
    checkpoint_id: int | None
    checkpoint_at: datetime | None
    failed_checkpoints: int
    restarts: int
    restarts_before_window: int
    restart_window_at: datetime | None
    root_cause: str | None
    root_cause_at: datetime | None
    read_positions: str | None
    read_moved_at: datetime | None
    restore_points_deleted_at: datetime | None
    end_reason: str | None


_CHANGEABLE = frozenset(IncarnationChanges.__annotations__)


def find(connection: Connection, lakehouse: str, name: str, number: int) -> Incarnation | None:
    """The incarnation with this number."""
    found = matching(connection, lakehouse, _this(lakehouse, name, number))
    return found[0] if found else None


def one(connection: Connection, lakehouse: str, name: str, number: int) -> Incarnation:
    """The incarnation with this number.

    Raises:
        SystemDatabaseError: no such incarnation is recorded.
    """
    found = find(connection, lakehouse, name, number)
    if found is None:
        raise SystemDatabaseError(f"No incarnation {number} of the job {name} is recorded.")
    return found


def of_job(
    connection: Connection, lakehouse: str, name: str, limit: int | None = None
) -> tuple[Incarnation, ...]:
    """The job's lives, newest first."""
    return matching(connection, lakehouse, _table.c.job_name == name, limit)


def by_flink_job_id(connection: Connection, lakehouse: str, job_id: str) -> Incarnation | None:
    """The incarnation that runs, or ran, under this id."""
    found = matching(connection, lakehouse, _table.c.flink_job_id == job_id, limit=1)
    return found[0] if found else None


def matching(
    connection: Connection,
    lakehouse: str,
    condition: ColumnElement[bool],
    limit: int | None = None,
) -> tuple[Incarnation, ...]:
    """The incarnations of the lakehouse that meet a condition, highest number first."""
    query = (
        select(*_columns)
        .where(_table.c.lakehouse == lakehouse, condition)
        .order_by(_table.c.number.desc())
        .limit(limit)
    )
    return tuple(_record(row) for row in connection.execute(query))


def newest(connection: Connection, lakehouse: str) -> dict[str, Incarnation]:
    """The newest life of every job that had one, by the job's name, in one query."""
    other = _table.alias()
    highest = (
        select(func.max(other.c.number))
        .where(other.c.lakehouse == _jobs.c.lakehouse, other.c.job_name == _jobs.c.name)
        .scalar_subquery()
    )
    # From the jobs, so that of each the index is asked once, however long its history is.
    query = (
        select(*_columns)
        .select_from(_jobs)
        .join(
            _table,
            and_(
                _table.c.lakehouse == _jobs.c.lakehouse,
                _table.c.job_name == _jobs.c.name,
                _table.c.number == highest,
            ),
        )
        .where(_jobs.c.lakehouse == lakehouse)
        .order_by(_jobs.c.name)
    )
    return {life.job_name: life for life in map(_record, connection.execute(query))}


def insert(connection: Connection, lakehouse: str, values: Mapping[str, Any]) -> Incarnation:
    """Record a new life; earlier ones that are not over become SUPERSEDED.

    Raises:
        IncarnationConflictError: this number, or a higher one, is recorded already.
    """
    name, number = values["job_name"], values["number"]
    refuse_taken(connection, lakehouse, name, number)
    _supersede(connection, lakehouse, name, number)
    try:
        connection.execute(
            _table.insert().values(
                lakehouse=lakehouse,
                state=IncarnationState.RECORDED.value,
                restarts=0,
                restarts_before_window=0,
                **values,
            )
        )
    except IntegrityError as error:
        raise _number_taken(name, number, number) from error
    return one(connection, lakehouse, name, number)


def change(
    connection: Connection, lakehouse: str, before: Incarnation, changes: IncarnationChanges
) -> None:
    """Write new values of fields.

    Raises:
        IncarnationConflictError: a superseded incarnation would come to life again.
    """
    _refuse_revival(before, changes)
    values = _column_values(changes)
    if values:
        connection.execute(
            update(_table).where(_this(lakehouse, before.job_name, before.number)).values(values)
        )


def change_many(
    connection: Connection,
    lakehouse: str,
    changes: Sequence[tuple[str, int, IncarnationChanges]],
    known: Mapping[tuple[str, int], Incarnation] | None = None,
) -> tuple[Incarnation, ...]:
    """Write new values of fields of many incarnations, and give back those that were written.

    Those that are not recorded, and superseded ones that would come to life again, are left alone.

    Args:
        connection: a transaction that nobody else's can come between.
        lakehouse: whose incarnations.
        changes: of each incarnation the job's name, the number, and new values of fields.
        known: the incarnations as this transaction sees them, where the caller knows.
    """
    if known is None:
        known = _by_number(connection, lakehouse, changes)
    to_write: dict[tuple[str, int], dict[str, Any]] = {}
    for name, number, values in changes:
        before = known.get((name, number))
        if before is None or _is_revival(before, values):
            continue
        to_write.setdefault((name, number), {}).update(_column_values(values))
    _update_all(connection, lakehouse, to_write)
    return tuple(_changed(known[key], values) for key, values in to_write.items())


def _by_number(
    connection: Connection,
    lakehouse: str,
    changes: Sequence[tuple[str, int, IncarnationChanges]],
) -> dict[tuple[str, int], Incarnation]:
    # Of these names any of these numbers: a few too many, but found by the index on SQLite too.
    these = and_(
        _table.c.job_name.in_({name for name, _, _ in changes}),
        _table.c.number.in_({number for _, number, _ in changes}),
    )
    return {(life.job_name, life.number): life for life in matching(connection, lakehouse, these)}


def _changed(before: Incarnation, values: Mapping[str, Any]) -> Incarnation:
    """The incarnation as it is read after these column values were written."""
    after = dict(values)
    if "state" in after:
        after["state"] = IncarnationState(after["state"])
    return replace(before, **after)


def refuse_taken(connection: Connection, lakehouse: str, name: str, number: int) -> None:
    """Make sure that the number is higher than all that are recorded.

    Raises:
        IncarnationConflictError: it is not.
    """
    highest = connection.execute(
        select(func.max(_table.c.number)).where(_of(lakehouse, name))
    ).scalar()
    if highest is not None and highest >= number:
        raise _number_taken(name, number, highest)


def move(connection: Connection, lakehouse: str, old: str, new: str) -> None:
    """Give the lives of ``old`` to ``new``."""
    connection.execute(update(_table).where(_of(lakehouse, old)).values(job_name=new))


def remove(connection: Connection, lakehouse: str, name: str) -> None:
    """Delete all lives of the job."""
    connection.execute(delete(_table).where(_of(lakehouse, name)))


def prune(
    connection: Connection, lakehouse: str, keep_incarnations: int, older_than: datetime
) -> int:
    """Delete old lives that nothing depends on; how many there were.

    A life stays when it is one of its job's newest ``keep_incarnations``, is not over, ended (or
    was recorded, if nobody saw its end) at or after ``older_than``, is the newest with state, or
    has restore points that were not deleted: they could not be found, to delete them, without it.
    """
    rank = func.row_number().over(partition_by=_table.c.job_name, order_by=_table.c.number.desc())
    has_points = _table.c.savepoint_path.is_not(None) | _table.c.checkpoint_path.is_not(None)
    ranked = (
        select(
            _table.c.job_name,
            _table.c.number,
            _table.c.state,
            func.coalesce(_table.c.ended_at, _table.c.recorded_at).label("last_at"),
            has_points.label("has_points"),
            _table.c.restore_points_deleted_at,
            rank.label("rank"),
            func.max(_table.c.number)
            .filter(has_points)
            .over(partition_by=_table.c.job_name)
            .label("newest_stateful"),
        )
        .where(_table.c.lakehouse == lakehouse)
        .subquery()
    )
    doomed = select(ranked.c.job_name, ranked.c.number).where(
        ranked.c.rank > max(keep_incarnations, 1),
        ranked.c.state.in_(_OVER),
        ranked.c.last_at < older_than,
        ~ranked.c.has_points | ranked.c.restore_points_deleted_at.is_not(None),
        func.coalesce(ranked.c.number != ranked.c.newest_stateful, true()),
    )
    rows = connection.execute(doomed).all()
    for name, number in rows:
        connection.execute(delete(_table).where(_this(lakehouse, name, number)))
    return len(rows)


def _of(lakehouse: str, name: str) -> ColumnElement[bool]:
    return and_(_table.c.lakehouse == lakehouse, _table.c.job_name == name)


def _this(lakehouse: str, name: str, number: int) -> ColumnElement[bool]:
    return and_(_of(lakehouse, name), _table.c.number == number)


def _supersede(connection: Connection, lakehouse: str, name: str, number: int) -> None:
    # Not `ended_at`: whether it has ended is not known, only that it should have.
    connection.execute(
        update(_table)
        .where(_of(lakehouse, name), _table.c.state.not_in(_OVER))
        .values(
            state=IncarnationState.SUPERSEDED.value,
            end_reason=func.coalesce(_table.c.end_reason, f"superseded by incarnation {number}"),
        )
    )


def _number_taken(name: str, number: int, highest: int) -> IncarnationConflictError:
    return IncarnationConflictError(
        f"Incarnation {number} of the job {name} cannot be recorded: incarnation {highest} is "
        "recorded already.",
        remedy="Another run started the job; look at its state before starting it again.",
    )


def _update_all(
    connection: Connection, lakehouse: str, values: Mapping[tuple[str, int], Mapping[str, Any]]
) -> None:
    """Update rows by one statement for all those that change in the same columns."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for (name, number), new in values.items():
        row = {"of_lakehouse": lakehouse, "of_job": name, "of_number": number, **new}
        alike.setdefault(tuple(sorted(new)), []).append(row)
    for columns, rows in alike.items():
        if columns:
            connection.execute(_update_of(columns), rows)


@lru_cache(maxsize=64)  # to make the statement takes longer than to run it
def _update_of(columns: tuple[str, ...]) -> Update:
    return (
        update(_table)
        .where(
            _table.c.lakehouse == bindparam("of_lakehouse"),
            _table.c.job_name == bindparam("of_job"),
            _table.c.number == bindparam("of_number"),
        )
        .values({column: bindparam(column) for column in columns})
    )


def _column_values(changes: IncarnationChanges) -> dict[str, Any]:
    unknown = sorted(set(changes) - _CHANGEABLE)
    if unknown:
        raise TypeError(f"These fields of an incarnation cannot be changed: {unknown}")
    values: dict[str, Any] = dict(changes)
    if "state" in values:
        values["state"] = IncarnationState(values["state"]).value
    return values


def _is_revival(before: Incarnation, changes: IncarnationChanges) -> bool:
    stays = (IncarnationState.SUPERSEDED, IncarnationState.ENDED)
    superseded = before.state is IncarnationState.SUPERSEDED
    return superseded and changes.get("state", before.state) not in stays


def _refuse_revival(before: Incarnation, changes: IncarnationChanges) -> None:
    if _is_revival(before, changes):
        raise IncarnationConflictError(
            f"Incarnation {before.number} of the job {before.job_name} was superseded and cannot "
            f"become {IncarnationState(changes['state']).value} again.",
            remedy="Look at the job's latest incarnation.",
        )


def _record(row: Row[Any]) -> Incarnation:
    values = list(row)
    values[_STATE] = IncarnationState(values[_STATE])
    values[_ORIGIN] = Origin(values[_ORIGIN])
    return Incarnation(*values)

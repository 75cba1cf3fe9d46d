"""The table of jobs, row by row, inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, select, update

from lakehouse_dagster.errors import LeaseLostError, SystemDatabaseError
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.records import DesiredState, JobRecord

_jobs = schema.jobs
_leases = schema.leases


def lease_key(lakehouse: str, name: str) -> str:
    """The key of the lease that whoever acts on the job holds."""
    return f"job/{lakehouse}/{name}"


def find(connection: Connection, lakehouse: str, name: str) -> JobRecord | None:
    """What is remembered of the job."""
    row = _row(connection, lakehouse, name)
    return None if row is None else _record(row)


def of_lakehouse(connection: Connection, lakehouse: str) -> tuple[JobRecord, ...]:
    """All jobs of the lakehouse, by name."""
    query = select(_jobs).where(_jobs.c.lakehouse == lakehouse).order_by(_jobs.c.name)
    return tuple(_record(row) for row in connection.execute(query).mappings())


def insert_missing(
    connection: Connection, lakehouse: str, names: Iterable[str], now: datetime
) -> None:
    """Remember those jobs as UNMANAGED of which nothing is remembered.

    A job may have been forgotten or renamed while an old run of it was stopped: its fencing number
    therefore begins with that of its lease, which is never forgotten.
    """
    wanted = list(dict.fromkeys(names))
    query = select(_jobs.c.name).where(_jobs.c.lakehouse == lakehouse)
    if len(wanted) == 1:
        query = query.where(_jobs.c.name == wanted[0])
    known = set(connection.execute(query).scalars())
    missing = [
        {
            "lakehouse": lakehouse,
            "name": name,
            "desired": DesiredState.UNMANAGED.value,
            "attempts": 0,
            "fencing": leased_fencing(connection, lakehouse, name),
            "updated_at": now,
        }
        for name in wanted
        if name not in known
    ]
    if missing:
        connection.execute(_jobs.insert(), missing)


def change(
    connection: Connection, lakehouse: str, name: str, now: datetime, values: dict[str, Any]
) -> JobRecord:
    """Change a job, which is remembered first when nothing was."""
    insert_missing(connection, lakehouse, [name], now)
    if values:
        connection.execute(
            update(_jobs).where(_this(lakehouse, name)).values(**values, updated_at=now)
        )
    row = _row(connection, lakehouse, name)
    if row is None:
        raise SystemDatabaseError(f"The job {name} vanished from the system database.")
    return _record(row)


def fence(connection: Connection, lakehouse: str, name: str, fencing: int) -> None:
    """Refuse whoever holds an older lease than the last one that acted on the job.

    Raises:
        LeaseLostError: someone with a later lease has acted on the job.
        SystemDatabaseError: nothing is remembered of the job.
    """
    passed = connection.execute(
        update(_jobs)
        .where(_this(lakehouse, name), _jobs.c.fencing <= fencing)
        .values(fencing=fencing)
    ).rowcount
    if passed:
        return
    row = _row(connection, lakehouse, name)
    if row is None:
        raise SystemDatabaseError(f"The job {name} is not in the system database.")
    raise LeaseLostError(
        f"Someone with a later lease ({row['fencing']}) has acted on the job {name}; ours is "
        f"{fencing}. Nothing was changed.",
        remedy="Look at the present state and start again.",
    )


def move(connection: Connection, lakehouse: str, old: str, new: str, now: datetime) -> None:
    """Make the row of ``new`` like that of ``old``; ``old`` is still there afterwards.

    Fencing numbers belong to a name, because its lease does, so ``new`` keeps its own.
    """
    row = _row(connection, lakehouse, old)
    if row is None:
        raise SystemDatabaseError(f"The job {old} is not in the system database.")
    insert_missing(connection, lakehouse, [new], now)
    own = {"lakehouse", "name", "fencing", "operator_name", "updated_at"}
    values = {column: value for column, value in row.items() if column not in own}
    operator_name = _record(row).effective_operator_name
    change(connection, lakehouse, new, now, {**values, "operator_name": operator_name})


def remove(connection: Connection, lakehouse: str, name: str) -> bool:
    """Delete the job's row; whether there was one."""
    return connection.execute(delete(_jobs).where(_this(lakehouse, name))).rowcount > 0


def leased_fencing(connection: Connection, lakehouse: str, name: str) -> int:
    """The fencing number of the last lease on the job, 0 when there never was one."""
    query = select(_leases.c.fencing).where(_leases.c.key == lease_key(lakehouse, name))
    return connection.execute(query).scalar() or 0


def _this(lakehouse: str, name: str) -> ColumnElement[bool]:
    return and_(_jobs.c.lakehouse == lakehouse, _jobs.c.name == name)


def _row(connection: Connection, lakehouse: str, name: str) -> RowMapping | None:
    query = select(_jobs).where(_this(lakehouse, name))
    return connection.execute(query).mappings().one_or_none()


def _record(row: RowMapping) -> JobRecord:
    return JobRecord(
        name=row["name"],
        desired=DesiredState(row["desired"]),
        fingerprint=row["fingerprint"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
        last_error=row["last_error"],
        updated_at=row["updated_at"],
        operator_name=row["operator_name"],
        alerted_at=row["alerted_at"],
    )

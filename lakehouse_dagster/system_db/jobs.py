"""Streaming jobs and their incarnations, as the system database remembers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, select, update
from sqlalchemy.exc import IntegrityError

from lakehouse_dagster.errors import (
    ConfigurationError,
    IncarnationConflictError,
    LeaseLostError,
    SystemDatabaseError,
)
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database
from lakehouse_dagster.system_db.records import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
    flink_job_id,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "DesiredState",
    "Incarnation",
    "IncarnationChanges",
    "IncarnationState",
    "JobRecord",
    "Jobs",
    "flink_job_id",
]

_jobs = schema.jobs
_incarnations = schema.incarnations
_incarnation_columns = [_incarnations.c[field.name] for field in fields(Incarnation)]


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
    checkpoint_path: str | None
    checkpoint_id: int | None
    checkpoint_at: datetime | None
    restarts: int
    restarts_before_window: int
    restart_window_at: datetime | None
    end_reason: str | None


_CHANGEABLE = frozenset(IncarnationChanges.__annotations__)


class Jobs:
    """The jobs of one lakehouse.

    Args:
        db: the open system database.
        lakehouse: name of the lakehouse; it must not contain ``/``, which separates it from the
            job's name where Flink job ids are made.
        clock: what time it is.
    """

    def __init__(self, db: Database, lakehouse: str, clock: Clock = utc_now) -> None:
        if not lakehouse or "/" in lakehouse:
            raise ConfigurationError(
                f"{lakehouse!r} cannot be the name of a lakehouse.",
                remedy="Choose a name that is not empty and contains no '/'.",
            )
        self._db = db
        self.lakehouse = lakehouse
        self._clock = clock

    def lease_key(self, name: str) -> str:
        """The key of the lease that whoever acts on the job holds.

        Fencing numbers given to :meth:`record` and :meth:`update` must come from leases on it.
        """
        return f"job/{self.lakehouse}/{name}"

    # -- jobs -------------------------------------------------------------------------------------

    def get(self, name: str) -> JobRecord | None:
        """What is remembered of the job; ``None`` when nothing is."""
        with self._db.read() as connection:
            row = self._job_row(connection, name)
        return None if row is None else _job(row)

    def all(self) -> tuple[JobRecord, ...]:
        """All jobs that are remembered, by name."""
        query = select(_jobs).where(_jobs.c.lakehouse == self.lakehouse).order_by(_jobs.c.name)
        with self._db.read() as connection:
            return tuple(_job(row) for row in connection.execute(query).mappings())

    def ensure(self, name: str) -> JobRecord:
        """What is remembered of the job; remembers it as UNMANAGED when nothing was."""
        known = self.get(name)
        if known is not None:
            return known
        return self._change_job(name)

    def set_desired(self, name: str, desired: DesiredState) -> JobRecord:
        """Write down what the user wants of the job."""
        return self._change_job(name, desired=DesiredState(desired).value)

    def count_attempt(self, name: str, next_attempt_at: datetime | None) -> int:
        """Count one more attempt to bring the job to its desired state.

        Args:
            name: the job.
            next_attempt_at: no further attempt before this time.

        Returns:
            How many attempts there were since the last reset, with this one.
        """
        return self._change_job(
            name, attempts=_jobs.c.attempts + 1, next_attempt_at=next_attempt_at
        ).attempts

    def reset_attempts(self, name: str) -> JobRecord:
        """Forget earlier attempts: the job reached its desired state, or a person has looked."""
        return self._change_job(name, attempts=0, next_attempt_at=None)

    def set_error(self, name: str, text: str | None) -> JobRecord:
        """Write down why the last attempt failed (text already redacted), or that none did."""
        return self._change_job(name, last_error=text)

    # -- incarnations -----------------------------------------------------------------------------

    def incarnations(self, name: str) -> tuple[Incarnation, ...]:
        """All lives of the job, newest first."""
        return self._select(_incarnations.c.job_name == name)

    def latest(self, name: str) -> Incarnation | None:
        """The newest life of the job; ``None`` when it never had one."""
        found = self._select(_incarnations.c.job_name == name, limit=1)
        return found[0] if found else None

    def by_flink_job_id(self, job_id: str) -> Incarnation | None:
        """The incarnation that runs, or ran, under this id; ``None`` when it is not one of ours."""
        found = self._select(_incarnations.c.flink_job_id == job_id, limit=1)
        return found[0] if found else None

    def all_latest(self) -> dict[str, Incarnation]:
        """The newest life of every job that had one, by the job's name, in one query."""
        newest = (
            select(_incarnations.c.job_name, func.max(_incarnations.c.number).label("number"))
            .where(_incarnations.c.lakehouse == self.lakehouse)
            .group_by(_incarnations.c.job_name)
            .subquery()
        )
        query = (
            select(*_incarnation_columns)
            .join(
                newest,
                and_(
                    _incarnations.c.job_name == newest.c.job_name,
                    _incarnations.c.number == newest.c.number,
                ),
            )
            .where(_incarnations.c.lakehouse == self.lakehouse)
            .order_by(_incarnations.c.job_name)
        )
        with self._db.read() as connection:
            rows = connection.execute(query).mappings().all()
        return {row["job_name"]: _incarnation(row) for row in rows}

    def record(
        self,
        name: str,
        *,
        number: int,
        flink_job_id: str,
        fingerprint: str,
        restored_from: str | None,
        fencing: int,
        session_handle: str | None,
    ) -> Incarnation:
        """Write down the next life of the job, before it is submitted.

        Earlier lives that are not over become SUPERSEDED, in the same transaction.

        Args:
            name: the job.
            number: of the new incarnation, higher than all that are recorded.
            flink_job_id: the id that it will be submitted with.
            fingerprint: of the script that it will run.
            restored_from: path of the savepoint or checkpoint that it will start from.
            fencing: of the lease that the caller holds on the job.
            session_handle: the gateway session that only this submission uses.

        Raises:
            IncarnationConflictError: this number, or a higher one, is recorded already.
            LeaseLostError: someone with a later lease has acted on the job.
        """
        now = self._clock()
        with self._db.write() as connection:
            self._insert_job_if_missing(connection, name)
            self._fence(connection, name, fencing)
            self._refuse_old_number(connection, name, number)
            self._supersede(connection, name, number)
            try:
                connection.execute(
                    _incarnations.insert().values(
                        lakehouse=self.lakehouse,
                        job_name=name,
                        number=number,
                        flink_job_id=flink_job_id,
                        fingerprint=fingerprint,
                        state=IncarnationState.RECORDED.value,
                        restored_from=restored_from,
                        fencing=fencing,
                        session_handle=session_handle,
                        recorded_at=now,
                        restarts=0,
                        restarts_before_window=0,
                    )
                )
            except IntegrityError as error:
                raise _number_taken(name, number, number) from error
            connection.execute(
                update(_jobs)
                .where(self._this_job(name))
                .values(fingerprint=fingerprint, updated_at=now)
            )
            return self._one(connection, name, number)

    def update(
        self,
        name: str,
        number: int,
        *,
        fencing: int | None = None,
        **changes: Unpack[IncarnationChanges],
    ) -> Incarnation:
        """Write down what became of an incarnation.

        Args:
            name: the job.
            number: of the incarnation.
            fencing: of the lease that the caller holds on the job; without it, the change is a
                mere observation, made whoever acts on the job.
            **changes: new values of fields.

        Raises:
            LeaseLostError: someone with a later lease has acted on the job.
            IncarnationConflictError: a superseded incarnation would come to life again.
            SystemDatabaseError: no such incarnation is recorded.
        """
        unknown = sorted(set(changes) - _CHANGEABLE)
        if unknown:
            raise TypeError(f"These fields of an incarnation cannot be changed: {unknown}")
        values: dict[str, Any] = dict(changes)
        if "state" in changes:
            values["state"] = IncarnationState(changes["state"]).value
        with self._db.write() as connection:
            if fencing is not None:
                self._fence(connection, name, fencing)
            before = self._one(connection, name, number)
            _refuse_revival(before, values.get("state"))
            if values:
                connection.execute(
                    update(_incarnations)
                    .where(
                        _incarnations.c.lakehouse == self.lakehouse,
                        _incarnations.c.job_name == name,
                        _incarnations.c.number == number,
                    )
                    .values(**values)
                )
            return self._one(connection, name, number)

    # -- inside -----------------------------------------------------------------------------------

    def _this_job(self, name: str) -> ColumnElement[bool]:
        return and_(_jobs.c.lakehouse == self.lakehouse, _jobs.c.name == name)

    def _job_row(self, connection: Connection, name: str) -> RowMapping | None:
        return (
            connection.execute(select(_jobs).where(self._this_job(name))).mappings().one_or_none()
        )

    def _insert_job_if_missing(self, connection: Connection, name: str) -> None:
        if self._job_row(connection, name) is not None:
            return
        try:
            with connection.begin_nested():
                connection.execute(
                    _jobs.insert().values(
                        lakehouse=self.lakehouse,
                        name=name,
                        desired=DesiredState.UNMANAGED.value,
                        attempts=0,
                        fencing=0,
                        updated_at=self._clock(),
                    )
                )
        except IntegrityError:
            # Another process was faster (not on SQLite, where we hold the write lock).
            return

    def _change_job(self, name: str, **values: Any) -> JobRecord:
        with self._db.write() as connection:
            self._insert_job_if_missing(connection, name)
            if values:
                connection.execute(
                    update(_jobs)
                    .where(self._this_job(name))
                    .values(**values, updated_at=self._clock())
                )
            row = self._job_row(connection, name)
        if row is None:
            raise SystemDatabaseError(f"The job {name} vanished from the system database.")
        return _job(row)

    def _select(
        self, condition: ColumnElement[bool], limit: int | None = None
    ) -> tuple[Incarnation, ...]:
        query = (
            select(*_incarnation_columns)
            .where(_incarnations.c.lakehouse == self.lakehouse, condition)
            .order_by(_incarnations.c.number.desc())
            .limit(limit)
        )
        with self._db.read() as connection:
            return tuple(_incarnation(row) for row in connection.execute(query).mappings())

    def _one(self, connection: Connection, name: str, number: int) -> Incarnation:
        query = select(*_incarnation_columns).where(
            _incarnations.c.lakehouse == self.lakehouse,
            _incarnations.c.job_name == name,
            _incarnations.c.number == number,
        )
        row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise SystemDatabaseError(f"No incarnation {number} of the job {name} is recorded.")
        return _incarnation(row)

    def _fence(self, connection: Connection, name: str, fencing: int) -> None:
        """Refuse whoever holds an older lease than the last one that acted on the job."""
        passed = connection.execute(
            update(_jobs)
            .where(self._this_job(name), _jobs.c.fencing <= fencing)
            .values(fencing=fencing)
        ).rowcount
        if passed:
            return
        row = self._job_row(connection, name)
        if row is None:
            raise SystemDatabaseError(f"The job {name} is not in the system database.")
        raise LeaseLostError(
            f"Someone with a later lease ({row['fencing']}) has acted on the job {name}; ours is "
            f"{fencing}. Nothing was changed.",
            remedy="Look at the present state and start again.",
        )

    def _refuse_old_number(self, connection: Connection, name: str, number: int) -> None:
        highest = connection.execute(
            select(func.max(_incarnations.c.number)).where(
                _incarnations.c.lakehouse == self.lakehouse, _incarnations.c.job_name == name
            )
        ).scalar()
        if highest is not None and highest >= number:
            raise _number_taken(name, number, highest)

    def _supersede(self, connection: Connection, name: str, number: int) -> None:
        # Not `ended_at`: whether it has ended is not known, only that it should have.
        connection.execute(
            update(_incarnations)
            .where(
                _incarnations.c.lakehouse == self.lakehouse,
                _incarnations.c.job_name == name,
                _incarnations.c.state.not_in(
                    [state.value for state in IncarnationState if state.is_over]
                ),
            )
            .values(
                state=IncarnationState.SUPERSEDED.value,
                end_reason=func.coalesce(
                    _incarnations.c.end_reason, f"superseded by incarnation {number}"
                ),
            )
        )


def _number_taken(name: str, number: int, highest: int) -> IncarnationConflictError:
    return IncarnationConflictError(
        f"Incarnation {number} of the job {name} cannot be recorded: incarnation {highest} is "
        "recorded already.",
        remedy="Another run started the job; look at its state before starting it again.",
    )


def _refuse_revival(before: Incarnation, state: str | None) -> None:
    stays = (None, IncarnationState.SUPERSEDED.value, IncarnationState.ENDED.value)
    if before.state is IncarnationState.SUPERSEDED and state not in stays:
        raise IncarnationConflictError(
            f"Incarnation {before.number} of the job {before.job_name} was superseded and cannot "
            f"become {state} again.",
            remedy="Look at the job's latest incarnation.",
        )


def _job(row: RowMapping) -> JobRecord:
    return JobRecord(
        name=row["name"],
        desired=DesiredState(row["desired"]),
        fingerprint=row["fingerprint"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
        last_error=row["last_error"],
        updated_at=row["updated_at"],
    )


def _incarnation(row: Mapping[Any, Any]) -> Incarnation:
    values = {field.name: row[field.name] for field in fields(Incarnation)}
    return Incarnation(**{**values, "state": IncarnationState(values["state"])})

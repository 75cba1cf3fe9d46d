"""Streaming jobs, their incarnations and scripts, as the system database remembers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from lakehouse_dagster.errors import ConfigurationError, IncarnationConflictError
from lakehouse_dagster.system_db import incarnations, job_rows, script_versions
from lakehouse_dagster.system_db.changes import take_turn, token
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database
from lakehouse_dagster.system_db.incarnations import IncarnationChanges
from lakehouse_dagster.system_db.records import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
    JobsState,
    Origin,
    ScriptVersion,
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
    "JobsState",
    "Origin",
    "ScriptVersion",
    "flink_job_id",
]


class Jobs:
    """The jobs of one lakehouse: the one door to what is remembered of them.

    Every method is one transaction.

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
        return job_rows.lease_key(self.lakehouse, name)

    # -- all jobs ---------------------------------------------------------------------------------

    def state(self) -> JobsState:
        """All jobs and their newest lives, as they are in the database now.

        Cheap when nothing has changed since it was last called on this open database.
        """
        with self._db.read() as connection:
            return self._db.state_cache(self.lakehouse).read(connection)

    def all(self) -> tuple[JobRecord, ...]:
        """All jobs that are remembered, by name."""
        with self._db.read() as connection:
            return job_rows.of_lakehouse(connection, self.lakehouse)

    def ensure_all(self, names: Iterable[str]) -> JobsState:
        """Remember those jobs as UNMANAGED of which nothing is remembered yet; the state then."""
        wanted = list(names)
        state = self.state()
        if all(name in state.records for name in wanted):
            return state
        with self._write() as connection:
            job_rows.insert_missing(connection, self.lakehouse, wanted, self._clock())
        return self.state()

    # -- one job ----------------------------------------------------------------------------------

    def get(self, name: str) -> JobRecord | None:
        """What is remembered of the job; ``None`` when nothing is."""
        with self._db.read() as connection:
            return job_rows.find(connection, self.lakehouse, name)

    def ensure(self, name: str) -> JobRecord:
        """What is remembered of the job; remembers it as UNMANAGED when nothing was."""
        known = self.get(name)
        return self._change_job(name) if known is None else known

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
        with self._write() as connection:
            now = self._clock()
            before = job_rows.change(connection, self.lakehouse, name, now, {})
            values = {"attempts": before.attempts + 1, "next_attempt_at": next_attempt_at}
            return job_rows.change(connection, self.lakehouse, name, now, values).attempts

    def limit_attempts(self, name: str, most: int) -> JobRecord:
        """Count no more than so many attempts: the last one failed for a reason that will pass."""
        with self._write() as connection:
            now = self._clock()
            before = job_rows.change(connection, self.lakehouse, name, now, {})
            values = {"attempts": min(before.attempts, most)}
            return job_rows.change(connection, self.lakehouse, name, now, values)

    def reset_attempts(self, name: str) -> JobRecord:
        """Forget earlier attempts: the job reached its desired state, or a person has looked."""
        return self._change_job(name, attempts=0, next_attempt_at=None, alerted_at=None)

    def set_error(self, name: str, text: str | None) -> JobRecord:
        """Write down why the last attempt failed (text already redacted), or that none did."""
        return self._change_job(name, last_error=text)

    def set_operator_name(self, name: str, text: str | None) -> JobRecord:
        """Write down the name that the job's operator ids are made from.

        Args:
            name: the job.
            text: ``None`` for the job's own name, empty when the ids are not ours.
        """
        return self._change_job(name, operator_name=text)

    def set_alerted(self, name: str, at: datetime | None) -> JobRecord:
        """Write down when a person was asked to look at the job; ``None``: nobody needs to."""
        return self._change_job(name, alerted_at=at)

    def rename(self, old: str, new: str) -> JobRecord:
        """Give all that is remembered of ``old`` to ``new``.

        The operator ids stay as they were, so that the job's state fits. The caller holds the
        leases on both.

        Raises:
            IncarnationConflictError: ``new`` has had lives of its own.
            SystemDatabaseError: nothing is remembered of ``old``.
        """
        with self._write() as connection:
            now = self._clock()
            if old == new:
                return job_rows.change(connection, self.lakehouse, new, now, {})
            if incarnations.of_job(connection, self.lakehouse, new, limit=1):
                raise IncarnationConflictError(
                    f"The job {old} cannot be renamed to {new}: a job of that name has run.",
                    remedy=f"Choose another name, or forget the job {new} first.",
                )
            job_rows.move(connection, self.lakehouse, old, new, now)
            incarnations.move(connection, self.lakehouse, old, new)
            script_versions.move(connection, self.lakehouse, old, new)
            job_rows.remove(connection, self.lakehouse, old)
            return job_rows.change(connection, self.lakehouse, new, now, {})

    def forget(self, name: str) -> bool:
        """Delete all that is remembered of the job, and say whether there was anything.

        Its lease stays, so that a run of before is still fenced off.
        """
        with self._write() as connection:
            script_versions.remove(connection, self.lakehouse, name)
            incarnations.remove(connection, self.lakehouse, name)
            return job_rows.remove(connection, self.lakehouse, name)

    # -- incarnations -----------------------------------------------------------------------------

    def incarnations(self, name: str) -> tuple[Incarnation, ...]:
        """All lives of the job, newest first."""
        with self._db.read() as connection:
            return incarnations.of_job(connection, self.lakehouse, name)

    def latest(self, name: str) -> Incarnation | None:
        """The newest life of the job; ``None`` when it never had one."""
        with self._db.read() as connection:
            found = incarnations.of_job(connection, self.lakehouse, name, limit=1)
        return found[0] if found else None

    def by_flink_job_id(self, job_id: str) -> Incarnation | None:
        """The incarnation that runs, or ran, under this id; ``None`` when it is not one of ours."""
        with self._db.read() as connection:
            return incarnations.by_flink_job_id(connection, self.lakehouse, job_id)

    def all_latest(self) -> dict[str, Incarnation]:
        """The newest life of every job that had one, by the job's name, in one query."""
        with self._db.read() as connection:
            return incarnations.newest(connection, self.lakehouse)

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
        origin: Origin = Origin.SUBMITTED,
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
            origin: how it came to be.

        Raises:
            IncarnationConflictError: this number, or a higher one, is recorded already.
            LeaseLostError: someone with a later lease has acted on the job.
        """
        with self._write() as connection:
            now = self._clock()
            job_rows.insert_missing(connection, self.lakehouse, [name], now)
            job_rows.fence(connection, self.lakehouse, name, fencing)
            life = incarnations.insert(
                connection,
                self.lakehouse,
                {
                    "job_name": name,
                    "number": number,
                    "flink_job_id": flink_job_id,
                    "fingerprint": fingerprint,
                    "restored_from": restored_from,
                    "fencing": fencing,
                    "session_handle": session_handle,
                    "origin": Origin(origin).value,
                    "recorded_at": now,
                },
            )
            job_rows.change(connection, self.lakehouse, name, now, {"fingerprint": fingerprint})
            return life

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
        with self._write() as connection:
            if fencing is not None:
                job_rows.fence(connection, self.lakehouse, name, fencing)
            before = incarnations.one(connection, self.lakehouse, name, number)
            incarnations.change(connection, self.lakehouse, before, changes)
            return incarnations.one(connection, self.lakehouse, name, number)

    def update_many(
        self, changes: Sequence[tuple[str, int, IncarnationChanges]]
    ) -> tuple[Incarnation, ...]:
        """Write down what was observed of many incarnations, in one transaction.

        An observation that has been overtaken (the incarnation was superseded, or its job renamed
        or forgotten meanwhile) is dropped without keeping the others from being written.

        Args:
            changes: of each incarnation the job's name, the number, and new values of fields.

        Returns:
            The incarnations that were written, as they are now.
        """
        if not changes:
            return ()
        cache = self._db.state_cache(self.lakehouse)
        with self._write() as connection:
            before = token(connection, self.lakehouse)
            known = cache.known(before, ((name, number) for name, number, _ in changes))
            written = incarnations.change_many(connection, self.lakehouse, changes, known)
            after = token(connection, self.lakehouse)
        cache.advance(before, after, written)
        return written

    # -- scripts and history ----------------------------------------------------------------------

    def save_version(
        self, name: str, fingerprint: str, definition: str | None, plan: str | None
    ) -> ScriptVersion:
        """Remember a version of the job's script; what was known of it before is not erased.

        Args:
            name: the job.
            fingerprint: of the script.
            definition: the streaming job as JSON; ``None`` when it would show a secret.
            plan: Flink's execution plan as JSON; ``None`` when it is not known.
        """
        with self._write() as connection:
            version = ScriptVersion(name, fingerprint, definition, plan, self._clock())
            return script_versions.save(connection, self.lakehouse, version)

    def version(self, name: str, fingerprint: str) -> ScriptVersion | None:
        """The version of the job's script with this fingerprint; ``None`` when not remembered."""
        with self._db.read() as connection:
            return script_versions.find(connection, self.lakehouse, name, fingerprint)

    def prune(self, keep_incarnations: int, older_than: datetime) -> int:
        """Delete old lives that nothing depends on, and versions of scripts that none ran.

        Never deleted: the newest life with state, lives that are not over, and lives whose restore
        points were not deleted. :class:`HistoryPolicy` has sensible bounds.

        Args:
            keep_incarnations: how many of each job's newest lives stay, at least 1.
            older_than: lives that ended at or after this time stay.

        Returns:
            How many lives were deleted.
        """
        with self._write() as connection:
            pruned = incarnations.prune(connection, self.lakehouse, keep_incarnations, older_than)
            script_versions.remove_unused(connection, self.lakehouse, older_than)
            return pruned

    # -- inside -----------------------------------------------------------------------------------

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._db.write() as connection:
            take_turn(connection, self.lakehouse)
            yield connection

    def _change_job(self, name: str, **values: Any) -> JobRecord:
        with self._write() as connection:
            return job_rows.change(connection, self.lakehouse, name, self._clock(), values)

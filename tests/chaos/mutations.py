"""The product broken on purpose, to see that the laboratory notices (``--mutation``).

Each takes away one of the things that make "exactly one" so, in every process of a fault. The
scenarios named with it are those that should fail then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse_dagster.errors import ClusterUnreachableError, FlinkError
from lakehouse_dagster.flink import JobManager, Session
from lakehouse_dagster.streaming import previous, restore, start
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.streaming.settings import JOB_ID
from lakehouse_dagster.system_db import Jobs, Leases
from tests.chaos.plan import Row


@dataclass(frozen=True)
class Mutation:
    """``apply`` breaks the product in this process; ``noticed_by`` are (row, variant)."""

    apply: Callable[[], None]
    noticed_by: tuple[tuple[Row, str], ...]


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def _lease_unchecked() -> None:
    """Nobody asks whether the lease is still theirs, nor is a record fenced."""
    _wrap(HeldJob, "still_ours", lambda _: lambda self: None)
    _wrap(Leases, "check", lambda _: lambda self, lease: None)


def _sent_again() -> None:
    """The INSERT is posted once more when its answer is lost."""

    def make(submit: Any) -> Any:
        def again(self: Session, statement: str, **values: Any) -> Any:
            config = values.get("config") or {}
            try:
                return submit(self, statement, **values)
            except FlinkError:
                if JOB_ID not in config:
                    raise
                return submit(self, statement, config=config)

        return again

    _wrap(Session, "submit", make)


def _id_left_to_flink() -> None:
    """Jobs get ids of Flink's own, so that none is found by the one on record."""

    def make(submit: Any) -> Any:
        def without(self: Session, statement: str, **values: Any) -> Any:
            config = {k: v for k, v in (values.get("config") or {}).items() if k != JOB_ID}
            return submit(self, statement, config=config)

        return without

    _wrap(Session, "submit", make)


def _unreachable_is_empty() -> None:
    """No answer is taken for a cluster without jobs."""

    def make(jobs: Any) -> Any:
        def none_then(self: JobManager) -> Any:
            try:
                return jobs(self)
            except ClusterUnreachableError:
                return ()

        return none_then

    _wrap(JobManager, "jobs", make)


def _absent_at_once() -> None:
    """What the overview does not show is over: no session deleted, no grace, no second question."""

    def confirm(held: Any, latest: Any, *_: Any, **__: Any) -> Any:
        gone = held.over(latest, "lost by the cluster")
        return previous.Settled(gone, None, latest.number)

    _wrap(previous, "_confirm_absent", lambda _: confirm)


def _sessions_stay() -> None:
    """The session of a submission that got no answer is not deleted before the next."""
    _wrap(Session, "delete", lambda _: lambda self: True)


def _started_from_nothing() -> None:
    """Without a restore point it starts from nothing, unasked."""

    def make(choose: Any) -> Any:
        def willing(*arguments: Any, **values: Any) -> Any:
            return choose(*arguments, **{**values, "allow_empty_start": True})

        return willing

    _wrap(start, "choose_restore_point", make)


def _one_checkpoint_back() -> None:
    """The restore point is the one before the newest."""

    def make(find: Any) -> Any:
        def older(*arguments: Any) -> Any:
            points = find(*arguments)
            return points[1:] or points

        return older

    _wrap(restore, "complete_checkpoints", make)


def _no_looking_ahead() -> None:
    """Only incarnations on record are looked for: an older database is believed."""

    def known(_identity: str, _job: str, recorded: Any) -> dict[str, int]:
        return {i.flink_job_id: i.number for i in recorded}

    _wrap(previous, "known_numbers", lambda _: known)
    _wrap(previous, "strangers", lambda _: lambda *__: _no_strangers())


def _no_strangers() -> Any:
    from lakehouse_dagster.streaming.foreign import Strangers

    return Strangers()


def _no_fences() -> None:
    """Neither leases nor sessions stop whoever was overtaken (each alone is enough to)."""

    def make(record: Any) -> Any:
        def unfenced(self: Jobs, name: str, **values: Any) -> Any:
            current = Leases(self._db).current(self.lease_key(name))
            fencing = current.fencing if current else values["fencing"]
            return record(self, name, **{**values, "fencing": fencing})

        return unfenced

    _wrap(Jobs, "record", make)
    _lease_unchecked()
    _sessions_stay()


MUTATIONS: dict[str, Mutation] = {
    "neither leases nor sessions fence": Mutation(
        _no_fences,
        (
            (Row.ANSWERS, "halted between the check and the POST until the next has started"),
            (Row.RIVALS, "a cancelled run goes on after another began"),
        ),
    ),
    "the INSERT is sent again": Mutation(
        _sent_again,
        (
            (Row.ANSWERS, "the answer to the INSERT is lost"),
            (Row.ANSWERS, "the answer to the INSERT comes too late"),
        ),
    ),
    "job ids are left to Flink": Mutation(
        _id_left_to_flink, ((Row.ANSWERS, "the answer to the INSERT is lost"),)
    ),
    "unreachable is taken for empty": Mutation(
        _unreachable_is_empty,
        (
            (Row.UNREACHABLE, "the JobManager answers 503"),
            (Row.UNREACHABLE, "the way is broken every few requests"),
        ),
    ),
    "absent is over at once": Mutation(
        _absent_at_once,
        (
            (Row.UNREACHABLE, "the overview is empty although the job runs"),
            (Row.ANSWERS, "halted while its INSERT is on its way"),
        ),
    ),
    "sessions are not deleted": Mutation(
        _sessions_stay,
        (
            (Row.ANSWERS, "the INSERT arrives too late"),
            (Row.ANSWERS, "halted while its INSERT is on its way"),
            (Row.ANSWERS, "halted between the check and the POST until the next has started"),
        ),
    ),
    "started from nothing unasked": Mutation(
        _started_from_nothing, ((Row.RESTORE_POINT, "all checkpoints are gone for a while"),)
    ),
    "one checkpoint back": Mutation(
        _one_checkpoint_back,
        ((Row.RESTORE_POINT, "the newest checkpoint was begun and never completed"),),
    ),
    "no looking ahead": Mutation(
        _no_looking_ahead,
        (
            (Row.DATABASE, "an older copy while the job runs"),
            (Row.DATABASE, "an older copy while an INSERT is on its way"),
        ),
    ),
}

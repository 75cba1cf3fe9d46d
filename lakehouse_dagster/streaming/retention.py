"""Which savepoints and checkpoints nobody needs any more, and deleting those.

A restore point goes only when a newer one of the same job, sound and complete at this moment, has
stood for longer than a grace. What the job would start from next therefore never goes, and while
a job runs that has no checkpoint of its own yet, nothing goes at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from lakehouse_dagster.errors import ConfigurationError, FlinkError, LeaseHeldError, LeaseLostError
from lakehouse_dagster.flink import (
    JobManager,
    RestorePointKind,
    delete_checkpoints,
    delete_restore_point,
)
from lakehouse_dagster.flink.file_access import same_place
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming.kept_points import (
    KeptPoint,
    RestorePointFacts,
    in_order,
    look,
)
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob, Runtime, this_process
from lakehouse_dagster.system_db import Incarnation, Origin


@dataclass(frozen=True)
class RestorePointToDelete:
    """One savepoint, or the whole folder of an ended incarnation's checkpoints; and why."""

    path: str
    reason: str
    number: int
    kind: RestorePointKind


@dataclass(frozen=True)
class Tidied:
    """What was deleted of a job, or would have been; ``skipped`` says why nothing could be."""

    job: str
    deleted: tuple[RestorePointToDelete, ...] = ()
    skipped: str | None = None


# -- the decision -------------------------------------------------------------------------------


def superseded(
    incarnations: Sequence[Incarnation],
    facts: RestorePointFacts,
    now: datetime,
    grace: timedelta,
) -> tuple[RestorePointToDelete, ...]:
    """The restore points of a job that may go, oldest first.

    Args:
        incarnations: all lives of the job, in any order.
        facts: what is on disk and on the cluster now.
        now: the present.
        grace: how long a newer restore point must have stood.
    """
    lives = {incarnation.number: incarnation for incarnation in incarnations}
    newest = _newest_that_stood(facts, lives, now, grace)
    if newest is None:
        return ()
    by = f"superseded by {newest.path} of {newest.completed_at:%Y-%m-%d %H:%M:%S} UTC"
    found = []
    for number in sorted(lives):
        if not _may_go(lives[number], newest, facts):
            continue
        if number in facts.folders and lives[number].origin is Origin.SUBMITTED:
            folder = f"{facts.folders[number].rstrip('/')}/{lives[number].flink_job_id}"
            found.append(
                RestorePointToDelete(
                    folder, f"checkpoints {by}", number, RestorePointKind.CHECKPOINT
                )
            )
        savepoint = _savepoint_of_ours(lives[number], facts)
        if savepoint is not None and number < newest.number:
            found.append(
                RestorePointToDelete(
                    savepoint, f"savepoint {by}", number, RestorePointKind.SAVEPOINT
                )
            )
    return tuple(found)


def nothing_left(
    incarnations: Iterable[Incarnation],
    facts: RestorePointFacts,
    deleted: Iterable[RestorePointToDelete],
    now: datetime,
    grace: timedelta,
) -> tuple[int, ...]:
    """The numbers of ended incarnations of which nothing that may be deleted is left."""
    lives = {incarnation.number: incarnation for incarnation in incarnations}
    newest = _newest_that_stood(facts, lives, now, grace)
    if newest is None:
        return ()
    gone = {(point.number, point.kind) for point in deleted}
    return tuple(
        number
        for number, life in sorted(lives.items())
        if life.restore_points_deleted_at is None
        and number < newest.number
        and _may_go(life, newest, facts)
        and not _is_left(life, facts, gone)
    )


def _newest_that_stood(
    facts: RestorePointFacts, lives: Mapping[int, Incarnation], now: datetime, grace: timedelta
) -> KeptPoint | None:
    """The best sound restore point that has stood for the grace; None: nothing may go."""
    usable = [point for point in in_order(facts.points) if point.sound]
    living = [n for n, life in lives.items() if n in facts.alive or not life.state.is_over]
    if living and (not usable or usable[0].number < max(living)):
        return None  # it still depends on what it was restored from
    return next((p for p in usable if _stood_since(p, lives, living) + grace <= now), None)


def _stood_since(
    point: KeptPoint, lives: Mapping[int, Incarnation], living: Sequence[int]
) -> datetime:
    """Since when its incarnation has had a restore point.

    Flink replaces the checkpoints of a running job every few seconds: what counts is how long
    the job has been running, as long as it has a checkpoint now.
    """
    running_at = lives[point.number].running_at if point.number in lives else None
    if point.number in living and running_at is not None:
        return min(running_at, point.completed_at)
    return point.completed_at


def _may_go(life: Incarnation, newest: KeptPoint, facts: RestorePointFacts) -> bool:
    """Whether what an incarnation left comes before ``newest``."""
    if life.number in facts.alive or not life.state.is_over:
        return False
    if life.number < newest.number:
        return True
    # A savepoint makes the checkpoints of its own incarnation superfluous, when it is the best
    # that there is of it.
    best = next((p for p in in_order(facts.points) if p.sound and p.number == life.number), None)
    return best == newest and newest.kind is RestorePointKind.SAVEPOINT


def _savepoint_of_ours(life: Incarnation, facts: RestorePointFacts) -> str | None:
    """Its savepoint, if we triggered it, it is there, and it lies where ours go."""
    path = life.savepoint_path
    if path is None or life.stop_trigger_id is None:
        return None
    there = any(
        p.number == life.number and p.kind is RestorePointKind.SAVEPOINT for p in facts.points
    )
    return path if there and _lies_in(path, facts.savepoint_directories) else None


def _lies_in(path: str, directories: Iterable[str]) -> bool:
    place = same_place(path)
    if ".." in place.split("/"):
        return False
    return any(place.startswith(f"{same_place(directory)}/") for directory in directories)


def _is_left(
    life: Incarnation, facts: RestorePointFacts, gone: set[tuple[int, RestorePointKind]]
) -> bool:
    folder_left = (
        life.number in facts.folders
        and life.origin is Origin.SUBMITTED
        and (life.number, RestorePointKind.CHECKPOINT) not in gone
    )
    savepoint_left = (
        _savepoint_of_ours(life, facts) is not None
        and (life.number, RestorePointKind.SAVEPOINT) not in gone
    )
    return folder_left or savepoint_left


# -- the verb -----------------------------------------------------------------------------------


def tidy(
    runtime: Runtime,
    names: Sequence[str],
    *,
    dry_run: bool = False,
    grace: timedelta | None = None,
    log: logging.Logger = LOGGER,
) -> tuple[Tidied, ...]:
    """Delete the superseded restore points of these jobs, each under its own lease.

    A job that somebody else acts on, or whose files cannot be looked at, is skipped and said so.

    Args:
        runtime: the lakehouse.
        names: of declared jobs.
        dry_run: only say what would be deleted.
        grace: how long a newer restore point must have stood; by default the supervision policy's
            ``restore_point_grace``.

    Raises:
        ClusterUnreachableError: it is not known which jobs run, so nothing was deleted.
        JobNotFoundError: no job of that name is declared.
    """
    kept_for = (
        timedelta(seconds=runtime.policy.seconds("restore_point_grace")) if grace is None else grace
    )
    with runtime.cluster.job_manager() as job_manager:
        configuration = job_manager.configuration()
        return tuple(
            _tidy_one(runtime, name, configuration, job_manager, dry_run, kept_for, log)
            for name in names
        )


def _tidy_one(
    runtime: Runtime,
    name: str,
    configuration: Mapping[str, str],
    job_manager: JobManager,
    dry_run: bool,
    grace: timedelta,
    log: logging.Logger,
) -> Tidied:
    try:
        with runtime.hold(name, this_process("tidy")) as held:
            return _tidied(held, configuration, job_manager, dry_run, grace, log)
    except (LeaseHeldError, LeaseLostError) as error:
        return Tidied(name, skipped=error.message)


def _tidied(
    held: HeldJob,
    configuration: Mapping[str, str],
    job_manager: JobManager,
    dry_run: bool,
    grace: timedelta,
    log: logging.Logger,
) -> Tidied:
    incarnations = held.runtime.memory.incarnations(held.name)
    # Asked under the lease: nothing of this job starts between the answer and the deletions.
    alive = frozenset(job.job_id for job in job_manager.jobs() if not job.status.is_terminal)
    try:
        facts = look(incarnations, alive, **_directories(held, configuration))
    except (FlinkError, ConfigurationError) as error:
        return Tidied(held.name, skipped=str(error))
    now = held.runtime.clock.now()
    due = superseded(incarnations, facts, now, grace)
    if dry_run:
        return Tidied(held.name, due)
    deleted: list[RestorePointToDelete] = []
    skipped: str | None = None
    lives = {incarnation.number: incarnation for incarnation in incarnations}
    for point in due:
        held.still_ours()
        try:
            _delete(point, lives[point.number], facts)
        except (FlinkError, ConfigurationError) as error:
            skipped = str(error)
            log.warning("%s: %s", held.name, error)
            continue
        log.info("Deleted %s of %s: %s.", point.path, held.name, point.reason)
        deleted.append(point)
    for number in nothing_left(incarnations, facts, deleted, now, grace):
        held.runtime.memory.update(held.name, number, restore_points_deleted_at=now)
    return Tidied(held.name, tuple(deleted), skipped)


def _delete(point: RestorePointToDelete, life: Incarnation, facts: RestorePointFacts) -> None:
    if point.kind is RestorePointKind.SAVEPOINT:
        delete_restore_point(point.path)
    else:
        delete_checkpoints(facts.folders[point.number], life.flink_job_id)


class _Directories(TypedDict):
    checkpoint_directory: str | None
    savepoint_directories: tuple[str, ...]


def _directories(held: HeldJob, cluster_configuration: Mapping[str, str]) -> _Directories:
    definition, environ = held.job.definition, held.runtime.environ
    savepoints = {
        job_settings.savepoint_directory(definition, environ),
        *(cluster_configuration.get(o) for o in job_settings.SAVEPOINT_DIRECTORIES),
    }
    return {
        "checkpoint_directory": job_settings.checkpoint_directory(
            cluster_configuration, definition, environ
        ),
        "savepoint_directories": tuple(sorted(path for path in savepoints if path)),
    }

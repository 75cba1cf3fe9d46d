"""Whether a restore point is older than what the job has committed to its tables.

From such a one the rows of the later commits would be read and written again, and rows after them
would be lost: Paimon leaves out commits whose number its commit user has committed already. (That
number is the Flink checkpoint that made the commit: ``commitIdentifier`` in a snapshot.)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lakehouse_dagster.errors import CatalogError, CatalogUnreachableError, NoRestorePointError
from lakehouse_dagster.flink.restore_points import completed_at
from lakehouse_dagster.paimon import CatalogReader, Snapshot
from lakehouse_dagster.streaming.foreign_commits import marks_of_ours
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.streaming.settings import commit_user_start

SNAPSHOTS_LOOKED_AT = 100
"""A job's newest commit is looked for among so many of a table's newest snapshots."""


def not_older_than_its_commits(
    held: HeldJob, choice: RestoreChoice, *, allow_empty_start: bool = False
) -> RestoreChoice:
    """The same choice, if nothing was committed after it; or a start from nothing, if allowed.

    Raises ``NoRestorePointError`` otherwise.
    """
    beyond = _committed_beyond(held, choice)
    if beyond is None:
        return choice
    table, snapshot = beyond
    if allow_empty_start:
        return RestoreChoice(None, "asked to start from nothing")
    raise NoRestorePointError(
        f"The newest usable restore point of {held.name} is the {choice.reason}, but snapshot "
        f"{snapshot.id} of {table} was committed by its checkpoint {snapshot.commit_identifier}: "
        "started from there, it would write rows twice and lose others.",
        remedy=(
            f"Bring back what is missing of checkpoint {snapshot.commit_identifier}, or start "
            f"from nothing with `lakehouse jobs start {held.name} --allow-empty-start`: its "
            "sources are then read as if for the first time."
        ),
    )


def _committed_beyond(held: HeldJob, choice: RestoreChoice) -> tuple[str, Snapshot] | None:
    # Of a version that is not known here: left for Flink to judge.
    if choice.path is None or choice.metadata is None:
        return None
    at = completed_at(choice.path)
    if at is None:
        return None
    may_be_its = _may_be_its(held)
    catalog = held.runtime.catalog.open()
    for table in held.job.sink_keys:
        snapshot = _first_beyond(catalog, table, may_be_its, choice.metadata.checkpoint_id, at)
        if snapshot is not None:
            return table, snapshot
    return None


def _may_be_its(held: HeldJob) -> Callable[[Snapshot], bool]:
    """Whether a commit is the job's; of an adopted one, whether it may be, as it bears no mark."""
    record = held.runtime.memory.ensure(held.name)
    mark = commit_user_start(record.effective_operator_name)
    if mark:
        return lambda snapshot: snapshot.commit_user.startswith(mark)
    others = marks_of_ours(held.runtime)
    return lambda s: s.is_of_a_checkpoint and not s.commit_user.startswith(others)


def _first_beyond(
    catalog: CatalogReader,
    table: str,
    may_be_its: Callable[[Snapshot], bool],
    checkpoint_id: int,
    at: datetime,
) -> Snapshot | None:
    """The job's newest commit, if it came after the restore point and bears a higher number.

    Both, since an earlier life that was started from nothing counted its checkpoints anew.
    """
    try:
        newest = catalog.table(table).newest_first(SNAPSHOTS_LOOKED_AT)
        last = next(filter(may_be_its, newest), None)
    except CatalogUnreachableError:
        raise  # nothing is known: the job is not started on a guess
    except CatalogError:
        return None  # the table is gone, or never to be read from here: left for Flink to judge
    if last is None or not last.is_of_a_checkpoint:
        return None
    is_beyond = checkpoint_id < last.commit_identifier and last.committed_at > at
    return last if is_beyond else None

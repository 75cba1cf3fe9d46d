"""Whether a restore point is older than what the job has committed to its tables.

From such a one the rows of the later commits would be read and written again, and rows after them
would be lost: Paimon leaves out commits whose number its commit user has committed already. (That
number is the Flink checkpoint that made the commit: ``commitIdentifier`` in a snapshot.)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lakehouse_dagster.errors import CatalogError, CatalogUnreachableError, NoRestorePointError
from lakehouse_dagster.flink.restore_points import completed_at
from lakehouse_dagster.paimon import CatalogReader, Snapshot, TableReader
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.runtime import HeldJob
from lakehouse_dagster.streaming.settings import commit_user_start

SNAPSHOTS_LOOKED_AT = 100
"""A job's newest commit is looked for among so many of a table's newest snapshots."""
END_OF_INPUT = 2**62
"""Commits of batch jobs, and at the end of a bounded source, bear no checkpoint's number but the
greatest there is."""


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
    record = held.runtime.memory.ensure(held.name)
    prefix = commit_user_start(record.effective_operator_name)
    catalog = held.runtime.catalog.open()
    for table in held.job.sink_keys:
        snapshot = _first_beyond(catalog, table, prefix, choice.metadata.checkpoint_id, at)
        if snapshot is not None:
            return table, snapshot
    return None


def _first_beyond(
    catalog: CatalogReader, table: str, prefix: str, checkpoint_id: int, at: datetime
) -> Snapshot | None:
    """The job's newest commit, if it came after the restore point and bears a higher number.

    Both, since an earlier life that was started from nothing counted its checkpoints anew.
    """
    try:
        last = newest_commit(catalog.table(table), prefix, most=SNAPSHOTS_LOOKED_AT)
    except CatalogUnreachableError:
        raise  # nothing is known: the job is not started on a guess
    except CatalogError:
        return None  # the table is gone, or never to be read from here: left for Flink to judge
    if last is None:
        return None
    is_beyond = checkpoint_id < last.commit_identifier < END_OF_INPUT and last.committed_at > at
    return last if is_beyond else None


def newest_commit(
    table: TableReader,
    commit_user: str,
    *,
    most: int,
    oldest: int = 1,
    since: datetime | None = None,
) -> Snapshot | None:
    """The newest commit of a job that is still there; ``most`` and so on as in ``newest_first``.

    Args:
        table: one that the job writes.
        commit_user: what the users of the job's commits begin with.
    """
    newest = newest_first(table, most=most, oldest=oldest, since=since)
    return next((s for s in newest if s.commit_user.startswith(commit_user)), None)


def newest_first(
    table: TableReader, *, most: int, oldest: int = 1, since: datetime | None = None
) -> Iterator[Snapshot]:
    """The snapshots of a table that are still there, read one by one from the newest back.

    Args:
        table: of the catalog.
        most: at most so many are looked at.
        oldest: the number of the first that is looked for.
        since: older ones are not looked at.
    """
    latest = table.latest_snapshot_id() or 0
    for number in range(latest, max(oldest - 1, latest - most), -1):
        snapshot = table.snapshot(number)
        if snapshot is None:
            continue  # it has expired meanwhile
        if since is not None and snapshot.committed_at < since:
            return
        yield snapshot

"""Who besides our jobs writes a table: what cannot be stopped by us must not be met by a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from lakehouse_dagster.errors import MaintenanceRefusedError
from lakehouse_dagster.flink import JobManager
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.foreign import refuse_beside, strangers
from lakehouse_dagster.streaming.foreign_commits import (
    SNAPSHOTS_LOOKED_AT,
    ForeignWriter,
    foreign_writers,
    marks_of_ours,
)
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.settings import commit_user_start

FOREIGN_WRITERS_COUNT_FOR = timedelta(days=1)
"""After its newest commit. One that gets no rows commits nothing and may be at work all the same:
a day covers what comes at one time of the day only."""
_AT_LEAST = timedelta(minutes=1)
_GAPS = 3


def refuse_beside_strangers(
    runtime: Runtime, table: str, jobs: Sequence[str], job_manager: JobManager
) -> None:
    """Raise unless only these jobs of ours write the table, as far as can be told beforehand.

    Raises:
        ForeignJobError: a job of one of their names was started by somebody else.
        MaintenanceRefusedError: somebody else commits to the table again and again.
    """
    on_cluster = job_manager.jobs()
    for name in jobs:
        known = {i.flink_job_id for i in runtime.memory.incarnations(name)}
        unknown = [job for job in on_cluster if job.job_id not in known]
        refuse_beside(name, strangers(runtime, job_manager, name, unknown).foreign)
    records = runtime.memory.state().records
    names = [records[name].effective_operator_name for name in jobs if name in records]
    if "" in names:
        return  # the commits of an adopted job are not marked, and cannot be told from others'
    newest = runtime.catalog.open().table(table).newest_snapshots(SNAPSHOTS_LOOKED_AT)
    users = still_writing(newest, [commit_user_start(name) for name in names], runtime.clock.now())
    if users:
        raise MaintenanceRefusedError(
            f"Others than our jobs write {table}: commit users {', '.join(users)}.",
            remedy="Stop what writes there, or take it over with `lakehouse jobs adopt`; then try "
            "again.",
        )


def still_writing(
    snapshots: Iterable[Snapshot], ours: Sequence[str], now: datetime
) -> tuple[str, ...]:
    """The users, not ours, that committed rows more than once and not long ago.

    Who writes once is a batch job that is over. Who wrote again and again has stopped when three
    times its longest pause, and a minute, have passed.
    """
    times: dict[str, list[datetime]] = {}
    for snapshot in snapshots:
        mine = snapshot.commit_user.startswith(tuple(ours)) if ours else False
        if snapshot.moves_rows and not mine:
            times.setdefault(snapshot.commit_user, []).append(snapshot.committed_at)
    found = []
    for user, at in times.items():
        gaps = [later - earlier for earlier, later in pairwise(at)]
        if gaps and now - at[-1] <= max(_AT_LEAST, _GAPS * max(gaps)):
            found.append(user)
    return tuple(found)


def lately_writing(runtime: Runtime, facts: TableFacts, *, most: int) -> tuple[ForeignWriter, ...]:
    """The foreign writers of a table that count, as far as so many newest snapshots tell."""
    table = runtime.catalog.open().table(facts.table)
    since = runtime.clock.now() - FOREIGN_WRITERS_COUNT_FOR
    newest = table.newest_first(most, oldest=facts.oldest_snapshot_id or 1, since=since)
    return tuple(w for w in foreign_writers(newest, marks_of_ours(runtime)) if w.moves_rows)


def foreign_compactors(
    runtime: Runtime, facts: TableFacts, *, most: int = SNAPSHOTS_LOOKED_AT
) -> tuple[ForeignWriter, ...]:
    """Those of them that compact it: all, or where it is write-only who began before it was."""
    writing = lately_writing(runtime, facts, most=most)
    return tuple(writer for writer in writing if writer.compacts or facts.compacted_by_writers)

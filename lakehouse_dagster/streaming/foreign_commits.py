"""Whether others than our jobs write a table: told by the commit users of its snapshots.

Every job of ours commits under a user that begins with its operator name, and goes on under it when
it is restored. Compaction rewrites what is there, so whoever compacts is not asked. What else our
maintenance commits is on record with its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.settings import commit_user_start
from lakehouse_dagster.system_db import DesiredState

SNAPSHOTS_LOOKED_AT = 100


@dataclass(frozen=True)
class ForeignCommits:
    """The users, not ours, that committed to a table; None: nobody can tell, and ``why``."""

    users: tuple[str, ...] | None
    why: str = (
        "no job that writes this table is managed, or one was adopted and its commits are not "
        "marked as ours"
    )

    @property
    def passed(self) -> bool:
        return not self.users

    def __str__(self) -> str:
        if self.users is None:
            return f"Nobody can tell: {self.why}."
        if not self.users:
            return "Only jobs of this project write the table."
        return (
            f"Others write this table too: commit users {', '.join(self.users)}. What they write "
            "is not known to the project, and two writers can undo each other's compactions."
        )


def writing_users(snapshots: Iterable[Snapshot]) -> tuple[str, ...]:
    """The users of commits that brought rows, each once, in order."""
    return tuple(dict.fromkeys(s.commit_user for s in snapshots if s.commit_kind != "COMPACT"))


def foreign_commits(runtime: Runtime, table: str, users: Sequence[str]) -> ForeignCommits:
    """Which of these commit users are neither jobs declared to write the table nor maintenance."""
    records = runtime.memory.state().records
    prefixes: list[str] = []
    for job in runtime.jobs.values():
        if table not in job.sink_keys:
            continue
        record = records.get(job.name)
        if record is None or record.desired is DesiredState.UNMANAGED:
            continue
        if not record.effective_operator_name:
            return ForeignCommits(None)
        prefixes.append(commit_user_start(record.effective_operator_name))
    if not prefixes:
        return ForeignCommits(None)
    others = [user for user in users if not user.startswith(tuple(prefixes))]
    if not others:
        return ForeignCommits(())
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.system_db.maintenance_actions import MaintenanceActions

    own = MaintenanceActions(runtime.database, runtime.identity).own_commits(table)
    others = [user for user in others if user not in own.users]
    if others and own.under_way:
        return ForeignCommits(None, "maintenance that commits to this table is under way")
    return ForeignCommits(tuple(others))


def look_for_foreign_commits(runtime: Runtime, table: str) -> ForeignCommits:
    """The same for the table's newest snapshots, as far back as it is known what we committed."""
    from lakehouse_dagster.system_db.maintenance_actions import REMEMBERED

    since = runtime.clock.now() - REMEMBERED
    newest = runtime.catalog.open().table(table).newest_snapshots(SNAPSHOTS_LOOKED_AT)
    lately = [snapshot for snapshot in newest if snapshot.committed_at >= since]
    return foreign_commits(runtime, table, writing_users(lately))


@dataclass(frozen=True)
class ForeignWriter:
    """Who commits to a table as a streaming job does, under a user that is no job's of ours.

    A job of ours that was adopted commits like that, and so do compaction jobs, ours too.

    Args:
        commit_user: whole, as Paimon has it.
        newest: its newest commit that was looked at.
        moves_rows: whether any of them brought rows; who only compacts writes nothing.
        compacts: whether any of them was a compaction.
    """

    commit_user: str
    newest: Snapshot
    moves_rows: bool = False
    compacts: bool = False

    def __str__(self) -> str:
        at = self.newest.committed_at
        return f"commit user {self.commit_user}, which last committed {at:%Y-%m-%d %H:%M:%S} UTC"


def foreign_writers(
    newest_first: Iterable[Snapshot], marks: Sequence[str]
) -> tuple[ForeignWriter, ...]:
    """The users of streaming commits that begin with none of our marks; the latest one first.

    A batch job commits once, under a number that no checkpoint has, and is over then.
    """
    found: dict[str, ForeignWriter] = {}
    for snapshot in newest_first:
        user = snapshot.commit_user
        if not snapshot.is_of_a_checkpoint or user.startswith(tuple(marks)):
            continue
        known = found.get(user) or ForeignWriter(user, snapshot)
        found[user] = replace(
            known,
            moves_rows=known.moves_rows or snapshot.moves_rows,
            compacts=known.compacts or snapshot.commit_kind == "COMPACT",
        )
    return tuple(found.values())


def marks_of_ours(runtime: Runtime) -> tuple[str, ...]:
    """What the commit users of all our jobs begin with, but for those of adopted ones."""
    records = runtime.memory.state().records
    names = [record.effective_operator_name for record in records.values()]
    names += [name for name in runtime.jobs if name not in records]
    return tuple(commit_user_start(name) for name in names if name)

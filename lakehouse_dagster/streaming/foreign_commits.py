"""Whether others than our jobs write a table: told by the commit users of its snapshots.

Every job of ours commits under a user that begins with its operator name, and goes on under it when
it is restored. Compaction rewrites what is there, so whoever compacts is not asked. What else our
maintenance commits is on record with its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

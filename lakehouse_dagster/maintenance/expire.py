"""How many of the oldest snapshots or changelogs may go now, and the CALL that lets them go.

Paimon counts from the newest snapshot and from the present, which both move on while a CALL waits
its turn. So each CALL is bounded by a number from the oldest on as well, worked out right before.
(Source: Paimon's ``ExpireSnapshotsImpl`` and ``ExpireChangelogImpl``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.flink.procedures import call
from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.paimon import Snapshot, TableReader

MOST_A_CALL = 100
_ALL = 2_147_483_647

EXPIRIES = (ActionKind.EXPIRE_SNAPSHOTS, ActionKind.EXPIRE_CHANGELOGS)


@dataclass(frozen=True)
class NextExpiry:
    """The next CALL.

    Args:
        text: the CALL.
        going: how many snapshots or changelogs it lets go.
        left: how many more are due after it.
    """

    text: str
    going: int
    left: int


def next_expiry(table: TableReader, action: Action, now: datetime) -> NextExpiry | None:
    """What to call next; None when nothing is left that may go.

    Args:
        table: that of the action.
        action: an expiry, with ``keep``, ``older_than`` and ``needed_from``.
        now: the present, aware.
    """
    oldest, newest = table.oldest_snapshot_id(), table.latest_snapshot_id()
    if oldest is None or newest is None:
        return None
    if action.kind is ActionKind.EXPIRE_CHANGELOGS:
        return _changelogs(table, action, newest)
    due = _first_that_stays(oldest, newest, action, table.snapshot) - oldest
    going = min(due, MOST_A_CALL)
    if going <= 0:
        return None
    # An age, which no time zone changes: points in time are read in that of the gateway's JVM.
    age = now - (action.older_than or now)
    text = call(
        "expire_snapshots",
        table=action.table,
        retain_min=action.keep or 1,
        retain_max=_ALL,
        max_deletes=going,
        options=f"snapshot.time-retained={int(age.total_seconds() * 1000)} ms",
    )
    return NextExpiry(text, going, due - going)


def _changelogs(table: TableReader, action: Action, newest_snapshot: int) -> NextExpiry | None:
    kept = table.changelog_ids()
    if not kept:
        return None
    due = _first_that_stays(kept[0], kept[-1], action, table.changelog) - kept[0]
    going = min(due, MOST_A_CALL)
    if going <= 0:
        return None
    # The numbers to retain count from the newest snapshot, not from the newest changelog.
    retained = newest_snapshot - (kept[0] + going) + 1
    text = call(
        "expire_changelogs",
        table=action.table,
        retain_min=retained,
        retain_max=retained,
        max_deletes=going,
    )
    return NextExpiry(text, going, due - going)


def _first_that_stays(
    oldest: int, newest: int, action: Action, read: Callable[[int], Snapshot | None]
) -> int:
    """The first id that may not go: among the newest ones, needed, or too young."""
    end = newest - (action.keep or 1) + 1
    if action.needed_from is not None:
        end = min(end, action.needed_from)
    bound = action.older_than
    if bound is None:
        return oldest
    low, high = oldest, max(end, oldest)
    while low < high:
        middle = (low + high) // 2
        found = read(middle)
        if found is None or found.committed_at < bound:
            low = middle + 1
        else:
            high = middle
    return low

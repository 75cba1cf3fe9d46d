"""Which commits of a table an action of ours made, so that nobody takes them for a stranger's.

Paimon's procedures commit under users that they make up, one a CALL, and take no name for them. So
it is looked up afterwards: what replaces or drops files (``OVERWRITE``) while we hold the table.
"""

from __future__ import annotations

import json
from typing import Any

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.paimon import TableReader
from lakehouse_dagster.system_db.maintenance_actions import COMMIT_USERS, COMMITS_AFTER

_OVERWRITES = "OVERWRITE"
_ONLY_REMOVES = "only_removes"
_LOOKED_AT = 1000
"""Newest snapshots; whoever is asked later looks at fewer."""


def will_commit(after: int | None, *, only_removes: bool) -> dict[str, Any]:
    """What is put into the details of an action that will commit by itself.

    Args:
        after: the newest snapshot before it begins.
        only_removes: whether its commits add no file.
    """
    return {COMMITS_AFTER: after or 0, _ONLY_REMOVES: only_removes}


def with_commit_users(keeper: Keeper, table: str, details: str) -> str:
    """The details of an action that has ended, with the users under which it committed."""
    known = json.loads(details)
    if COMMITS_AFTER not in known:
        return details
    try:
        reader = keeper.runtime.catalog.open().table(table)
        users = _users(reader, known[COMMITS_AFTER], only_removes=known[_ONLY_REMOVES])
    except LakehouseError:
        return details  # the table is gone, or out of reach: then nobody asks
    return json.dumps({**known, COMMIT_USERS: users})


def _users(table: TableReader, after: int, *, only_removes: bool) -> list[str]:
    latest = table.latest_snapshot_id() or 0
    snapshots = table.snapshots(max(after, latest - _LOOKED_AT), latest).snapshots
    found = [
        snapshot.commit_user
        for snapshot in snapshots
        if snapshot.commit_kind == _OVERWRITES
        and not (only_removes and _adds_files(table, snapshot.id))
    ]
    return list(dict.fromkeys(found))


def _adds_files(table: TableReader, snapshot_id: int) -> bool:
    return any(changed.files_added for changed in table.changes(snapshot_id).partitions)

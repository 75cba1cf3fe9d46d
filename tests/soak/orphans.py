"""Orphans: what a search lists, and what is gone a day later."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, OrphanSpec, TablePolicy
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from tests.soak.lake import WRITERS, Place


def a_day_later(place: Place) -> list[str]:
    """Search once more, remove a day later, and search again; what was not as it must be.

    Searches list exactly the junk that lies in a table's folder, and no live file. For the removal
    the clock of whoever maintains is put forward: files and snapshots are as old as they were.
    """
    found = []
    junk = {table: _junk(place, table) for table in WRITERS}
    if not all(junk.values()):
        found.append(f"junk does not lie everywhere: {junk}")
    listed = _done(place, utc_now, ActionKind.FIND_ORPHANS, most_files=1)
    if listed != junk:
        found.append(f"searches list {listed} files; junk is {junk}")
    _done(place, lambda: utc_now() + timedelta(hours=25), ActionKind.REMOVE_ORPHANS)
    left = {table: number for table in WRITERS if (number := _junk(place, table))}
    if left:
        found.append(f"orphans that were not removed: {left}")
    listed = _done(place, lambda: utc_now() + timedelta(hours=25), ActionKind.FIND_ORPHANS)
    if any(listed.values()):
        found.append(f"listed as orphans after the removal: {listed}")
    return found


def _done(
    place: Place, now: Callable[[], datetime], kind: ActionKind, *, most_files: int = 10_000
) -> dict[str, int]:
    """Do what is due of a kind on every table; how many files each says.

    By default a person looked at what was found, and allows so much to be removed.
    """
    orphans = OrphanSpec(every="1ms", older_than="1d", most_files=most_files)
    policy = MaintenancePolicy(
        TablePolicy(compact=None, expire=None, changelogs=None, manifests=None, orphans=orphans)
    )
    keeper = Keeper(replace(place.runtime(), clock=Clock(now=now)))
    outcome = maintain(keeper, policy, WRITERS, holder="soak", kinds=frozenset({kind}))
    assert not outcome.failures, outcome.failures
    assert all(record.error is None for record in outcome.done), outcome.done
    return {r.table_name: json.loads(r.after or "{}")["orphan_files"] for r in outcome.done}


def _junk(place: Place, table: str) -> int:
    return len(list(place.table_path(table).rglob("data-junk-*")))

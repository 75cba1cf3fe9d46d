"""What maintenance did, as an observation of the table's asset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse_dagster.listing import some
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.budget import COMPACTIONS
from lakehouse_dagster.maintenance.case import partition_in_words

if TYPE_CHECKING:
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

_SHOWN = ("files", "bytes", "small_files", "level0_files", "partitions", "snapshots", "changelogs")
_ALWAYS = ("files", "bytes", "snapshots")
_COMPACTIONS = tuple(kind.value for kind in COMPACTIONS)
_OF_FILES = ("files", "bytes", "small_files", "level0_files")
_LESSENED_BY = {
    **dict.fromkeys(_COMPACTIONS, _OF_FILES),
    ActionKind.EXPIRE_TAGS.value: ("tags",),
    ActionKind.EXPIRE_PARTITIONS.value: ("partitions", *_OF_FILES),
    ActionKind.EXPIRE_SNAPSHOTS.value: ("snapshots",),
    ActionKind.EXPIRE_CHANGELOGS.value: ("changelogs",),
    ActionKind.COMPACT_MANIFESTS.value: ("manifests",),
    ActionKind.FIND_ORPHANS.value: (),
    ActionKind.REMOVE_ORPHANS.value: (),
}
"""What an action of a kind makes less. Whatever else changed meanwhile, writers changed."""


def observation(key: dg.AssetKey, record: ActionRecord) -> dg.AssetObservation:
    """One action on one table: why, what it changed, what it took, and how it ended.

    Numbers after the action plot on the asset's page (``files``, ``bytes``, ``snapshots``).
    """
    return dg.AssetObservation(
        asset_key=key,
        description=f"{record.kind}: {record.state.value}. {record.reason}",
        metadata=action_metadata(record),
    )


def action_metadata(record: ActionRecord) -> dict[str, Any]:
    """Everything that is on record of an action."""
    before, after = _figures(record.before), _figures(record.after)
    metadata: dict[str, Any] = {
        "action": record.kind,
        "state": record.state.value,
        "reason": record.reason,
        "change": in_words(record),
        "attempts": record.attempts,
        "writer_restarts": record.writer_restarts,
        "by": record.holder,
    }
    if record.ended_at is not None:
        metadata["seconds"] = round((record.ended_at - record.started_at).total_seconds(), 1)
    for name in _SHOWN:
        if name in _ALWAYS or before.get(name) != after.get(name):
            metadata |= {f"{name}_before": before[name]} if name in before else {}
            metadata |= {name: after[name]} if name in after else {}
    metadata |= {name: value for name, value in after.items() if name.startswith("orphan_")}
    if record.flink_job_id:
        metadata["flink_job_id"] = record.flink_job_id
    if record.error:
        metadata["error"] = record.error
    return {**metadata, **_details(record)}


def line(record: ActionRecord) -> str:
    """An action in one line: on which table, how it ended, what it changed, and at what price."""
    state = record.state.value
    price = [f"{record.attempts} attempts"] if record.attempts > 1 else []
    if record.writer_restarts:
        price.append(f"{_times(record.writer_restarts)} a writer restarted meanwhile")
    told = f"{in_words(record)} ({'; '.join(price)})" if price else in_words(record)
    return f"{record.table_name}: {record.kind}: {state}: {told}"


def in_words(record: ActionRecord) -> str:
    """What the action changed: ``files 40 to 2, bytes 1000 to 900``; what stayed is left out.

    Writers go on meanwhile: only what an action of its kind can change is told as its doing.
    """
    before, after = _figures(record.before), _figures(record.after)
    if not after:
        return "not known"
    told = [
        f"{name} {before[name]} to {value}"
        for name, value in after.items()
        if _is_its_doing(record, name, value - before.get(name, value))
    ]
    told += [
        f"{name.replace('_', ' ')} {value}"
        for name, value in after.items()
        if name.startswith("orphan_")
    ]
    return ", ".join(told) or "nothing"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _is_its_doing(record: ActionRecord, name: str, change: int) -> bool:
    lessened = _LESSENED_BY.get(record.kind)
    if lessened is None:
        return change != 0  # nobody else writes while a table is rescaled
    if record.kind in _COMPACTIONS and record.state.value != "done":
        # One Flink job commits all or nothing; of several, those before the last may have done.
        return name in lessened and change < 0 and json.loads(record.details).get("calls", 1) > 1
    return name in lessened and change < 0


def _figures(text: str | None) -> dict[str, int]:
    return dict(json.loads(text)) if text else {}


def _details(record: ActionRecord) -> dict[str, Any]:
    details = json.loads(record.details)
    found: dict[str, Any] = {f"due: {k}": v for k, v in details.get("figures", {}).items()}
    partitions = [partition_in_words([*p.items()]) for p in details.get("partitions", ())]
    if partitions:
        found["partitions_done"] = some(partitions)
    if details.get("names"):
        found["tags_done"] = some(details["names"])
    return found

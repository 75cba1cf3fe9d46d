"""What maintenance did, as an observation of the table's asset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse_dagster.maintenance.case import partition_in_words, some

if TYPE_CHECKING:
    # SQLAlchemy comes with it: loading definitions does not wait for that.
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

_SHOWN = ("files", "bytes", "small_files", "level0_files", "partitions", "snapshots", "changelogs")
_ALWAYS = ("files", "bytes", "snapshots")


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


def in_words(record: ActionRecord) -> str:
    """What changed: ``files 40 to 2, bytes 1000 to 900``; what stayed as it was is left out."""
    before, after = _figures(record.before), _figures(record.after)
    if not after:
        return "not known"
    told = [
        f"{name} {before[name]} to {value}"
        for name, value in after.items()
        if before.get(name, value) != value
    ]
    told += [
        f"{name.replace('_', ' ')} {value}"
        for name, value in after.items()
        if name.startswith("orphan_")
    ]
    return ", ".join(told) or "nothing"


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

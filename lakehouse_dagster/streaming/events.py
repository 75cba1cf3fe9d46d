"""Progress, health and outcomes as Dagster events: what a person sees on an asset's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import dagster as dg

from lakehouse_dagster.listing import some
from lakehouse_dagster.streaming.checks import CheckOutcome
from lakehouse_dagster.streaming.materialise import Materialised
from lakehouse_dagster.streaming.observe import Observation, ObservedState, waits_for_a_person
from lakehouse_dagster.streaming.partition_keys import in_words
from lakehouse_dagster.streaming.progress import ProgressEvent
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.system_db import DesiredState, Incarnation, JobRecord

DATA_VERSION = "dagster/data_version"
HEALTH_CHECK = "job_health"
INCARNATIONS_SHOWN = 5
PARTITIONS_TOLD = 50

HealthCheckKeys: TypeAlias = Mapping[str, tuple[dg.AssetCheckKey, ...]]
"""The health checks of each job, by its name: one for every table that it writes."""


def progress_metadata(event: ProgressEvent, now: datetime) -> dict[str, Any]:
    """The numbers and texts of one progress event; numbers plot on the asset's page."""
    metadata: dict[str, Any] = {
        "snapshot": event.last_snapshot,
        "snapshot_range": f"{event.first_snapshot} to {event.last_snapshot}",
        "commits": ", ".join(f"{n} {kind}" for kind, n in sorted(event.commits_by_kind.items())),
        "committed_at": dg.MetadataValue.timestamp(event.committed_at),
        "rows_written": event.rows_written,
        "rows_removed": event.rows_removed,
        "files_added": event.files_added,
        "files_deleted": event.files_deleted,
        "bytes_added": event.bytes_added,
        "age_seconds": round((now - event.committed_at).total_seconds(), 1),
        "commit_user": event.commit_user,
    }
    if event.watermark is not None:
        metadata["watermark"] = dg.MetadataValue.timestamp(event.watermark)
        metadata["watermark_lag_seconds"] = round((now - event.watermark).total_seconds(), 1)
    if event.partitions:
        changed = [in_words(partition) for partition, _ in event.partitions]
        metadata["partitions_changed"] = len(changed)
        metadata["partitions"] = some(changed, most=PARTITIONS_TOLD)
    if event.expired:
        metadata["expired_unseen"] = ", ".join(f"{a} to {b}" for a, b in event.expired)
    if event.snapshots_not_looked_into:
        metadata["snapshots_not_counted"] = event.snapshots_not_looked_into
    return metadata


def progress_materialization(
    key: dg.AssetKey,
    event: ProgressEvent,
    now: datetime,
    figures: Mapping[str, int] | None = None,
) -> dg.AssetMaterialization:
    """The event that moves the asset to its newest snapshot; ``figures`` are of the table."""
    return dg.AssetMaterialization(
        asset_key=key,
        description=f"Snapshots {event.first_snapshot} to {event.last_snapshot}.",
        metadata={**progress_metadata(event, now), **(figures or {})},
        tags={DATA_VERSION: event.data_version},
    )


def materialize_result(
    key: dg.AssetKey, outcome: StartOutcome, table: Materialised, now: datetime
) -> dg.MaterializeResult[Any]:
    """The result of materialising a table by making sure that its job runs."""
    metadata: dict[str, Any] = {
        "streaming_job": outcome.job,
        "how": outcome.how.value,
        "incarnation": outcome.incarnation,
        "flink_job_id": outcome.flink_job_id,
        "restored_from": outcome.restored_from or "nothing",
    }
    if table.event is not None:
        metadata.update(progress_metadata(table.event, now))
    else:
        metadata.update(snapshot=table.newest_snapshot, new_data="none yet")
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata,
        data_version=dg.DataVersion(str(table.newest_snapshot)),
    )


def health(
    observation: Observation,
    record: JobRecord,
    now: datetime,
    policy: SupervisionPolicy,
    past: Sequence[Incarnation] = (),
    flink_url: str | None = None,
) -> tuple[bool, str, dict[str, Any]]:
    """Whether the job is as it should be, why, and the figures that a person wants to see.

    ``past`` are its incarnations, newest first; ``flink_url`` is where Flink's own page is.
    """
    metadata = _job_page(observation, record)
    if flink_url and observation.incarnation is not None:
        job_id = observation.incarnation.flink_job_id
        page = f"{flink_url.rstrip('/')}/#/job/running/{job_id}/overview"
        metadata["flink_page"] = dg.MetadataValue.url(page)
    if past:
        metadata["incarnations"] = dg.MetadataValue.md(_as_table(past[:INCARNATIONS_SHOWN]))
    if observation.desired is DesiredState.UNMANAGED:
        if observation.foreign:
            return (
                True,
                f"Not managed; it runs as Flink job {', '.join(observation.foreign)}, which was "
                f"started by hand: `lakehouse jobs adopt {observation.name}` takes it over.",
                metadata,
            )
        return False, "Nobody has started or adopted this job yet.", metadata
    if waits_for_a_person(record, now, policy) and not observation.healthy:
        return (
            False,
            f"{record.attempts} attempts in a row failed; the job waits for a person to start it.",
            metadata,
        )
    text = f"Should be {observation.desired.value}, is {observation.observed.value}"
    text = f"{text}: {observation.reason}."
    if observation.foreign:
        ids = ", ".join(observation.foreign)
        text += f" A job of the same name that is not ours runs beside it: Flink job {ids}."
    if observation.outdated:
        text += " Its script has changed since: upgrade it to run the new one."
    return observation.healthy, text, metadata


def _job_page(observation: Observation, record: JobRecord) -> dict[str, Any]:
    """Everything about the job at this moment; texts of Flink's were redacted when they came."""
    incarnation = observation.incarnation
    metadata: dict[str, Any] = {
        "streaming_job": observation.name,
        "desired": observation.desired.value,
        "observed": observation.observed.value,
        "outdated": observation.outdated,
    }
    if incarnation is not None:
        metadata.update(
            incarnation=incarnation.number,
            flink_job_id=incarnation.flink_job_id,
            restarts=incarnation.restarts,
            failed_checkpoints=incarnation.failed_checkpoints,
            restored_from=incarnation.restored_from or "nothing",
        )
        if incarnation.checkpoint_at is not None:
            metadata["last_checkpoint"] = dg.MetadataValue.timestamp(incarnation.checkpoint_at)
            metadata["restore_point"] = incarnation.checkpoint_path or ""
        if incarnation.root_cause is not None and incarnation.root_cause_at is not None:
            metadata["last_root_cause"] = incarnation.root_cause
            metadata["last_root_cause_at"] = dg.MetadataValue.timestamp(incarnation.root_cause_at)
    if record.attempts and not observation.healthy:
        metadata["attempts"] = record.attempts
        if record.next_attempt_at is not None:
            metadata["next_attempt_at"] = dg.MetadataValue.timestamp(record.next_attempt_at)
    if observation.foreign:
        metadata["foreign_jobs"] = ", ".join(observation.foreign)
    if record.last_error:
        metadata["last_error"] = record.last_error
    return metadata


def _as_table(incarnations: Sequence[Incarnation]) -> str:
    """The lives of the job, newest first: when, from what, how each ended, and what it left."""
    lines = [
        "| no. | began | started from | ended | restarts | newest restore point |",
        "|---|---|---|---|---|---|",
    ]
    for life in incarnations:
        ended = f"{life.ended_at:%Y-%m-%d %H:%M:%S}: " if life.ended_at else ""
        columns = (
            str(life.number),
            f"{life.recorded_at:%Y-%m-%d %H:%M:%S}",
            _short(life.restored_from) if life.restored_from else life.origin.value,
            f"{ended}{life.end_reason or life.state.value}",
            str(life.restarts),
            _short(life.savepoint_path or life.checkpoint_path or ""),
        )
        lines.append(
            "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in columns) + " |"
        )
    return "\n".join(lines)


def _short(path: str) -> str:
    """The end of a restore point's path, which tells it from others."""
    return "/".join(path.rstrip("/").rsplit("/", 2)[-2:])


def severity(observation: Observation) -> dg.AssetCheckSeverity:
    """WARN where nobody wants it otherwise yet, or Flink or time may mend it."""
    if observation.desired is DesiredState.UNMANAGED:
        return dg.AssetCheckSeverity.WARN
    passing = (ObservedState.RESTARTING, ObservedState.UNREACHABLE)
    warns = observation.observed in passing or bool(observation.foreign)
    return dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR


def check_evaluations(
    keys: HealthCheckKeys,
    observation: Observation,
    record: JobRecord,
    now: datetime,
    policy: SupervisionPolicy,
    past: Sequence[Incarnation] = (),
    flink_url: str | None = None,
) -> list[dg.AssetCheckEvaluation]:
    """The health check of each table that the job writes."""
    passed, text, metadata = health(observation, record, now, policy, past, flink_url)
    return [
        dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=passed,
            severity=severity(observation),
            description=text,
            metadata=metadata,
        )
        for key in keys[observation.name]
    ]


def evaluations_of(
    runtime: Runtime, keys: HealthCheckKeys, observation: Observation, record: JobRecord
) -> list[dg.AssetCheckEvaluation]:
    """The same with everything that is remembered of the job, as it is now."""
    return check_evaluations(
        keys,
        observation,
        record,
        runtime.clock.now(),
        runtime.policy,
        runtime.memory.incarnations(observation.name),
        runtime.cluster.rest_url,
    )


def as_evaluation(
    key: dg.AssetKey, name: str, outcome: CheckOutcome, links: Mapping[str, Any] | None = None
) -> dg.AssetCheckEvaluation:
    """An outcome as Dagster shows it; ``links`` stand beside its figures."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=name,
        passed=outcome.passed,
        severity=dg.AssetCheckSeverity[outcome.severity_word],
        description=outcome.text,
        metadata={**outcome.figures, **(links or {})},
    )


def as_result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """An evaluation as a run of the check gives it."""
    metadata: dict[str, Any] = dict(evaluation.metadata)
    return dg.AssetCheckResult(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=metadata,
    )

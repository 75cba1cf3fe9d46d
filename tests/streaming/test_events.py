"""What a person sees on an asset's page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from lakehouse_dagster.streaming.events import (
    check_evaluations,
    health,
    materialize_result,
    progress_materialization,
    progress_metadata,
)
from lakehouse_dagster.streaming.materialise import Materialised
from lakehouse_dagster.streaming.observe import Observation, ObservedState
from lakehouse_dagster.streaming.progress import ProgressEvent
from lakehouse_dagster.streaming.spec import SupervisionPolicy
from lakehouse_dagster.streaming.start import StartedHow, StartOutcome
from lakehouse_dagster.system_db import DesiredState
from tests.streaming.making import NOW, ago, incarnation, record

EVENT = ProgressEvent(
    table="ods.orders",
    first_snapshot=4,
    last_snapshot=9,
    committed_at=ago(seconds=12),
    watermark=None,
    commit_user="ods_orders-1",
    writing_users=("ods_orders-1",),
    commits_by_kind={"APPEND": 4, "COMPACT": 2},
    rows_written=120,
    rows_removed=3,
    files_added=8,
    files_deleted=2,
    bytes_added=4096,
    partitions=(),
    expired=(),
    snapshots_not_looked_into=0,
)
KEY = dg.AssetKey(["ods", "orders"])
POLICY = SupervisionPolicy()


def values(metadata: dict[str, Any]) -> dict[str, Any]:
    return {k: getattr(v, "value", v) for k, v in metadata.items()}


def test_a_progress_event_carries_version_and_numbers_that_plot() -> None:
    made = progress_materialization(KEY, EVENT, NOW)
    assert made.asset_key == KEY
    assert made.tags == {"dagster/data_version": "9"}
    assert made.description == "Snapshots 4 to 9."
    assert values(dict(made.metadata)) == {
        "snapshot": 9,
        "snapshot_range": "4 to 9",
        "commits": "4 APPEND, 2 COMPACT",
        "committed_at": ago(seconds=12).timestamp(),
        "rows_written": 120,
        "rows_removed": 3,
        "files_added": 8,
        "files_deleted": 2,
        "bytes_added": 4096,
        "age_seconds": 12.0,
        "commit_user": "ods_orders-1",
    }
    numbers = ("snapshot", "rows_written", "bytes_added", "age_seconds")
    assert all(
        isinstance(made.metadata[n], dg.IntMetadataValue | dg.FloatMetadataValue) for n in numbers
    )


def test_unmerged_counts_are_never_called_row_count() -> None:
    assert "dagster/row_count" not in progress_metadata(EVENT, NOW)


def test_the_lag_behind_the_watermark_is_a_number() -> None:
    metadata = values(progress_metadata(replace(EVENT, watermark=ago(seconds=90)), NOW))
    assert metadata["watermark_lag_seconds"] == 90.0
    assert metadata["watermark"] == ago(seconds=90).timestamp()


def test_many_partitions_are_counted_and_some_are_named() -> None:
    partitions = tuple(({"dt": f"{n:03}"}, 9) for n in range(60))
    metadata = progress_metadata(replace(EVENT, partitions=partitions), NOW)
    assert metadata["partitions_changed"] == 60
    assert metadata["partitions"].startswith("dt=000, dt=001")
    assert metadata["partitions"].endswith("dt=049 and 10 more")


def test_gaps_and_what_was_not_counted_are_told() -> None:
    event = replace(EVENT, expired=((4, 5), (7, 7)), snapshots_not_looked_into=3)
    metadata = progress_metadata(event, NOW)
    assert metadata["expired_unseen"] == "4 to 5, 7 to 7"
    assert metadata["snapshots_not_counted"] == 3


OUTCOME = StartOutcome(
    job="ods_orders",
    how=StartedHow.ADOPTED,
    incarnation=3,
    flink_job_id="f" * 32,
    restored_from=None,
    reason="it runs already",
)


def test_materialising_tells_how_the_job_came_to_run() -> None:
    made = materialize_result(KEY, OUTCOME, Materialised("ods.orders", EVENT, 9), NOW)
    metadata = values(dict(made.metadata or {}))
    assert made.data_version == dg.DataVersion("9")
    assert (metadata["how"], metadata["incarnation"]) == (StartedHow.ADOPTED.value, 3)
    assert (metadata["restored_from"], metadata["rows_written"]) == ("nothing", 120)


def test_materialising_without_new_data_keeps_the_version() -> None:
    made = materialize_result(KEY, OUTCOME, Materialised("ods.orders", None, 9), NOW)
    assert made.data_version == dg.DataVersion("9")
    assert (made.metadata or {})["new_data"] == "none yet"
    assert "rows_written" not in (made.metadata or {})


def seen(
    observed: ObservedState, desired: DesiredState = DesiredState.RUNNING, reason: str = "why"
) -> Observation:
    return Observation("ods_orders", desired, observed, reason, incarnation(2, restarts=1))


def test_a_healthy_job_passes_with_its_figures() -> None:
    passed, text, metadata = health(seen(ObservedState.RUNNING), record(), NOW, POLICY)
    assert passed
    assert text == "Should be RUNNING, is RUNNING: why."
    assert values(metadata) == {
        "streaming_job": "ods_orders",
        "desired": "RUNNING",
        "observed": "RUNNING",
        "outdated": False,
        "failed_checkpoints": 0,
        "restore_point": "",
        "incarnation": 2,
        "flink_job_id": incarnation(2).flink_job_id,
        "restarts": 1,
        "restored_from": "nothing",
        "last_checkpoint": ago(seconds=5).timestamp(),
    }


@pytest.mark.parametrize(
    "observed",
    [ObservedState.FAILED, ObservedState.LOST, ObservedState.DEGRADED, ObservedState.UNREACHABLE],
)
def test_an_unhealthy_job_fails_with_the_reason(observed: ObservedState) -> None:
    passed, text, metadata = health(seen(observed), record(last_error="no slots"), NOW, POLICY)
    assert not passed
    assert text == f"Should be RUNNING, is {observed.value}: why."
    assert metadata["last_error"] == "no slots"


def test_a_check_asked_of_a_job_that_nobody_started_only_warns_of_that() -> None:
    observation = seen(ObservedState.ABSENT, DesiredState.UNMANAGED)
    keys = {"ods_orders": (dg.AssetCheckKey(KEY, "job_health"),)}
    (made,) = check_evaluations(keys, observation, record(), NOW, POLICY)
    assert (made.passed, made.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert made.description == "Nobody has started or adopted this job yet."


def test_a_job_that_waits_for_a_person_fails_and_says_so() -> None:
    passed, text, _ = health(seen(ObservedState.ABSENT), record(attempts=6), NOW, POLICY)
    assert not passed
    assert text == "6 attempts in a row failed; the job waits for a person to start it."
    passed, _, _ = health(seen(ObservedState.RUNNING), record(attempts=6), NOW, POLICY)
    assert passed


def test_every_table_of_the_job_gets_its_evaluation() -> None:
    wide, own = dg.AssetKey(["ods", "wide"]), "job_health__ods_orders"
    keys = {"ods_orders": (dg.AssetCheckKey(KEY, "job_health"), dg.AssetCheckKey(wide, own))}
    made = check_evaluations(keys, seen(ObservedState.LOST), record(), NOW, POLICY)
    assert [(e.asset_key, e.check_name, e.passed, e.severity) for e in made] == [
        (KEY, "job_health", False, dg.AssetCheckSeverity.ERROR),
        (
            dg.AssetKey(["ods", "wide"]),
            "job_health__ods_orders",
            False,
            dg.AssetCheckSeverity.ERROR,
        ),
    ]


def test_ages_count_from_the_commit() -> None:
    metadata = progress_metadata(EVENT, NOW + timedelta(minutes=1))
    assert metadata["age_seconds"] == 72.0


def test_the_page_of_a_job_shows_its_last_lives() -> None:
    lives = [
        incarnation(
            number,
            restored_from=f"file:/c/{'a' * 32}/chk-{number}" if number > 1 else None,
            end_reason="FAILED: a | b" if number < 7 else None,
            savepoint_path=f"file:/s/savepoint-{number}" if number < 7 else None,
        )
        for number in range(7, 0, -1)
    ]
    _, _, metadata = health(seen(ObservedState.RUNNING), record(), NOW, POLICY, lives)
    lines = metadata["incarnations"].value.splitlines()
    assert len(lines) == 2 + 5
    assert lines[2].startswith("| 7 | 2026-03-01 11:00:00 | " + "a" * 32 + "/chk-7 | RUNNING | 0 |")
    assert "FAILED: a / b" in lines[3]
    assert lines[3].endswith("| s/savepoint-6 |")

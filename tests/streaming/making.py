"""Makes records, incarnations, overviews and projects for tests of pure decisions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from lakehouse_dagster import FlinkCluster, Lakehouse, LoadedLakehouse, PaimonCatalog
from lakehouse_dagster import SystemDatabase as Database
from lakehouse_dagster.flink import FlinkJobStatus, JobSummary
from lakehouse_dagster.system_db import (
    DesiredState,
    Incarnation,
    IncarnationState,
    JobRecord,
    flink_job_id,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def record(name: str = "job", **values: Any) -> JobRecord:
    made = JobRecord(
        name=name,
        desired=DesiredState.RUNNING,
        fingerprint=None,
        attempts=0,
        next_attempt_at=None,
        last_error=None,
        updated_at=NOW,
    )
    return replace(made, **values)


def incarnation(number: int = 1, *, job: str = "job", **values: Any) -> Incarnation:
    made = Incarnation(
        job_name=job,
        number=number,
        flink_job_id=flink_job_id("lake", job, number),
        fingerprint="f",
        state=IncarnationState.RUNNING,
        session_handle=None,
        operation_handle=None,
        restored_from=None,
        fencing=1,
        recorded_at=ago(hours=1),
        submitted_at=ago(hours=1),
        running_at=ago(hours=1),
        ended_at=None,
        stop_trigger_id=None,
        savepoint_path=None,
        checkpoint_path=None,
        checkpoint_id=None,
        checkpoint_at=ago(seconds=5),
        restarts=0,
        restarts_before_window=0,
        restart_window_at=None,
        end_reason=None,
    )
    return replace(made, **values)


def summary(status: FlinkJobStatus = FlinkJobStatus.RUNNING, **values: Any) -> JobSummary:
    made = JobSummary(
        job_id=flink_job_id("lake", "job", 1),
        name="job",
        status=status,
        started_at=ago(hours=1),
        ended_at=NOW if status.is_terminal else None,
        tasks_total=3,
        tasks_running=3 if status is FlinkJobStatus.RUNNING else 0,
    )
    return replace(made, **values)


def write_scripts(folder: Path, scripts: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        path = folder / f"{name}.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).strip() + "\n")
    return folder


def load(
    folder: Path,
    scripts: Mapping[str, str],
    *,
    start: str = "on_demand",
    rest_url: str = "http://127.0.0.1:9",
    **lakehouse: Any,
) -> LoadedLakehouse:
    """A lakehouse below ``folder``: its scripts, its warehouse, its system database."""
    write_scripts(folder / "sql", scripts)
    lake = Lakehouse(
        catalog=PaimonCatalog(warehouse=str(folder / "warehouse")),
        flink=FlinkCluster(rest_url, rest_url, connect_timeout_seconds=2, read_timeout_seconds=2),
        system_database=Database(f"sqlite:///{folder / 'lakehouse.db'}"),
        **lakehouse,
    )
    return lake.load("sql", start=start, base_folder=folder)


def table(name: str, *, key: str = "id", options: str = "'bucket' = '1'") -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (id BIGINT, v STRING, "
        f"PRIMARY KEY ({key}) NOT ENFORCED) WITH ({options});\n"
    )


def source(name: str, topic: str | None = None) -> str:
    options = f"'connector' = 'kafka', 'topic' = '{topic}'" if topic else "'connector' = 'datagen'"
    return f"CREATE TEMPORARY TABLE {name} (id BIGINT, v STRING) WITH ({options});\n"


def job(name: str, sink: str, *reads: str) -> str:
    union = " UNION ALL ".join(f"SELECT id, v FROM {read}" for read in reads)
    return f"SET 'pipeline.name' = '{name}';\nINSERT INTO {sink} {union};\n"

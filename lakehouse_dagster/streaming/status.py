"""Jobs and tables at a glance, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from lakehouse_dagster.errors import CatalogError
from lakehouse_dagster.paimon import CatalogReader
from lakehouse_dagster.streaming.observe import Observation, waits_for_a_person
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.supervise import observe_all
from lakehouse_dagster.system_db import JobRecord


@dataclass(frozen=True)
class JobStatus:
    """One streaming job. ``restarts`` are those of its newest incarnation.

    ``foreign`` are Flink jobs of its name that somebody else started; ``orphaned``: no script
    declares it any more; ``outdated``: its script is not the one that it runs.
    """

    name: str
    desired: str
    observed: str
    reason: str
    incarnation: int | None
    flink_job_id: str | None
    restarts: int
    last_checkpoint_age_seconds: float | None
    waits_for_a_person: bool
    last_error: str | None
    outdated: bool = False
    orphaned: bool = False
    foreign: tuple[str, ...] = ()
    attempts: int = 0
    next_attempt_at: datetime | None = None
    root_cause: str | None = None


@dataclass(frozen=True)
class TableStatus:
    """One table; all None while it has no snapshot. ``problem`` says why it cannot be read."""

    name: str
    snapshot: int | None
    committed_at: datetime | None
    age_seconds: float | None
    watermark_lag_seconds: float | None
    problem: str | None = None


def job_statuses(runtime: Runtime) -> tuple[JobStatus, ...]:
    """Look at the cluster and the system database once; changes nothing."""
    observations = observe_all(runtime)
    records = {record.name: record for record in runtime.memory.all()}
    return tuple(_job(runtime, o, records[o.name]) for o in observations)


def _job(runtime: Runtime, observation: Observation, record: JobRecord) -> JobStatus:
    incarnation = observation.incarnation
    checkpoint_at = incarnation.checkpoint_at if incarnation else None
    return JobStatus(
        name=observation.name,
        desired=observation.desired.value,
        observed=observation.observed.value,
        reason=observation.reason,
        incarnation=incarnation.number if incarnation else None,
        flink_job_id=incarnation.flink_job_id if incarnation else None,
        restarts=incarnation.restarts if incarnation else 0,
        last_checkpoint_age_seconds=_age(runtime, checkpoint_at),
        waits_for_a_person=not observation.healthy
        and waits_for_a_person(record, runtime.clock.now(), runtime.policy),
        last_error=record.last_error,
        outdated=observation.outdated,
        orphaned=observation.orphaned,
        foreign=observation.foreign,
        attempts=record.attempts,
        next_attempt_at=record.next_attempt_at if record.attempts else None,
        root_cause=incarnation.root_cause if incarnation else None,
    )


def table_statuses(runtime: Runtime, tables: Sequence[str]) -> tuple[TableStatus, ...]:
    """The newest snapshot of each table."""
    catalog = runtime.catalog.open()
    with ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(lambda table: _table(runtime, catalog, table), tables))


def _table(runtime: Runtime, catalog: CatalogReader, name: str) -> TableStatus:
    try:
        snapshot = catalog.table(name).latest_snapshot()
    except CatalogError as error:
        return TableStatus(name, None, None, None, None, error.message)
    if snapshot is None:
        return TableStatus(name, None, None, None, None)
    return TableStatus(
        name,
        snapshot.id,
        snapshot.committed_at,
        _age(runtime, snapshot.committed_at),
        _age(runtime, snapshot.watermark),
    )


def _age(runtime: Runtime, at: datetime | None) -> float | None:
    return None if at is None else round((runtime.clock.now() - at).total_seconds(), 1)

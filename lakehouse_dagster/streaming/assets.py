"""Tables as Dagster assets that can be materialised, and the health check of each."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import dagster as dg

from lakehouse_dagster.streaming.events import (
    HEALTH_CHECK,
    HealthCheckKeys,
    as_result,
    evaluations_of,
    materialize_result,
)
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.materialise import materialise
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.partition_runs import chosen_partitions, materialise_partitions
from lakehouse_dagster.streaming.runtime import Runtime, dagster_run
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.supervise import observe_all

F = TypeVar("F", bound=Callable[..., Any])

CANCELLABLE = {"lakehouse/acts_on": "flink"}


def streaming_assets(
    runtime: Runtime, graph: AssetGraph, *, materialize_timeout_seconds: float
) -> list[dg.AssetsDefinition]:
    """One executable asset a job: materialising its tables makes sure that the job runs.

    Jobs that write the same table stand in one asset, because a table has one asset only.
    """
    return [
        _job_assets(runtime, graph, jobs, materialize_timeout_seconds)
        for jobs in _jobs_by_shared_tables(runtime)
    ]


def _jobs_by_shared_tables(runtime: Runtime) -> list[tuple[StreamingJob, ...]]:
    groups: list[tuple[set[str], tuple[StreamingJob, ...]]] = []
    met: set[str] = set()
    for job in runtime.jobs.values():
        if not job.sink_keys:
            continue
        tables = set(job.sink_keys)
        jobs: tuple[StreamingJob, ...] = (job,)
        if met.isdisjoint(tables):
            met |= tables
            groups.append((tables, jobs))
            continue
        met |= tables
        apart = []
        for others in groups:
            if others[0] & tables:
                tables, jobs = tables | others[0], (*others[1], *jobs)
            else:
                apart.append(others)
        groups = [*apart, (tables, jobs)]
    return [jobs for _, jobs in groups]


def _job_assets(
    runtime: Runtime, graph: AssetGraph, jobs: tuple[StreamingJob, ...], timeout_seconds: float
) -> dg.AssetsDefinition:
    tables = {graph.key(table): table for job in jobs for table in job.sink_keys}
    name = f"{dagster_name(runtime.lakehouse)}__{dagster_name(jobs[0].name)}"

    partitioned = set(tables.values()) & set(graph.partitions)

    @dg.multi_asset(
        name=name,
        specs=[
            # A run for partitions reports only those that got data.
            graph.tables[table].replace_attributes(skippable=True)
            if table in partitioned
            else graph.tables[table]
            for table in tables.values()
        ],
        can_subset=len(tables) > 1,
        backfill_policy=dg.BackfillPolicy.single_run() if partitioned else None,
        pool=name,
        op_tags=CANCELLABLE,
    )
    @_with_signature
    def streaming_job(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        chosen = {tables[key]: key for key in sorted(context.selected_asset_keys)}
        results: dict[str, dg.MaterializeResult[Any]] = {}
        if chosen_partitions(context):
            by_job = {
                job.name: [t for t in job.sink_keys if t in chosen and t in partitioned]
                for job in jobs
            }
            of_run = {job: of_job for job, of_job in by_job.items() if of_job}
            materialise_partitions(runtime, graph, context, of_run, timeout_seconds)
            chosen = {table: key for table, key in chosen.items() if table not in partitioned}
        for job in jobs:
            wanted = [table for table in job.sink_keys if table in chosen]
            if not wanted:
                continue
            outcome, materialised = materialise(
                runtime,
                job.name,
                wanted,
                timeout_seconds=timeout_seconds,
                holder=dagster_run(context.run.run_id),
                log=context.log,
            )
            for table in materialised:
                results[table.table] = materialize_result(
                    chosen[table.table], outcome, table, runtime.clock.now()
                )
        yield from results.values()

    return streaming_job


def _with_signature(function: F) -> F:
    """Keep the signature, which Dagster asks for sixteen times an op: a fifth of a load's time."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def health_check_keys(runtime: Runtime, graph: AssetGraph) -> HealthCheckKeys:
    """The check of each table that a job writes or compacts, by the job's name.

    Its name is ``job_health``; where several jobs write a table, each has a check of its own, and
    so has a compaction job.
    """
    writers = Counter(table for job in runtime.jobs.values() for table in job.sink_keys)
    return {
        job.name: tuple(
            dg.AssetCheckKey(
                graph.key(table),
                HEALTH_CHECK
                if writers[table] == 1 and table not in job.compacts
                else f"{HEALTH_CHECK}__{dagster_name(job.name)}",
            )
            for table in (*job.sink_keys, *job.compacts)
        )
        for job in runtime.jobs.values()
    }


def health_checks(runtime: Runtime, graph: AssetGraph) -> list[dg.AssetChecksDefinition]:
    """A check of every table that a job writes or compacts: whether the job is as it should be."""
    by_job = {job: keys for job, keys in health_check_keys(runtime, graph).items() if keys}
    return [_health_checks(runtime, by_job)] if by_job else []


def _health_checks(runtime: Runtime, by_job: HealthCheckKeys) -> dg.AssetChecksDefinition:
    """All of them in one op: the cluster is asked once, and Dagster loads many times faster."""

    @dg.multi_asset_check(
        name=f"{dagster_name(runtime.lakehouse)}_health",
        specs=[
            dg.AssetCheckSpec(
                key.name,
                asset=key.asset_key,
                description=f"The streaming job {job} is as it should be.",
            )
            for job, keys in by_job.items()
            for key in keys
        ],
        # Whoever materialises some tables runs the checks of those.
        can_subset=True,
    )
    def job_health(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        observations = {observation.name: observation for observation in observe_all(runtime)}
        selected = context.selected_asset_check_keys
        for job, keys in by_job.items():
            chosen = tuple(key for key in keys if key in selected)
            if chosen:
                record = runtime.memory.ensure(job)
                for evaluation in evaluations_of(runtime, {job: chosen}, observations[job], record):
                    yield as_result(evaluation)

    return job_health

"""Runs that materialise chosen partitions: they may start a job, and never touch what one writes.

A streaming job cannot be told which partitions to write. So a run for some of them starts the job
if it does not run, and reports those among them that got data meanwhile; the others are reported
once they are complete. Of a job that runs, nothing can be had by a run: recomputing what it wrote
is a correction.
"""

from collections.abc import Mapping, Sequence

import dagster as dg

from lakehouse_dagster.listing import some
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.materialise import materialise
from lakehouse_dagster.streaming.observe import ObservedState
from lakehouse_dagster.streaming.partition_events import partition_materialization
from lakehouse_dagster.streaming.runtime import Runtime, dagster_run
from lakehouse_dagster.streaming.supervise import observe_all

UP = (
    ObservedState.SUBMITTING,
    ObservedState.STARTING,
    ObservedState.RUNNING,
    ObservedState.RESTARTING,
    ObservedState.DEGRADED,
    ObservedState.STOPPING,
)


def chosen_partitions(context: dg.AssetExecutionContext) -> tuple[str, ...]:
    """The partition keys of this run; none where it is not about partitions."""
    if context.has_partition_key or context.has_partition_key_range:
        return tuple(map(str, context.partition_keys))
    return ()


def materialise_partitions(
    runtime: Runtime,
    graph: AssetGraph,
    context: dg.AssetExecutionContext,
    tables_by_job: Mapping[str, Sequence[str]],
    timeout_seconds: float,
) -> None:
    """Start the jobs of these tables, unless they run; report the partitions that got data.

    Raises:
        dg.Failure: one of the jobs runs already; nothing was done.
    """
    to_start = [job for job in tables_by_job if _may_start(runtime, context, job)]
    chosen = chosen_partitions(context)
    for job in to_start:
        _, materialised = materialise(
            runtime,
            job,
            tables_by_job[job],
            timeout_seconds=timeout_seconds,
            holder=dagster_run(context.run.run_id),
            log=context.log,
        )
        for table in materialised:
            keys = graph.partitions.get(table.table)
            changed = table.event.partitions if table.event is not None else ()
            if keys is None:
                continue
            found = {keys.key_of(partition): snapshot for partition, snapshot in changed}
            for key in (key for key in chosen if key in found):
                context.log_event(
                    partition_materialization(graph.key(table.table), keys, key, found[key])
                )
            waiting = [key for key in chosen if key not in found]
            if waiting:
                context.log.info(
                    "%s got no data yet in %s: its job runs now, and a partition is reported once "
                    "its window is over or it has come to rest.",
                    table.table,
                    some(waiting),
                )


def _may_start(runtime: Runtime, context: dg.AssetExecutionContext, job: str) -> bool:
    """Whether the job is to be started; False if that was done since this run was asked for."""
    observation = next(o for o in observe_all(runtime) if o.name == job)
    if observation.observed not in UP:
        return True
    record = context.instance.get_run_record_by_id(context.run.run_id)
    incarnation = observation.incarnation
    # The other runs of a backfill were asked for when the first had not started the job yet.
    asked_at = record.create_timestamp if record is not None else None
    if asked_at is not None and incarnation is not None and incarnation.recorded_at >= asked_at:
        context.log.info("The job %s was started meanwhile: nothing is left to do.", job)
        return False
    raise dg.Failure(
        f"The streaming job {job} runs, and writes these partitions itself: they cannot be "
        "materialised by hand. Nothing was done. Each partition is reported once its window is "
        "over or it has come to rest. To recompute what the job wrote, stop it and write the "
        "partitions in a batch job: this version of lakehouse-dagster has no corrections yet.",
        metadata={"streaming_job": job, "observed": observation.observed.value},
        allow_retries=False,
    )

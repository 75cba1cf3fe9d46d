"""The Dagster face of upkeep: restore points that nobody needs go, and so does old history."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from lakehouse_dagster.streaming.definitions import one_op_job
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.retention import Tidied, tidy
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import HistoryPolicy

EVERY_HOUR = "23 * * * *"


class Tidy(dg.Config):
    """Whose restore points to look at."""

    jobs: list[str] = Field(
        default_factory=list, description="Names of streaming jobs; none for all."
    )
    dry_run: bool = Field(default=False, description="Only say what would be deleted.")


def upkeep(
    runtime: Runtime, *, status: dg.DefaultScheduleStatus
) -> tuple[dg.JobDefinition, dg.ScheduleDefinition]:
    """The job that deletes superseded restore points and old history, and its schedule."""
    prefix = dagster_name(runtime.lakehouse)

    @dg.op(name=f"{prefix}_tidy")
    def tidy_restore_points(context: dg.OpExecutionContext, config: Tidy) -> None:
        names = config.jobs or sorted(runtime.jobs)
        done = tidy(runtime, names, dry_run=config.dry_run, log=context.log)
        context.add_output_metadata({"restore_points": dg.MetadataValue.md(as_markdown(done))})
        if not config.dry_run:
            context.log.info("%d old incarnations forgotten.", prune_history(runtime))

    job = one_op_job(
        f"{prefix}_tidy_restore_points",
        tidy_restore_points,
        "Delete savepoints and checkpoints that newer ones have superseded for longer than a "
        "grace, and forget incarnations of long ago.",
    )
    schedule = dg.ScheduleDefinition(
        name=f"{prefix}_tidy", job=job, cron_schedule=EVERY_HOUR, default_status=status
    )
    return job, schedule


def prune_history(runtime: Runtime) -> int:
    """Forget incarnations beyond what the policy keeps; how many they were."""
    policy = HistoryPolicy()
    before = runtime.clock.now() - policy.keep_for
    return runtime.memory.prune(policy.keep_incarnations, before)


def as_markdown(done: Sequence[Tidied]) -> str:
    """What was deleted, by job."""
    lines = []
    for job in done:
        if job.skipped:
            lines.append(f"- **{job.job}**: {job.skipped}")
        lines += [f"- **{job.job}**: {point.path} ({point.reason})" for point in job.deleted]
    return "\n".join(lines) or "Nothing is superseded."

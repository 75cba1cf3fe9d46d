"""The Dagster jobs and schedules of maintenance; the sensor is in ``sensor.py``; thin."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.listing import some, tables_meant
from lakehouse_dagster.maintenance.actions import ActionKind, describe
from lakehouse_dagster.maintenance.budget import COMPACTIONS
from lakehouse_dagster.maintenance.checks import maintenance_checks
from lakehouse_dagster.maintenance.events import in_words, line, observation
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.sensor import maintenance_sensor
from lakehouse_dagster.maintenance.spec import (
    MaintenancePolicy,
    TablePolicy,
    without_windows,
)
from lakehouse_dagster.streaming.assets import CANCELLABLE
from lakehouse_dagster.streaming.definitions import one_op_job
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.names import dagster_name, short_hash
from lakehouse_dagster.streaming.runtime import dagster_run
from lakehouse_dagster.streaming.sensors import Figures

if TYPE_CHECKING:
    # SQLAlchemy comes with these: loading definitions does not wait for it.
    from lakehouse_dagster.maintenance.maintain import Maintained
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

EXPIRY = frozenset(
    {
        ActionKind.EXPIRE_SNAPSHOTS,
        ActionKind.EXPIRE_CHANGELOGS,
        ActionKind.EXPIRE_PARTITIONS,
        ActionKind.EXPIRE_TAGS,
    }
)
CLEAN_UP = frozenset(
    {ActionKind.FIND_ORPHANS, ActionKind.REMOVE_ORPHANS, ActionKind.COMPACT_MANIFESTS}
)
_SAID_OF_TABLES = 20
_SECONDS_FOR_FIGURES = 5.0


class Maintain(dg.Config):
    """Which tables to look at; what is due by their policy is done.

    Defaults are no factories: Dagster's launchpad shows them only so.
    """

    tables: list[str] = Field(default=[], description="Tables, such as ods.orders; none for all.")


class Compact(dg.Config):
    """Which tables to compact in full."""

    tables: list[str] = Field(
        default=[],
        description="Tables, such as ods.orders. None, with only_if_due, for all.",
    )
    partitions: list[dict[str, str]] = Field(
        default=[],
        description='Only these partitions, such as {"dt": "20260101"}; none for all.',
    )
    only_if_due: bool = Field(
        default=False, description="Compact only what its policy says is due, fully or not."
    )


def maintenance(
    keeper: Keeper,
    policy: MaintenancePolicy,
    graph: AssetGraph,
    *,
    status: dg.DefaultSensorStatus,
) -> dg.Definitions:
    """Jobs, sensor, schedules and checks of the tables that jobs of ours write or read."""
    tables = maintained_tables(keeper, graph)
    jobs = _Jobs(keeper, policy, graph, tables)
    compact, expire = jobs.compact(), jobs.due("expire", EXPIRY, "Let what is old go, as due")
    clean_up = jobs.due("clean_up", CLEAN_UP, "Look for files that nobody knows, and remove them")
    maintain = jobs.due("maintain", frozenset(ActionKind), "Do what is due")
    running = dg.DefaultScheduleStatus(status.value)
    return dg.Definitions(
        jobs=[compact, expire, clean_up, maintain],
        sensors=[maintenance_sensor(keeper, policy, graph, tables, maintain, status=status)],
        schedules=[
            *_schedules(compact, policy, tables, _cron_of_compaction, running, only_if_due=True),
            *_schedules(expire, policy, tables, _cron_of_expiry, running),
            *_schedules(clean_up, policy, tables, _cron_of_clean_up, running),
        ],
        asset_checks=maintenance_checks(keeper, policy, graph, tables),
    )


def figures_of_tables(keeper: Keeper) -> Figures:
    """For progress events: the figures of the tables that moved, as far as time allows.

    Not how many partitions there are: what an event calls ``partitions`` are those that changed.
    """

    def figures(tables: Sequence[str]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        over = keeper.runtime.clock.deadline(_SECONDS_FOR_FIGURES)
        for table in tables:
            try:
                facts = keeper.facts(table)
            except LakehouseError:
                continue  # the event itself says what is wrong with it
            if facts.problem is None:
                found[table] = {n: v for n, v in facts.figures.items() if n != "partitions"}
            if over():
                break
        return found

    return figures


def maintained_tables(keeper: Keeper, graph: AssetGraph) -> tuple[str, ...]:
    """The tables of the graph that jobs of ours write or read."""
    jobs = keeper.runtime.jobs.values()
    named = {t.key for job in jobs for t in (*job.definition.sinks, *job.definition.reads)}
    return tuple(table for table in graph.tables if table in named)


@dataclass(frozen=True)
class _Jobs:
    keeper: Keeper
    policy: MaintenancePolicy
    graph: AssetGraph
    tables: tuple[str, ...]

    @property
    def _prefix(self) -> str:
        return dagster_name(self.keeper.runtime.lakehouse)

    @property
    def _pool(self) -> str:
        """A pool belongs to an op, whose tables are known only when it runs: so it is of all.

        It limits runs where the instance says so; that two never act on one table is held by
        leases.
        """
        return f"{self._prefix}_maintenance"

    def due(self, name: str, kinds: frozenset[ActionKind], description: str) -> dg.JobDefinition:
        """The job that does what of these kinds is due."""

        @dg.op(name=f"{self._prefix}_{name}_tables", tags=CANCELLABLE, pool=self._pool)
        def act(context: dg.OpExecutionContext, config: Maintain) -> None:
            # Whoever starts the job has chosen the time: windows are for the sensor.
            policy = self.policy if name == "maintain" else without_windows(self.policy)
            self._do_what_is_due(context, config.tables, policy, kinds)

        job = f"{self._prefix}_{name}"
        return one_op_job(job, act, f"{description}, of chosen tables or of all.")

    def compact(self) -> dg.JobDefinition:
        """The job that compacts chosen tables in full."""

        @dg.op(name=f"{self._prefix}_compact_tables", tags=CANCELLABLE, pool=self._pool)
        def act(context: dg.OpExecutionContext, config: Compact) -> None:
            from lakehouse_dagster.maintenance.maintain import compact_now

            if config.only_if_due:
                policy = without_windows(self.policy)
                self._do_what_is_due(context, config.tables, policy, frozenset(COMPACTIONS))
                return
            chosen = self._known(config.tables)
            if not chosen:
                raise dg.Failure(
                    "No table was named. There is no way to say all: name them, or compact "
                    "only_if_due.",
                    metadata={"tables": ", ".join(self.tables)},
                    allow_retries=False,
                )
            self._told(
                context,
                lambda holder: compact_now(
                    self.keeper,
                    self.policy,
                    chosen,
                    partitions=config.partitions,
                    holder=holder,
                    log=context.log,
                ),
            )

        return one_op_job(
            f"{self._prefix}_compact",
            act,
            "Compact chosen tables in full, now, or only what is due.",
        )

    def _do_what_is_due(
        self,
        context: dg.OpExecutionContext,
        tables: Sequence[str],
        policy: MaintenancePolicy,
        kinds: frozenset[ActionKind],
    ) -> None:
        """Of these kinds; on all tables where none is named."""
        from lakehouse_dagster.maintenance.maintain import maintain_in_rounds

        chosen = self._known(tables) or self.tables
        self._told(
            context,
            lambda holder: maintain_in_rounds(
                self.keeper, policy, chosen, holder=holder, kinds=kinds, log=context.log
            ),
        )

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in self.tables]
        if unknown:
            raise dg.Failure(
                f"No job writes or reads {some(unknown)}. {tables_meant(unknown[0], self.tables)}",
                metadata={"tables": ", ".join(self.tables)},
                allow_retries=False,
            )
        return tuple(names)

    def _told(self, context: dg.OpExecutionContext, act: Callable[[str], "Maintained"]) -> None:
        """Act; show every action on its asset, also of a run that is cancelled; fail if one did."""
        holder, began = dagster_run(context.run_id), self.keeper.runtime.clock.now()
        # What a dead run left behind is brought to its end by this one, and told of here.
        left = {record.id for record in self.keeper.left_behind()}
        try:
            done = act(holder)
        finally:
            records = [
                record
                for record in self.keeper.actions.ended_since(began)
                if record.holder == holder or record.id in left
            ]
            for record in records:
                if record.table_name in self.graph.tables:
                    context.log_event(observation(self.graph.key(record.table_name), record))
        _summary(context, done)


def _summary(context: dg.OpExecutionContext, done: "Maintained") -> None:
    for record in done.done:
        context.log.info("%s", line(record))
    for postponed in done.postponed:
        context.log.info("Later: %s %s", describe(postponed.action), postponed.reason)
    for decision in done.decisions[:_SAID_OF_TABLES]:
        for why in decision.held_back:
            context.log.info("%s: %s", decision.table, why)
    context.add_output_metadata(
        {"actions": dg.MetadataValue.md(_as_table(done.done)), "postponed": len(done.postponed)}
    )
    failed = {r.table_name: r.error or r.state.value for r in done.done if _bad(r)}
    failed |= {", ".join(f.tables): str(f.error) for f in done.failures}
    if failed:
        raise dg.Failure(
            "\n".join(f"{table}: {why}" for table, why in failed.items()),
            metadata=failed,
            allow_retries=False,
        )


def _bad(record: "ActionRecord") -> bool:
    return record.state.value != "done"


def _as_table(records: Sequence["ActionRecord"]) -> str:
    if not records:
        return "Nothing was due."
    lines = ["| table | action | ended | changed |", "|---|---|---|---|"]
    lines += [f"| {r.table_name} | {r.kind} | {r.state.value} | {in_words(r)} |" for r in records]
    return "\n".join(lines)


def _schedules(
    job: dg.JobDefinition,
    policy: MaintenancePolicy,
    tables: Sequence[str],
    cron_of: Callable[[TablePolicy], str | None],
    status: dg.DefaultScheduleStatus,
    **config: bool,
) -> list[dg.ScheduleDefinition]:
    """One schedule for each cron expression, with the tables whose policy has it."""
    by_cron: dict[str, list[str]] = {}
    for table in tables:
        cron = cron_of(policy.for_table(table))
        if cron is not None:
            by_cron.setdefault(cron, []).append(table)
    return [
        dg.ScheduleDefinition(
            name=job.name if len(by_cron) == 1 else f"{job.name}_{short_hash(cron)}",
            job=job,
            cron_schedule=cron,
            execution_timezone="UTC",
            run_config={"ops": {f"{job.name}_tables": {"config": {"tables": of_cron, **config}}}},
            default_status=status,
            description=f"For {len(of_cron)} tables, as their policy says.",
        )
        for cron, of_cron in by_cron.items()
    ]


def _cron_of_compaction(policy: TablePolicy) -> str | None:
    return policy.compact.cron if policy.compact is not None else None


def _cron_of_expiry(policy: TablePolicy) -> str | None:
    specs = (policy.expire, policy.changelogs, policy.partitions)
    return next((spec.cron for spec in specs if spec is not None and spec.cron), None)


def _cron_of_clean_up(policy: TablePolicy) -> str | None:
    return policy.orphans.cron if policy.orphans is not None else None

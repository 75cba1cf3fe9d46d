"""Checks of tables: fresh enough, not too far behind, written by nobody else."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import dagster as dg
from pydantic import Field

from lakehouse_dagster.errors import CatalogError, FlinkError
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.streaming.checks import CheckOutcome, CheckPolicy, behind, freshness
from lakehouse_dagster.streaming.cursor import Cursor, in_turn
from lakehouse_dagster.streaming.events import as_evaluation, as_result
from lakehouse_dagster.streaming.foreign_commits import ForeignCommits, look_for_foreign_commits
from lakehouse_dagster.streaming.graph import AssetGraph
from lakehouse_dagster.streaming.lag import JobLag, lag_now
from lakehouse_dagster.streaming.names import dagster_name
from lakehouse_dagster.streaming.partition_events import outside_checks
from lakehouse_dagster.streaming.runtime import Runtime

FOREIGN_COMMITS = "foreign_commits"
DEFAULT = "default"
TABLES_PER_TICK = 50
TOLD_AGAIN_AFTER = timedelta(hours=1)
"""A result that stays the same is told again after this time, so that its figures are not old."""

Evaluated = tuple[str, CheckOutcome]


class TableCheckCursor(Cursor):
    """Which tables come next, and what was last told of each check."""

    rotation: int = 0
    told: dict[str, tuple[bool, datetime]] = Field(default_factory=dict)


def policy_of(policies: Mapping[str, CheckPolicy], table: str) -> CheckPolicy | None:
    """The bounds of one table: its own, else of the first pattern that fits, else the default."""
    for pattern, policy in policies.items():
        if pattern != DEFAULT and fnmatchcase(table, pattern):
            return policy
    return policies.get(DEFAULT)


def checked_tables(runtime: Runtime, policies: Mapping[str, CheckPolicy]) -> dict[str, CheckPolicy]:
    """The tables that our jobs write and that have bounds, with these."""
    written = dict.fromkeys(table for job in runtime.jobs.values() for table in job.sink_keys)
    found = {table: policy_of(policies, table) for table in written}
    return {table: policy for table, policy in found.items() if policy is not None}


def evaluate(runtime: Runtime, table: str, policy: CheckPolicy) -> list[Evaluated]:
    """Freshness and lag of one table, now."""
    now = runtime.clock.now()
    newest, lag = _newest(runtime, table), _lag(runtime, table)
    return [
        ("freshness", freshness(newest, lag, policy, now)),
        ("lag", behind(newest, lag, policy, now)),
    ]


def table_checks(
    runtime: Runtime, graph: AssetGraph, policies: Mapping[str, CheckPolicy]
) -> list[dg.AssetChecksDefinition]:
    """The checks that can also be run by hand."""
    bounded = [
        _bounds_check(runtime, graph.key(table), table, policy)
        for table, policy in checked_tables(runtime, policies).items()
    ]
    written = dict.fromkeys(table for job in runtime.jobs.values() for table in job.sink_keys)
    return [
        *bounded,
        *([_foreign_checks(runtime, {graph.key(t): t for t in written})] if written else []),
        *outside_checks(runtime, graph),
    ]


def table_check_sensor(
    runtime: Runtime,
    graph: AssetGraph,
    policies: Mapping[str, CheckPolicy],
    *,
    status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition | None:
    """The sensor that evaluates freshness and lag; None where no table has bounds."""
    tables = checked_tables(runtime, policies)
    if not tables:
        return None

    @dg.sensor(
        name=f"{dagster_name(runtime.lakehouse)}_table_checks",
        minimum_interval_seconds=30,
        default_status=status,
        description="Evaluates freshness and lag of tables, and tells what changed.",
    )
    def check_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = TableCheckCursor.parse(context.cursor)
        now = runtime.clock.now()
        told = dict(cursor.told)
        events: list[dg.AssetCheckEvaluation] = []
        turn = in_turn(list(tables), cursor.rotation, TABLES_PER_TICK)
        for table in turn:
            for name, outcome in evaluate(runtime, table, tables[table]):
                passed, at = told.get(f"{table}/{name}", (None, now))
                if outcome.passed is passed and now - at < TOLD_AGAIN_AFTER:
                    continue
                told[f"{table}/{name}"] = (outcome.passed, now)
                events.append(as_evaluation(graph.key(table), name, outcome))
        failed = sum(not passed for passed, _ in told.values())
        return dg.SensorResult(
            skip_reason=f"{len(turn)} of {len(tables)} tables looked at; {failed} checks fail.",
            cursor=TableCheckCursor(rotation=cursor.rotation + 1, told=told).model_dump_json(),
            asset_events=events,
        )

    return check_tables


def foreign_evaluation(key: dg.AssetKey, found: ForeignCommits) -> dg.AssetCheckEvaluation:
    """The result of looking at who committed."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=FOREIGN_COMMITS,
        passed=found.passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=str(found),
        metadata={"users": ", ".join(found.users)} if found.users else {},
    )


def _newest(runtime: Runtime, table: str) -> Snapshot | None:
    try:
        return runtime.catalog.open().table(table).latest_snapshot()
    except CatalogError:
        return None


def _lag(runtime: Runtime, table: str) -> JobLag | None:
    """How far the job that fills the table is behind; of several, the one furthest behind."""
    latest = runtime.memory.state().latest
    lags: list[JobLag] = []
    for job in runtime.jobs.values():
        incarnation = latest.get(job.name)
        if table not in job.sink_keys or incarnation is None:
            continue
        try:
            lag = lag_now(runtime, job, incarnation, job_manager=runtime.watcher)
        except (CatalogError, FlinkError):
            lag = None
        if lag is not None:
            lags.append(lag)
    return max(lags, key=lambda lag: lag.seconds_behind or 0.0, default=None)


def _bounds_check(
    runtime: Runtime, key: dg.AssetKey, table: str, policy: CheckPolicy
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"{dagster_name(runtime.lakehouse)}_bounds__{dagster_name(table)}",
        specs=[
            dg.AssetCheckSpec(
                "freshness", asset=key, description="The newest snapshot is young enough."
            ),
            dg.AssetCheckSpec(
                "lag", asset=key, description="Its job is not too far behind what it reads."
            ),
        ],
    )
    def within_bounds() -> Iterator[dg.AssetCheckResult]:
        for name, outcome in evaluate(runtime, table, policy):
            yield as_result(as_evaluation(key, name, outcome))

    return within_bounds


def _foreign_checks(
    runtime: Runtime, tables: Mapping[dg.AssetKey, str]
) -> dg.AssetChecksDefinition:
    """All of them in one op: a thousand ops are seconds whenever Dagster loads."""

    @dg.multi_asset_check(
        name=f"{dagster_name(runtime.lakehouse)}_{FOREIGN_COMMITS}",
        specs=[
            dg.AssetCheckSpec(
                FOREIGN_COMMITS,
                asset=key,
                description="Nobody but the jobs of this project writes the table.",
            )
            for key in tables
        ],
        can_subset=True,
    )
    def foreign_commits(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        failed: dict[str, CatalogError] = {}
        for check in sorted(context.selected_asset_check_keys):
            table = tables[check.asset_key]
            try:
                found = look_for_foreign_commits(runtime, table)
            except CatalogError as error:  # of one table, which must not hide the others' results
                failed[table] = error
                continue
            yield as_result(foreign_evaluation(check.asset_key, found))
        if failed:
            raise dg.Failure("\n".join(f"{table}: {error}" for table, error in failed.items()))

    return foreign_commits

"""A code location whose sensors do what ours rely on; loaded by a real Dagster daemon."""

import dagster as dg

DAYS = dg.StaticPartitionsDefinition(["monday", "tuesday"])
ORDERS, PAYMENTS = dg.AssetKey(["lake", "orders"]), dg.AssetKey(["lake", "payments"])


@dg.multi_asset(specs=[dg.AssetSpec(ORDERS), dg.AssetSpec(PAYMENTS)], can_subset=True)
def whole(context: dg.AssetExecutionContext):
    for key in context.selected_asset_keys:
        yield dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion("7"))


@dg.multi_asset(
    specs=[dg.AssetSpec("by_day"), dg.AssetSpec("by_day_too")],
    can_subset=True,
    partitions_def=DAYS,
)
def partitioned(context: dg.AssetExecutionContext):
    for key in context.selected_asset_keys:
        yield dg.MaterializeResult(asset_key=key)


@dg.multi_asset_check(specs=[dg.AssetCheckSpec("job_health", asset=ORDERS)])
def health():
    yield dg.AssetCheckResult(asset_key=ORDERS, check_name="job_health", passed=True)


@dg.sensor(default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=1)
def reports(context: dg.SensorEvaluationContext):
    ticks = int(context.cursor or 0) + 1
    return dg.SensorResult(
        skip_reason=f"told {ticks} times",
        cursor=str(ticks),
        asset_events=[
            dg.AssetMaterialization(ORDERS, tags={"dagster/data_version": str(100 + ticks)}),
            dg.AssetMaterialization("by_day", partition="monday", metadata={"rows": ticks}),
            dg.AssetCheckEvaluation(asset_key=ORDERS, check_name="job_health", passed=False),
        ],
    )


@dg.op
def fail():
    raise dg.Failure("on purpose", allow_retries=False)


@dg.job(executor_def=dg.in_process_executor)
def failing():
    fail()


@dg.sensor(job=failing, default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=1)
def asks_with_the_same_key(context: dg.SensorEvaluationContext):
    ticks = int(context.cursor or 0) + 1
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key="same")], cursor=str(ticks))


defs = dg.Definitions(
    assets=[whole, partitioned],
    asset_checks=[health],
    jobs=[failing],
    sensors=[reports, asks_with_the_same_key],
)

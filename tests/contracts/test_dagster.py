"""What we rely on in Dagster; each test fails when a version of Dagster behaves otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from tests.contracts.location import ORDERS, PAYMENTS, whole

HERE = Path(__file__).parent


def command(name: str, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name(name)), *arguments]


def wait_for(what: Callable[[], bool], seconds: float = 180) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "too late"
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started, and what it started."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """The instance of a real daemon that has ticked the sensors of ``location.py`` a few times."""
    home = tmp_path_factory.mktemp("dagster")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    process = subprocess.Popen(
        command("dagster-daemon", "run", "--python-file", str(HERE / "location.py")),
        env={**os.environ, "DAGSTER_HOME": str(home)},
        cwd=home,
        stdout=(home / "daemon.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with dg.DagsterInstance.from_config(str(home)) as instance:
        try:
            wait_for(lambda: process.poll() is None and ticks(instance, "reports") >= 3)
            wait_for(lambda: ticks(instance, "asks_with_the_same_key") >= 3)
            wait_for(lambda: any(run.is_finished for run in instance.get_runs()))
            asked = ticks(instance, "asks_with_the_same_key")
            wait_for(lambda: ticks(instance, "asks_with_the_same_key") >= asked + 2)
        finally:
            end(process)
        yield instance


def ticks(instance: dg.DagsterInstance, sensor: str) -> int:
    """How often a sensor of ours was evaluated: it counts in its own cursor."""
    for state in instance.all_instigator_state():
        if state.instigator_name == sensor:
            return int(getattr(state.instigator_data, "cursor", None) or 0)
    return 0


# Sensors


@pytest.mark.dagster
def test_materializations_from_a_sensor_are_recorded_on_executable_multi_assets(
    daemon: dg.DagsterInstance,
) -> None:
    records = daemon.fetch_materializations(ORDERS, limit=100, ascending=True).records
    versions = [(r.asset_materialization.tags or {})["dagster/data_version"] for r in records]
    assert versions[:3] == ["101", "102", "103"]
    assert {record.run_id for record in records} == {""}


@pytest.mark.dagster
def test_materializations_from_a_sensor_count_for_their_partition(
    daemon: dg.DagsterInstance,
) -> None:
    assert daemon.get_materialized_partitions(dg.AssetKey("by_day")) == {"monday"}


@pytest.mark.dagster
def test_check_evaluations_from_a_sensor_are_recorded(daemon: dg.DagsterInstance) -> None:
    (record, *_) = daemon.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(ORDERS, "job_health"), limit=1
    )
    assert record.event is not None
    assert record.event.dagster_event is not None
    assert record.event.dagster_event.asset_check_evaluation_data.passed is False


@pytest.mark.dagster
def test_a_tick_with_events_only_is_skipped_with_our_reason(daemon: dg.DagsterInstance) -> None:
    (state,) = [s for s in daemon.all_instigator_state() if s.instigator_name == "reports"]
    found = daemon.get_ticks(state.instigator_origin_id, state.selector_id)
    done = [tick for tick in found if tick.is_completed]
    assert {tick.status.value for tick in done} == {"SKIPPED"}
    assert {"told 1 times", "told 2 times"} <= {tick.skip_reason for tick in done}


@pytest.mark.dagster
def test_a_run_key_whose_run_failed_is_not_launched_again(daemon: dg.DagsterInstance) -> None:
    assert ticks(daemon, "asks_with_the_same_key") >= 4
    (run,) = daemon.get_runs()
    assert run.status is DagsterRunStatus.FAILURE
    assert run.tags["dagster/run_key"] == "same"


def test_a_reason_to_skip_and_a_request_cannot_go_together() -> None:
    with pytest.raises(Exception, match="skip reason"):
        dg.SensorResult(skip_reason="why", run_requests=[dg.RunRequest()])


# Events and versions


def test_the_data_version_of_a_result_is_the_tag_that_sensors_write() -> None:
    instance = dg.DagsterInstance.ephemeral()
    assert dg.materialize([whole], instance=instance, selection=[ORDERS]).success
    (event,) = instance.fetch_materializations(ORDERS, limit=9).records
    assert event.asset_materialization is not None
    assert (event.asset_materialization.tags or {})["dagster/data_version"] == "7"
    assert instance.fetch_materializations(PAYMENTS, limit=9).records == []


def test_the_newest_event_wins_whoever_wrote_it() -> None:
    instance = dg.DagsterInstance.ephemeral()
    for version in ("3", "4"):
        instance.report_runless_asset_event(
            dg.AssetMaterialization("a", tags={"dagster/data_version": version})
        )
    latest = instance.get_latest_materialization_event(dg.AssetKey("a"))
    assert latest is not None
    assert latest.asset_materialization is not None
    assert (latest.asset_materialization.tags or {})["dagster/data_version"] == "4"


# Partitions


def test_a_run_for_a_range_may_report_only_some_of_its_partitions() -> None:
    """Why a run that starts a job claims nothing of partitions without data."""
    spec = dg.AssetSpec(
        "a", skippable=True, partitions_def=dg.DailyPartitionsDefinition("2026-01-01")
    )

    def report(context: dg.AssetExecutionContext) -> Any:
        key = context.partition_keys[1]
        tags = {"dagster/data_version": "7"}
        context.log_event(dg.AssetMaterialization("a", partition=key, tags=tags))
        yield from ()

    report.__annotations__["context"] = dg.AssetExecutionContext
    policy = dg.BackfillPolicy.single_run()
    asset = dg.multi_asset(name="m", specs=[spec], backfill_policy=policy)(report)
    instance = dg.DagsterInstance.ephemeral()
    tags = {
        "dagster/asset_partition_range_start": "2026-01-01",
        "dagster/asset_partition_range_end": "2026-01-03",
    }
    assert dg.materialize([asset], instance=instance, tags=tags).success
    (event,) = instance.fetch_materializations(dg.AssetKey("a"), limit=9).records
    assert event.asset_materialization is not None
    assert event.partition_key == "2026-01-02"
    assert event.asset_materialization.tags == {"dagster/data_version": "7"}
    assert instance.get_materialized_partitions(dg.AssetKey("a")) == {"2026-01-02"}


def test_partitions_of_different_kinds_need_a_mapping_to_depend_on_each_other() -> None:
    """Why ``streaming/partitioned_assets.py`` gives one."""
    days = dg.DailyPartitionsDefinition("2026-01-01")
    regions = dg.StaticPartitionsDefinition(["eu", "us"])

    def loads(mapping: dg.PartitionMapping | None) -> None:
        above = dg.AssetSpec("above", partitions_def=regions)
        dep = dg.AssetDep("above", partition_mapping=mapping)
        below = dg.AssetSpec("below", partitions_def=days, deps=[dep])
        assets = [
            dg.multi_asset(name=s.key.path[-1], specs=[s])(lambda: None) for s in (above, below)
        ]
        dg.Definitions.validate_loadable(dg.Definitions(assets=assets))

    loads(dg.AllPartitionMapping())
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Invalid partition mapping"):
        loads(None)


@pytest.mark.parametrize("refused", ["a...b", "a\nb", "a\tb"])
def test_some_texts_are_no_partition_keys(refused: str) -> None:
    dg.StaticPartitionsDefinition(["a/b=c", "a b", "%7C", "ü", "x" * 255])
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        dg.StaticPartitionsDefinition([refused])


# Cancelling


def test_an_interruption_is_no_exception() -> None:
    assert issubclass(dg.DagsterExecutionInterruptedError, BaseException)
    assert not issubclass(dg.DagsterExecutionInterruptedError, Exception)


@pytest.mark.dagster
def test_an_interruption_reaches_a_blocking_wait_and_lets_it_clean_up(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    process = subprocess.Popen(
        command("dagster", "job", "execute", "-f", str(HERE / "waiting.py"), "-j", "waiting"),
        env={**os.environ, "DAGSTER_HOME": "", "SEEN": str(seen), "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: seen.exists() and seen.read_text() == "waiting")
        os.kill(process.pid, signal.SIGTERM)
        process.wait(120)
    finally:
        end(process)
    assert seen.read_text() == "DagsterExecutionInterruptedError"


# Names, keys, cycles


def _op(name: str) -> object:
    return dg.multi_asset(name=name, specs=[dg.AssetSpec("x")])(lambda: None)


def _job(name: str) -> object:
    return dg.GraphDefinition("g").to_job(name=name)


def _sensor(name: str) -> object:
    return dg.SensorDefinition(name=name, evaluation_fn=lambda context: None)


def _group(name: str) -> object:
    return dg.AssetSpec("x", group_name=name)


@pytest.mark.parametrize("name", ["a-b", "a.b", "a b", "ä"])
@pytest.mark.parametrize("make", [_op, _job, _sensor, _group])
def test_names_refuse_all_but_letters_digits_and_underscores(
    make: Callable[[str], object], name: str
) -> None:
    make("a_1")
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        make(name)


@pytest.mark.parametrize("name", ["class", "config"])
@pytest.mark.parametrize("make", [_op, _job, _sensor])
def test_some_words_are_no_names(make: Callable[[str], object], name: str) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        make(name)


def test_a_dependency_may_have_dots_in_its_key() -> None:
    """Topics have them; Dagster before 1.13.4 refused the whole asset."""
    spec = dg.AssetSpec(["ods", "a"], deps=[["kafka", "shop.orders"]])
    asset = dg.multi_asset(name="m", specs=[spec])(lambda: None)
    graph = dg.Definitions(assets=[asset]).resolve_asset_graph()
    parents = graph.get(dg.AssetKey(["ods", "a"])).parent_keys
    assert parents == {dg.AssetKey(["kafka", "shop.orders"])}


def test_two_keys_that_differ_in_a_hyphen_cannot_stand_in_one_asset() -> None:
    """Why ``streaming/graph.py`` gives one of two such tables another key."""
    specs = [dg.AssetSpec(["o", "a-b"]), dg.AssetSpec(["o", "a_b"])]
    with pytest.raises(KeyError):
        dg.multi_asset(name="m", specs=specs)(lambda: None)


def test_dependencies_with_like_names_are_all_kept() -> None:
    deps = [dg.AssetKey(["ods", "app_x"]), dg.AssetKey(["ods_app", "x"])]
    asset = dg.multi_asset(name="m", specs=[dg.AssetSpec("a", deps=deps)])(lambda: None)
    graph = dg.Definitions(assets=[asset]).resolve_asset_graph()
    assert graph.get(dg.AssetKey("a")).parent_keys == set(deps)


def test_a_cycle_fails_the_whole_location() -> None:
    specs = [dg.AssetSpec("a", deps=["b"]), dg.AssetSpec("b", deps=["a"])]
    assets = [dg.multi_asset(name=s.key.path[-1], specs=[s])(lambda: None) for s in specs]
    with pytest.raises(Exception, match=r"(?i)circular|cycle"):
        dg.Definitions.validate_loadable(dg.Definitions(assets=assets))


def test_a_table_that_depends_on_itself_fails_to_load() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="depends on itself"):
        dg.multi_asset(name="m", specs=[dg.AssetSpec("a", deps=["a"])])(lambda: None)


def test_any_object_may_be_a_resource() -> None:
    """The command finds the lakehouse so."""
    thing = object()
    assert dg.Definitions(resources={"lake": thing}).resources == {"lake": thing}


# Components


class _Written(dg.Model, dg.Resolvable):
    ours: Annotated[
        str,
        dg.Resolver(lambda context, raw: raw, model_field_type=str, inject_before_resolve=False),
    ]
    dagsters: str


def test_only_a_resolver_of_our_own_sees_text_as_it_was_written() -> None:
    """Why the component reads every text itself (components/templates.py)."""
    written = _Written.resolve_from_yaml('ours: "20260101"\ndagsters: "x"')
    assert written.ours == "20260101"
    raw = _Written.resolve_from_yaml('ours: "{{ env.NOBODY_SETS_THIS }}"\ndagsters: "x"')
    assert raw.ours == "{{ env.NOBODY_SETS_THIS }}"
    context = dg.ResolutionContext.default()
    assert context.resolve_value("20260101") == 20260101
    assert context.resolve_value("{{ env.NOBODY_SETS_THIS }}") is None


def test_a_resolver_that_raises_is_told_with_its_place() -> None:
    def refuse(context: dg.ResolutionContext, raw: str) -> Any:
        raise ValueError("not this one")

    class Refusing(dg.Model, dg.Resolvable):
        name: Annotated[str, dg.Resolver(refuse, model_field_type=str, inject_before_resolve=False)]

    with pytest.raises(Exception, match=r"not this one"):
        Refusing.resolve_from_yaml("name: x")

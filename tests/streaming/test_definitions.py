"""The Dagster face: it loads without anything, and its sensors say what is so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse_dagster import (
    CheckPolicy,
    FlinkCluster,
    Lakehouse,
    LoadedLakehouse,
    PaimonCatalog,
    ProgressPolicy,
    SupervisionPolicy,
    SystemDatabase,
)
from lakehouse_dagster.streaming.runtime import Clock
from lakehouse_dagster.streaming.supervise import observe_all
from lakehouse_dagster.system_db import DesiredState, flink_job_id
from tests.paimon.writing import Writer
from tests.streaming.making import NOW, job, load, source, table, write_scripts
from tests.streaming.overview_server import (
    Overview,
    completed_checkpoint,
    overview_entry,
    overview_server,
)
from tests.streaming.test_progress import COLUMNS

SCRIPTS = {
    "ods": table("ods.a") + source("x") + job("ods_a", "ods.a", "x"),
    "dwd": table("dwd.b") + job("dwd_b", "dwd.b", "ods.a"),
}
HEAVY = (
    "lakehouse_dagster.system_db.engine",
    "pyarrow",
    "pypaimon",
    "alembic",
    "sqlalchemy.orm",
    "duckdb",
    "jgo",
    "pandas",
)


class Running:
    """A lakehouse whose sensors are evaluated by hand, at a time of our own."""

    def __init__(self, folder: Path, overview: Overview, **options: Any) -> None:
        self.overview = overview
        self.now = NOW
        self.instance = dg.DagsterInstance.ephemeral()
        scripts = options.pop("scripts", SCRIPTS)
        self.lake: LoadedLakehouse = load(folder, scripts, rest_url=overview.rest_url, **options)
        clock = Clock(now=lambda: self.now)
        self.lake.__dict__["runtime"] = replace(self.lake.runtime, clock=clock)
        self.memory = self.lake.runtime.memory
        self.warehouse = folder / "warehouse"
        self.repository = self.lake.definitions().get_repository_def()
        self.cursors: dict[str, str | None] = {}

    def tick(self, sensor: str = "supervisor", *, after: timedelta = timedelta()) -> Any:
        """Evaluate a sensor as the daemon does: its events are stored, then its cursor."""
        self.now += after
        definition = self.repository.get_sensor_def(f"lake_{sensor}")
        context = dg.build_sensor_context(
            self.instance, cursor=self.cursors.get(sensor), repository_def=self.repository
        )
        result = definition.evaluate_tick(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursors[sensor] = result.cursor
        return result

    def started(self, name: str, number: int = 1) -> str:
        """Write down that a job was started, as ``start_or_adopt`` does."""
        self.memory.ensure(name)
        job_id = flink_job_id(self.memory.lakehouse, name, number)
        self.memory.record(
            name,
            number=number,
            flink_job_id=job_id,
            fingerprint=self.lake.runtime.job(name).fingerprint,
            restored_from=None,
            fencing=number,
            session_handle=None,
        )
        self.memory.set_desired(name, DesiredState.RUNNING)
        return job_id

    def write(self, name: str, commits: int = 1) -> Writer:
        writer = Writer(
            self.warehouse, name, COLUMNS, primary_keys=("id",), options={"bucket": "1"}
        )
        for number in range(commits):
            writer.append([{"id": number, "v": "x"}])
        return writer

    def materializations(self, key: str) -> list[dg.AssetMaterialization]:
        records = self.instance.fetch_materializations(
            dg.AssetKey(key.split("/")), limit=100, ascending=True
        ).records
        found = [record.asset_materialization for record in records]
        return [event for event in found if event is not None]


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as served:
        yield served


@pytest.fixture
def running(tmp_path: Path, overview: Overview) -> Running:
    return Running(tmp_path, overview)


def work(result: Any) -> list[list[tuple[str, str]]]:
    """The (job, verb) pairs of each run that was asked for."""
    return [
        [(w["job"], w["verb"]) for w in r.run_config["ops"]["lake_reconcile"]["config"]["work"]]
        for r in result.run_requests or []
    ]


def evaluations(result: Any) -> dict[str, tuple[bool, str | None]]:
    found = [e for e in result.asset_events if isinstance(e, dg.AssetCheckEvaluation)]
    return {e.asset_key.to_user_string(): (e.passed, e.description) for e in found}


# Loading


PROBE = """
import json, socket, sys
def refuse(*arguments, **named):
    raise AssertionError("the network was used")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
lake = Lakehouse(
    catalog=PaimonCatalog(warehouse="s3://nowhere/lake"),
    flink=FlinkCluster("http://nowhere:1", "http://nowhere:2"),
)
repository = lake.definitions("sql", start="on_load").get_repository_def()
print(json.dumps({
    "modules": sorted(sys.modules),
    "assets": sorted(k.to_user_string() for k in repository.asset_graph.get_all_asset_keys()),
    "jobs": sorted(n for n in repository.job_names if not n.startswith("__")),
    "sensors": sorted(s.name for s in repository.sensor_defs),
}))
"""


def test_definitions_load_without_network_and_without_heavy_imports(tmp_path: Path) -> None:
    write_scripts(tmp_path / "sql", SCRIPTS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE],
        cwd=tmp_path,
        env={**os.environ, "DAGSTER_HOME": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [name for name in HEAVY if name in found["modules"]] == []
    assert found["assets"] == ["datagen/x", "dwd/b", "ods/a"]
    assert found["jobs"] == [
        "lake_adopt_streaming_jobs",
        "lake_cancel_streaming_jobs",
        "lake_forget_streaming_jobs",
        "lake_reconcile_streaming_jobs",
        "lake_restart_streaming_jobs",
        "lake_start_streaming_jobs",
        "lake_stop_streaming_jobs",
        "lake_streaming_jobs_need_a_person",
        "lake_tidy_restore_points",
        "lake_upgrade_streaming_jobs",
    ]
    assert found["sensors"] == ["lake_progress", "lake_supervisor"]
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert not [name for name in left if name.endswith(".db")]


def test_three_hundred_scripts_load_in_a_few_seconds(tmp_path: Path) -> None:
    scripts = {"s0": table("ods.t0") + source("x0") + job("j0", "ods.t0", "x0")}
    for n in range(1, 300):
        scripts[f"s{n}"] = table(f"ods.t{n}") + job(f"j{n}", f"ods.t{n}", f"ods.t{n - 1}")
    started = time.process_time()
    lake = load(tmp_path, scripts)
    repository = lake.definitions().get_repository_def()
    took = time.process_time() - started
    assert len(repository.asset_graph.executable_asset_keys) == 300
    assert took < 8


def test_what_can_be_materialised_and_what_is_outside(running: Running) -> None:
    graph = running.repository.asset_graph
    executable = {key.to_user_string() for key in graph.executable_asset_keys}
    assert executable == {"ods/a", "dwd/b"}
    assert {key.to_user_string() for key in graph.external_asset_keys} == {"datagen/x"}
    assert {key.name for key in graph.asset_check_keys} == {"job_health", "foreign_commits"}


def test_the_lakehouse_itself_is_a_resource(running: Running) -> None:
    assert running.lake.definitions().resources == {"lake": running.lake}


def test_sensors_run_as_often_as_the_policies_say(tmp_path: Path, overview: Overview) -> None:
    slow = Running(
        tmp_path,
        overview,
        supervision=SupervisionPolicy(tick_interval="45s"),
        progress=ProgressPolicy(tick_interval="500ms"),
    )
    intervals = {s.name: s.minimum_interval_seconds for s in slow.repository.sensor_defs}
    assert intervals == {"lake_supervisor": 45, "lake_progress": 1}


def test_old_restore_points_are_looked_for_every_hour(running: Running) -> None:
    (schedule,) = running.repository.schedule_defs
    assert (schedule.name, schedule.cron_schedule) == ("lake_tidy", "23 * * * *")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


# Progress


def test_a_new_snapshot_becomes_one_materialization_with_version_and_numbers(
    running: Running,
) -> None:
    running.write("ods.a", commits=3)
    result = running.tick("progress")
    assert result.skip_message == "1 of 2 tables moved."
    (event,) = running.materializations("ods/a")
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == "3"
    assert event.metadata["snapshot"] == dg.MetadataValue.int(3)
    assert event.metadata["rows_written"] == dg.MetadataValue.int(3)
    assert event.metadata["files_added"] == dg.MetadataValue.int(3)
    assert running.materializations("dwd/b") == []


def test_nothing_new_is_nothing_told(running: Running) -> None:
    running.write("ods.a")
    running.tick("progress")
    result = running.tick("progress", after=timedelta(minutes=10))
    assert (result.skip_message, result.asset_events) == ("0 of 2 tables moved.", [])
    assert len(running.materializations("ods/a")) == 1


def test_a_repeat_after_a_lost_cursor_is_left_out(running: Running) -> None:
    writer = running.write("ods.a", commits=2)
    running.tick("progress")
    running.cursors.clear()
    result = running.tick("progress")
    assert result.asset_events == []
    assert len(running.materializations("ods/a")) == 1
    writer.append([{"id": 9, "v": "y"}])
    running.tick("progress", after=timedelta(minutes=10))
    versions = [(e.tags or {})["dagster/data_version"] for e in running.materializations("ods/a")]
    assert versions == ["2", "3"]


def test_upstream_tables_are_told_of_first(running: Running) -> None:
    running.write("dwd.b")
    running.write("ods.a")
    result = running.tick("progress")
    assert [e.asset_key.to_user_string() for e in result.asset_events] == ["ods/a", "dwd/b"]


def test_what_is_left_over_comes_with_the_next_tick(tmp_path: Path, overview: Overview) -> None:
    bounded = Running(tmp_path, overview, progress=ProgressPolicy(events_per_tick=1))
    bounded.write("dwd.b")
    bounded.write("ods.a")
    first = bounded.tick("progress")
    assert first.skip_message == "1 of 2 tables moved, 1 more wait for the next tick."
    second = bounded.tick("progress", after=timedelta(seconds=10))
    assert [e.asset_key.to_user_string() for e in second.asset_events] == ["dwd/b"]


def test_a_broken_table_is_named_and_the_others_move(running: Running) -> None:
    broken = running.write("ods.a")
    running.write("dwd.b")
    (broken.folder / "snapshot" / "snapshot-1").write_text("{")
    result = running.tick("progress")
    assert [e.asset_key.to_user_string() for e in result.asset_events] == ["dwd/b"]
    assert result.skip_message.startswith("1 of 2 tables moved; ods.a: ")


def test_commits_by_others_are_told_once_and_again_when_they_change(running: Running) -> None:
    running.started("ods_a")
    running.write("ods.a", commits=2)
    first = evaluations(running.tick("progress"))
    passed, text = first["ods/a"]
    assert not passed
    assert text.startswith("Others write this table too: commit users ")
    running.write("dwd.b")  # nobody has started the job that writes it
    assert evaluations(running.tick("progress", after=timedelta(minutes=10))) == {}


def test_bounds_on_tables_make_checks_and_a_sensor(tmp_path: Path, overview: Overview) -> None:
    checks = {"ods.*": CheckPolicy(freshness="10m"), "default": CheckPolicy(max_lag="1h")}
    lake = Running(tmp_path, overview, checks=checks)
    lake.write("ods.a")
    result = lake.tick("table_checks", after=timedelta(days=3650))
    found = {(e.asset_key.to_user_string(), e.check_name): e.passed for e in result.asset_events}
    assert found == {
        ("ods/a", "freshness"): False,
        ("ods/a", "lag"): True,
        ("dwd/b", "freshness"): True,
        ("dwd/b", "lag"): True,
    }
    assert result.skip_message == "2 of 2 tables looked at; 1 checks fail."
    again = lake.tick("table_checks", after=timedelta(minutes=1))
    assert again.asset_events == []
    later = lake.tick("table_checks", after=timedelta(hours=2))
    assert len(later.asset_events) == 4


# Supervision


def test_a_cluster_that_cannot_be_asked_starts_nothing(running: Running) -> None:
    running.started("ods_a")
    running.overview.rest_url = ""
    down = running.lake.runtime.cluster
    gone = replace(down, rest_url="http://127.0.0.1:1")
    running.lake.__dict__["runtime"] = replace(running.lake.runtime, cluster=gone)
    running.repository = running.lake.definitions().get_repository_def()
    for _ in range(3):
        result = running.tick(after=timedelta(minutes=5))
        assert result.run_requests in (None, [])
        assert result.skip_message.startswith("UNREACHABLE: ")
        assert result.skip_message.endswith("Nothing is started meanwhile.")
    record = running.memory.get("ods_a")
    assert record is not None
    assert record.attempts == 0


@pytest.mark.parametrize(
    ("status_code", "body"),
    [(503, None), (500, None), (200, b"<html>proxy</html>"), (404, b"<html>none</html>")],
)
def test_an_answer_that_is_none_is_not_taken_for_an_empty_cluster(
    running: Running, status_code: int, body: bytes | None
) -> None:
    running.started("ods_a")
    running.overview.status_code, running.overview.body = status_code, body
    for _ in range(3):
        result = running.tick(after=timedelta(minutes=5))
        assert result.run_requests in (None, [])
        assert result.skip_message.startswith("UNREACHABLE: ")


def test_jobs_that_nobody_started_are_left_alone(running: Running) -> None:
    result = running.tick()
    assert result.skip_message == "2 unmanaged"
    assert running.overview.requests == ["/jobs/overview"]


def test_on_load_asks_for_one_run_for_all_jobs(tmp_path: Path, overview: Overview) -> None:
    result = Running(tmp_path, overview, start="on_load").tick()
    assert work(result) == [[("dwd_b", "start"), ("ods_a", "start")]]
    (request,) = result.run_requests
    assert request.tags["lakehouse/attempts"] == "dwd_b#1,ods_a#1"
    assert request.tags["lakehouse/jobs"] == "dwd_b, ods_a"


def test_the_run_that_is_asked_for_names_jobs_that_its_config_takes(
    tmp_path: Path, overview: Overview
) -> None:
    lake = Running(tmp_path, overview, start="on_load")
    (request,) = lake.tick().run_requests
    reconcile = lake.repository.get_job("lake_reconcile_streaming_jobs")
    assert dg.validate_run_config(reconcile, request.run_config)["ops"]["lake_reconcile"]


def test_a_healthy_job_needs_no_run_and_one_question(running: Running) -> None:
    job_id = running.started("ods_a")
    running.overview.jobs = [overview_entry(job_id)]
    running.overview.checkpoints[job_id] = completed_checkpoint(1)
    result = running.tick()
    assert result.skip_message == "1 RUNNING, 1 unmanaged"
    assert running.overview.requests == ["/jobs/overview", f"/jobs/{job_id}/checkpoints"]


def test_a_job_without_a_checkpoint_is_asked_for_exceptions_too(running: Running) -> None:
    """Its restarts restore nothing, so that only the exceptions tell of them."""
    job_id = running.started("ods_a")
    running.overview.jobs = [overview_entry(job_id)]
    running.overview.exceptions[job_id] = [(n * 1000, "java.lang.X: no") for n in range(-7, 0)]
    told = evaluations(running.tick())
    latest = running.memory.latest("ods_a")
    assert latest is not None
    assert (latest.restarts, latest.root_cause) == (7, "X: no")
    assert told["ods/a"] == (
        False,
        "Should be RUNNING, is DEGRADED: restarted 7 times within 10m: X: no.",
    )


def test_a_failed_job_is_started_again(running: Running) -> None:
    running.overview.jobs = [overview_entry(running.started("ods_a"), "FAILED")]
    result = running.tick()
    assert work(result) == [[("ods_a", "recover")]]
    (request,) = result.run_requests
    assert request.tags["lakehouse/reason"] == "ods_a: Flink gave up on it"


def test_a_job_is_lost_only_after_two_looks(running: Running) -> None:
    job_id = running.started("ods_a")
    running.overview.jobs = [overview_entry(job_id)]
    running.tick()
    running.overview.jobs = []
    assert work(running.tick(after=timedelta(minutes=5))) == []
    assert work(running.tick(after=timedelta(seconds=4))) == []
    assert work(running.tick(after=timedelta(seconds=1))) == [[("ods_a", "recover")]]


def test_an_unreachable_cluster_in_between_begins_the_count_anew(running: Running) -> None:
    job_id = running.started("ods_a")
    running.overview.jobs = [overview_entry(job_id)]
    running.tick()
    running.overview.jobs = []
    assert work(running.tick(after=timedelta(minutes=5))) == []
    running.overview.status_code = 503
    running.tick(after=timedelta(minutes=1))
    running.overview.status_code = 200
    assert work(running.tick(after=timedelta(minutes=1))) == []
    assert work(running.tick(after=timedelta(seconds=5))) == [[("ods_a", "recover")]]


def test_attempts_are_counted_backed_off_and_capped(tmp_path: Path, overview: Overview) -> None:
    policy = SupervisionPolicy(max_attempts=3, backoff_initial="20s")
    lake = Running(tmp_path, overview, supervision=policy)
    overview.jobs = [overview_entry(lake.started("ods_a"), "FAILED")]
    asked: list[datetime] = []
    keys: list[str] = []
    alarms: list[Any] = []
    for _ in range(60):
        result = lake.tick(after=timedelta(seconds=5))
        for request in result.run_requests or []:
            if request.job_name == "lake_streaming_jobs_need_a_person":
                alarms.append(request.run_config)
                continue
            asked.append(lake.now)
            keys.append(request.run_key)
    pauses = [(b - a).total_seconds() for a, b in pairwise(asked)]
    assert pauses == [20.0, 40.0]
    assert len(set(keys)) == 3
    assert alarms == [
        {
            "ops": {
                "lake_wait_for_a_person": {
                    "config": {
                        "jobs": {
                            "ods_a": "should be RUNNING, is FAILED (Flink gave up on it); "
                            "3 attempts failed"
                        }
                    }
                }
            }
        }
    ]
    last = lake.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey(["ods", "a"]), "job_health"), limit=1
    )[0]
    assert last.event is not None
    evaluation = last.event.dagster_event.asset_check_evaluation_data
    assert evaluation.passed is False
    assert evaluation.description == (
        "3 attempts in a row failed; the job waits for a person to start it."
    )


def test_no_run_key_ever_comes_again(running: Running) -> None:
    running.overview.jobs = [overview_entry(running.started("ods_a"), "FAILED")]
    keys = []
    for _ in range(4):
        (request,) = running.tick(after=timedelta(minutes=1)).run_requests
        keys.append(request.run_key)
        running.memory.reset_attempts("ods_a")
    assert len(set(keys)) == 4


def test_a_job_that_is_well_for_a_while_is_forgiven_its_attempts(running: Running) -> None:
    """Not at its first checkpoint: a job that dies soon after each start must reach its cap."""
    job_id = running.started("ods_a")
    running.memory.count_attempt("ods_a", next_attempt_at=None)
    running.overview.jobs = [overview_entry(job_id)]
    running.overview.checkpoints[job_id] = completed_checkpoint(4)
    running.tick()
    record, latest = running.memory.get("ods_a"), running.memory.latest("ods_a")
    assert record is not None
    assert latest is not None
    assert record.attempts == 1
    assert (latest.checkpoint_id, latest.checkpoint_path) == (4, "file:/checkpoints/chk-4")
    later = int(timedelta(minutes=11).total_seconds() * 1000)
    running.overview.checkpoints[job_id] = completed_checkpoint(5, after_ms=later)
    running.tick(after=timedelta(minutes=11))
    record = running.memory.get("ods_a")
    assert record is not None
    assert record.attempts == 0


def test_a_job_that_a_run_acts_on_is_left_to_it(running: Running) -> None:
    running.overview.jobs = [overview_entry(running.started("ods_a"), "FAILED")]
    runtime = running.lake.runtime
    with runtime.leases.held(runtime.memory.lease_key("ods_a"), "a run", 60):
        assert work(running.tick()) == []
    assert work(running.tick()) == [[("ods_a", "recover")]]


def test_of_jobs_that_nobody_has_touched_no_health_is_told(running: Running) -> None:
    assert evaluations(running.tick()) == {}
    assert evaluations(running.tick(after=timedelta(minutes=5))) == {}
    running.overview.jobs = [overview_entry(running.started("ods_a"))]
    assert list(evaluations(running.tick())) == ["ods/a"]


def test_health_is_told_only_when_it_changes(running: Running) -> None:
    job_id = running.started("ods_a")
    running.overview.jobs = [overview_entry(job_id)]
    first = evaluations(running.tick(after=timedelta(minutes=5)))
    assert first == {"ods/a": (True, "Should be RUNNING, is RUNNING: all tasks run.")}
    assert evaluations(running.tick(after=timedelta(seconds=15))) == {}
    running.overview.jobs = [overview_entry(job_id, "RESTARTING")]
    told = evaluations(running.tick(after=timedelta(seconds=15)))
    assert told == {
        "ods/a": (False, "Should be RUNNING, is RESTARTING: Flink is restarting its tasks.")
    }
    assert evaluations(running.tick(after=timedelta(seconds=15))) == {}
    running.memory.set_error("ods_a", "no more slots")
    assert list(evaluations(running.tick(after=timedelta(seconds=15)))) == ["ods/a"]


def test_health_is_told_again_in_the_minutes_after_someone_acted(running: Running) -> None:
    """A run's own check result counts as "not evaluated" from the next progress event on."""
    running.overview.jobs = [overview_entry(running.started("ods_a"))]
    running.tick(after=timedelta(minutes=5))
    running.memory.reset_attempts("ods_a")  # as whoever materialises does
    told = [evaluations(running.tick(after=timedelta(seconds=30))) for _ in range(12)]
    assert [list(tick) for tick in told] == [["ods/a"]] * 6 + [[]] * 6


def test_the_cursor_stays_small(tmp_path: Path, overview: Overview) -> None:
    scripts = {
        f"s{n}": table(f"ods.t{n}") + source(f"x{n}") + job(f"job_{n}", f"ods.t{n}", f"x{n}")
        for n in range(50)
    }
    lake = Running(tmp_path, overview, scripts=scripts)
    lake.tick()
    assert len(lake.cursors["supervisor"] or "") < 50 * 80


# Jobs and checks


@pytest.mark.parametrize("action", ["start", "stop", "cancel", "restart"])
def test_an_unknown_job_is_refused_with_those_there_are(running: Running, action: str) -> None:
    definition = running.repository.get_job(f"lake_{action}_streaming_jobs")
    config = {"ops": {f"lake_{action}": {"config": {"jobs": ["ods_a", "nobody"]}}}}
    result = definition.execute_in_process(
        run_config=config, instance=running.instance, raise_on_error=False
    )
    assert not result.success
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    error = failure.step_failure_data.error
    assert error is not None
    text = error.to_string()
    assert "No streaming job is named 'nobody'. Declared jobs: dwd_b, ods_a." in text
    assert running.memory.get("ods_a") is None
    assert running.overview.requests == []


def test_naming_no_job_is_refused(running: Running) -> None:
    definition = running.repository.get_job("lake_stop_streaming_jobs")
    with pytest.raises(dg.Failure, match="No streaming job was named"):
        definition.execute_in_process(
            run_config={"ops": {"lake_stop": {"config": {"jobs": []}}}}, instance=running.instance
        )


def test_a_cluster_that_is_down_fails_the_action_with_its_address(running: Running) -> None:
    down = replace(running.lake.runtime.cluster, rest_url="http://127.0.0.1:1")
    running.lake.__dict__["runtime"] = replace(running.lake.runtime, cluster=down)
    repository = running.lake.definitions().get_repository_def()
    with pytest.raises(dg.Failure, match=r"ods_a: .*127\.0\.0\.1:1"):
        repository.get_job("lake_cancel_streaming_jobs").execute_in_process(
            run_config={"ops": {"lake_cancel": {"config": {"jobs": ["ods_a", "ods_a"]}}}},
            instance=running.instance,
        )


def test_the_health_check_can_be_run_by_hand(running: Running) -> None:
    running.overview.jobs = [overview_entry(running.started("ods_a"), "FAILED")]
    health = dg.AssetCheckKey(dg.AssetKey(["ods", "a"]), "job_health")
    result = dg.materialize(
        [*(running.lake.definitions().asset_checks or ())],
        instance=running.instance,
        selection=dg.AssetSelection.checks(health),
    )
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.asset_check_key, evaluation.passed) == (health, False)
    assert evaluation.description == "Should be RUNNING, is FAILED: Flink gave up on it."


def test_a_table_that_cannot_be_read_hides_no_other_table_when_commits_are_looked_at(
    running: Running,
) -> None:
    snapshots = running.warehouse / "dwd.db" / "b" / "snapshot"
    snapshots.mkdir(parents=True)
    (snapshots / "snapshot-1").write_text("{")
    (snapshots / "LATEST").write_text("1")
    tables = [dg.AssetKey(["dwd", "b"]), dg.AssetKey(["ods", "a"])]
    result = dg.materialize(
        [*(running.lake.definitions().asset_checks or ())],
        instance=running.instance,
        selection=dg.AssetSelection.checks(
            *(dg.AssetCheckKey(table, "foreign_commits") for table in tables)
        ),
        raise_on_error=False,
    )
    evaluated = [evaluation.asset_key for evaluation in result.get_asset_check_evaluations()]
    assert evaluated == [dg.AssetKey(["ods", "a"])]
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "dwd.b: " in str(failure.step_failure_data.error)


# On a real cluster


WIDE = """
CREATE DATABASE IF NOT EXISTS o;
CREATE TABLE IF NOT EXISTS o.wide (
  id BIGINT, a STRING, b STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'merge-engine' = 'partial-update', 'write-only' = 'true');
CREATE TEMPORARY TABLE rows_of_{column} (id BIGINT, {column} STRING) WITH (
  'connector' = 'datagen', 'rows-per-second' = '5', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '10000', 'fields.{column}.length' = '4'
);
SET 'pipeline.name' = 'from_{column}';
SET 'execution.checkpointing.interval' = '2s';
INSERT INTO o.wide (id, {column}) SELECT id, {column} FROM rows_of_{column};
"""


@pytest.mark.flink
def test_materialising_a_table_that_two_jobs_fill_starts_both(
    tmp_path: Path, flink_stack: Any
) -> None:
    write_scripts(tmp_path / "sql", {c: WIDE.format(column=c) for c in "ab"})
    lake = Lakehouse(
        name=f"wide_{uuid.uuid4().hex[:8]}",
        catalog=PaimonCatalog(warehouse=str(tmp_path / "warehouse")),
        flink=FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url),
        system_database=SystemDatabase(f"sqlite:///{tmp_path / 'lakehouse.db'}"),
    ).load("sql", base_folder=tmp_path)
    assets = [a for a in lake.definitions().assets or () if isinstance(a, dg.AssetsDefinition)]
    cancel = lake.definitions().get_job_def(f"{lake.lakehouse.name}_cancel_streaming_jobs")
    instance = dg.DagsterInstance.ephemeral()
    try:
        assert dg.materialize(assets, instance=instance).success
        states = {o.name: o.observed.value for o in observe_all(lake.runtime)}
        assert states == {"from_a": "RUNNING", "from_b": "RUNNING"}
        (record,) = instance.fetch_materializations(dg.AssetKey(["o", "wide"]), limit=9).records
        event = record.asset_materialization
        assert event is not None
        newest = lake.runtime.catalog.open().table("o.wide").latest_snapshot_id() or 0
        assert 1 <= int((event.tags or {})["dagster/data_version"]) <= newest
    finally:
        op = f"{lake.lakehouse.name}_cancel"
        cancelled = cancel.execute_in_process(
            run_config={"ops": {op: {"config": {"jobs": ["from_a", "from_b"]}}}},
            instance=instance,
        )
    assert cancelled.success
    assert {r.desired for r in lake.runtime.memory.all()} == {DesiredState.CANCELED}


def test_two_hundred_dead_jobs_make_one_run(tmp_path: Path, overview: Overview) -> None:
    names = [f"job_{n:03d}" for n in range(200)]
    scripts = {
        name: table(f"ods.t_{name}") + source(f"x_{name}") + job(name, f"ods.t_{name}", f"x_{name}")
        for name in names
    }
    lake = Running(tmp_path, overview, scripts=scripts)
    overview.jobs = [overview_entry(lake.started(name), "FAILED") for name in names]
    result = lake.tick()
    assert work(result) == [[(name, "recover") for name in names]]
    assert overview.requests == ["/jobs/overview"]
    assert lake.tick(after=timedelta(seconds=9)).run_requests in (None, [])

"""The Dagster face of maintenance: it loads without anything, looks, and asks for one run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse_dagster import (
    CheckBounds,
    CompactSpec,
    ExpireSpec,
    MaintenancePolicy,
    OrphanSpec,
    TablePolicy,
)
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.paimon.writing import Writer
from tests.streaming.making import job, load, source, table
from tests.streaming.test_definitions import HEAVY
from tests.streaming.test_progress import COLUMNS

SCRIPTS = {
    "ods": table("ods.a") + source("x") + job("ods_a", "ods.a", "x"),
    "dwd": table("dwd.b") + job("dwd_b", "dwd.b", "ods.a"),
}
EXPIRES = TablePolicy(expire=ExpireSpec(keep_at_least=2, keep_for="1h"))


class Looked:
    """A lakehouse whose maintenance sensor is ticked by hand, at a time of our own."""

    def __init__(self, folder: Path, policy: MaintenancePolicy | None) -> None:
        self.folder = folder
        self.now = utc_now()
        self.instance = dg.DagsterInstance.ephemeral()
        self.lake = load(folder, SCRIPTS, maintenance=policy)
        clock = Clock(now=lambda: self.now)
        self.lake.__dict__["runtime"] = replace(self.lake.runtime, clock=clock)
        self.repository = self.lake.definitions().get_repository_def()
        self.cursor: str | None = None

    def write(self, name: str, commits: int) -> Writer:
        writer = Writer(
            self.folder / "warehouse",
            name,
            COLUMNS,
            primary_keys=("id",),
            options={"bucket": "1"},
        )
        for number in range(commits):
            writer.append([{"id": number, "v": "x"}])
        return writer

    def tick(self, **after: float) -> Any:
        self.now += timedelta(**after)
        sensor = self.repository.get_sensor_def("lake_maintenance")
        context = dg.build_sensor_context(
            self.instance, cursor=self.cursor, repository_def=self.repository
        )
        result = sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result


def asked(result: Any) -> list[list[str]]:
    return [
        request.run_config["ops"]["lake_maintain_tables"]["config"]["tables"]
        for request in result.run_requests or []
    ]


def checks(result: Any) -> dict[str, tuple[bool, str]]:
    return {
        f"{e.asset_key.to_user_string()}:{e.check_name}": (e.passed, e.description or "")
        for e in result.asset_events
    }


def test_without_a_policy_dagster_has_nothing_of_maintenance(tmp_path: Path) -> None:
    repository = Looked(tmp_path, None).repository
    assert not [s.name for s in repository.sensor_defs if "maintenance" in s.name]
    assert not {"lake_maintain", "lake_compact", "lake_expire"} & set(repository.job_names)
    keys = repository.asset_checks_defs_by_key
    assert {key.name for key in keys} == {"job_health", "foreign_commits"}


def test_jobs_schedules_sensor_and_checks_come_from_the_policy(tmp_path: Path) -> None:
    policy = MaintenancePolicy(
        TablePolicy(compact=CompactSpec(cron="0 3 * * *"), orphans=OrphanSpec(cron="0 5 * * 0")),
        tables={"dwd.*": TablePolicy(compact=CompactSpec(cron="0 4 * * *"), bounds=None)},
    )
    repository = Looked(tmp_path, policy).repository
    jobs = {"lake_maintain", "lake_compact", "lake_expire", "lake_clean_up"}
    assert jobs <= set(repository.job_names)
    schedules = {
        s.cron_schedule: s.evaluate_tick(dg.build_schedule_context())
        .run_requests[0]
        .run_config["ops"]
        for s in repository.schedule_defs
        if s.name != "lake_tidy"
    }
    assert schedules == {
        "0 3 * * *": {
            "lake_compact_tables": {"config": {"tables": ["ods.a"], "only_if_due": True}}
        },
        "0 4 * * *": {
            "lake_compact_tables": {"config": {"tables": ["dwd.b"], "only_if_due": True}}
        },
        "0 5 * * 0": {"lake_clean_up_tables": {"config": {"tables": ["ods.a"]}}},
    }
    of_table = {
        key.name
        for key in repository.asset_checks_defs_by_key
        if key.asset_key == dg.AssetKey(["ods", "a"])
    }
    assert of_table - {"job_health", "foreign_commits"} == {
        "small_files",
        "compaction_backlog",
        "expiry_lag",
        "orphan_files",
    }


def test_loading_definitions_with_a_policy_imports_nothing_heavy(tmp_path: Path) -> None:
    Looked(tmp_path, MaintenancePolicy())
    code = (
        "import sys, json\n"
        "from lakehouse_dagster import *\n"
        f"Lakehouse(PaimonCatalog({str(tmp_path)!r}), FlinkCluster('http://a:1', 'http://a:2'), "
        f"maintenance=MaintenancePolicy()).definitions('sql', base_folder={str(tmp_path)!r})"
        ".get_repository_def()\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == []


def test_progress_events_carry_the_figures_of_the_table(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy())
    looked.write("ods.a", 4)
    sensor = looked.repository.get_sensor_def("lake_progress")
    context = dg.build_sensor_context(looked.instance, repository_def=looked.repository)
    (event,) = sensor.evaluate_tick(context).asset_events
    figures = {name: value.value for name, value in event.metadata.items()}
    assert figures["bytes"] > 0
    assert {name: figures[name] for name in ("files", "small_files", "level0_files")} == {
        "files": 4,
        "small_files": 4,
        "level0_files": 4,
    }
    assert {name: figures[name] for name in ("snapshots", "changelogs", "tags", "manifests")} == {
        "snapshots": 4,
        "changelogs": 0,
        "tags": 0,
        "manifests": 4,
    }
    assert figures["snapshot_range"] == "1 to 4"


def test_tables_that_do_not_exist_yet_are_due_for_nothing(tmp_path: Path) -> None:
    result = Looked(tmp_path, MaintenancePolicy()).tick()
    assert result.skip_message == "2 of 2 tables looked at, 0 due."
    assert result.asset_events == []


def test_one_run_is_asked_for_all_that_is_due_and_not_twice(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    looked.write("dwd.b", 3)
    assert asked(looked.tick()) == []
    first = looked.tick(hours=2)
    assert asked(first) == [["dwd.b", "ods.a"]]
    assert "ods.a: snapshot expiry: 4 snapshots" in first.run_requests[0].tags["lakehouse/reason"]
    again = looked.tick(minutes=1)
    assert asked(again) == []
    assert "ods.a: asked for in vain; again after" in again.skip_message


def test_a_run_that_did_nothing_is_asked_for_under_another_key_after_a_while(
    tmp_path: Path,
) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    keys, waited = [], [timedelta(hours=2), timedelta(minutes=6), timedelta(minutes=11)]
    for after in waited:
        result = looked.tick(seconds=after.total_seconds())
        keys += [request.run_key for request in result.run_requests]
    assert len(set(keys)) == 3
    assert asked(looked.tick(minutes=6)) == []  # it waits longer each time


def test_the_same_tick_evaluated_again_asks_under_the_same_key(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    first = looked.tick(hours=2)
    looked.cursor = None
    assert looked.tick().run_requests[0].run_key == first.run_requests[0].run_key


def test_while_a_run_for_a_table_is_under_way_no_other_is_asked_for_it(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    request = looked.tick(hours=2).run_requests[0]
    run = looked.instance.create_run_for_job(
        looked.repository.get_job("lake_maintain"), run_config=request.run_config
    )
    later = looked.tick(hours=9)
    assert asked(later) == []
    assert "ods.a: a run for it is under way" in later.skip_message
    looked.instance.report_run_canceled(run)
    assert asked(looked.tick(hours=9)) == [["ods.a"]]


def begun_and_killed(looked: Looked) -> str:
    """A run that was asked for and began: for Dagster it never ends. Who it was for leases."""
    looked.write("ods.a", 4)
    request = looked.tick(minutes=31).run_requests[0]
    run = looked.instance.create_run_for_job(
        looked.repository.get_job("lake_maintain"), run_config=request.run_config
    )
    begun = dg.DagsterEvent("PIPELINE_START", run.job_name)
    looked.instance.report_dagster_event(begun, run_id=run.run_id)
    return f"Dagster run {run.run_id}"


SOON = MaintenancePolicy(TablePolicy(expire=ExpireSpec(keep_at_least=2, keep_for="20m")))


def test_a_run_that_began_an_hour_ago_and_holds_nothing_is_not_waited_for(tmp_path: Path) -> None:
    looked = Looked(tmp_path, SOON)
    begun_and_killed(looked)
    assert asked(looked.tick(minutes=27)) == []
    assert asked(looked.tick(minutes=4)) == [["ods.a"]]


def test_a_run_that_was_killed_at_an_action_is_not_waited_for_at_all(tmp_path: Path) -> None:
    looked = Looked(tmp_path, SOON)
    holder = begun_and_killed(looked)
    assert asked(looked.tick(minutes=1)) == []
    looked.lake.keeper.actions.begin(
        "ods.a", "snapshot expiry", reason="", details="{}", holder=holder, before=None
    )
    assert asked(looked.tick(minutes=1)) == [["ods.a"]]


def test_a_cancelled_action_is_left_alone_for_an_hour(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    looked.now += timedelta(hours=2)
    actions = looked.lake.keeper.actions
    record = actions.begin(
        "ods.a", "snapshot expiry", reason="", details="{}", holder="a test", before=None
    )
    actions.update(record.id, {"state": ActionState.CANCELLED, "ended_at": looked.now})
    assert "left alone for an hour" in looked.tick(minutes=30).skip_message
    assert asked(looked.tick(minutes=31)) == [["ods.a"]]


def test_the_checks_say_what_is_wrong_once_and_again_after_an_hour(tmp_path: Path) -> None:
    policy = TablePolicy(
        expire=ExpireSpec(keep_at_least=2, keep_for="1h"),
        bounds=CheckBounds(expiry_lag="1h", level0_files=3, small_files=3, small_share=0.5),
    )
    looked = Looked(tmp_path, MaintenancePolicy(policy))
    looked.write("ods.a", 4)
    told = checks(looked.tick(minutes=5))
    assert told.pop("ods/a:expiry_lag")[0]
    assert told == {
        "ods/a:small_files": (False, "4 of 4 files are small. At most 3 may be, or 50%."),
        "ods/a:compaction_backlog": (
            False,
            "Bucket 0 has 4 unmerged files; at most 3. "
            "Compaction is due at more than 20: raise the bound.",
        ),
    }
    assert checks(looked.tick(minutes=50)) == {}
    assert len(checks(looked.tick(minutes=11))) == 3
    passed, text = checks(looked.tick(hours=2))["ods/a:expiry_lag"]
    assert not passed
    assert "over its time." in text


def test_who_holds_old_snapshots_back_is_told_at_once(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    writer = looked.write("ods.a", 4)
    checks(looked.tick(minutes=30))
    consumer = writer.folder / "consumer" / "consumer-job"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot": 1}')
    passed, text = checks(looked.tick(minutes=40))["ods/a:expiry_lag"]
    assert passed
    assert text.startswith("4 snapshots, the oldest ")
    assert " old. Old snapshots are kept for consumer job (needs snapshot 1, last moved " in text
    assert checks(looked.tick(minutes=1)) == {}


def test_the_checks_of_a_table_are_told_again_after_an_action_on_it(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    writer = looked.write("ods.a", 4)
    assert checks(looked.tick(minutes=5))["ods/a:expiry_lag"][1].startswith("4 snapshots")
    actions = looked.lake.keeper.actions
    record = actions.begin(
        "ods.a", "snapshot expiry", reason="", details="{}", holder="a test", before=None
    )
    for number in (1, 2):
        (writer.folder / "snapshot" / f"snapshot-{number}").unlink()
    assert checks(looked.tick(minutes=1)) == {}
    looked.now += timedelta(seconds=5)
    actions.update(record.id, {"state": ActionState.DONE, "ended_at": looked.now})
    assert checks(looked.tick(seconds=5))["ods/a:expiry_lag"] == (True, "2 snapshots.")
    assert checks(looked.tick(minutes=1)) == {}


def test_a_check_of_expiry_names_who_holds_back(tmp_path: Path) -> None:
    policy = TablePolicy(
        expire=ExpireSpec(keep_at_least=1, keep_for="1h"), bounds=CheckBounds(expiry_lag="1h")
    )
    looked = Looked(tmp_path, MaintenancePolicy(policy))
    folder = looked.write("ods.a", 4).folder / "consumer"
    folder.mkdir()
    (folder / "consumer-report").write_text('{"nextSnapshot": 1}')
    result = looked.tick(hours=3)
    (event,) = [e for e in result.asset_events if e.check_name == "expiry_lag"]
    assert (event.passed, event.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "kept for consumer report (needs snapshot 1" in event.description
    assert asked(result) == []


def test_a_corrupt_table_fails_all_its_checks_and_is_left_alone(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    writer = looked.write("ods.a", 4)
    for manifest in (writer.folder / "manifest").glob("manifest-list-*"):
        manifest.unlink()
    result = looked.tick(hours=9)
    assert asked(result) == []
    told = checks(result)
    assert len(told) == 3
    assert all(not passed and "corrupt" in text for passed, text in told.values())


def test_a_check_that_is_run_by_hand_says_the_same(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    keys = [dg.AssetKey(["ods", "a"]), dg.AssetKey(["dwd", "b"])]
    (definition,) = {
        definition
        for key, definition in looked.repository.asset_checks_defs_by_key.items()
        if key.name == "small_files"
    }
    by_hand = dg.Definitions(assets=[dg.AssetSpec(k) for k in keys], asset_checks=[definition])
    job = by_hand.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(instance=looked.instance)
    found = {
        f"{e.asset_key.to_user_string()}:{e.check_name}": (e.passed, e.description)
        for e in done.get_asset_check_evaluations()
    }
    assert len(found) == 6
    assert all(passed for passed, _ in found.values())
    assert found["ods/a:small_files"] == (True, "4 of 4 files are small.")
    assert found["dwd/b:small_files"] == (True, "There is no such table yet.")


@pytest.mark.parametrize("job_name", ["lake_compact", "lake_expire"])
def test_a_table_that_no_job_knows_is_refused(tmp_path: Path, job_name: str) -> None:
    looked = Looked(tmp_path, MaintenancePolicy())
    config = {"ops": {f"{job_name}_tables": {"config": {"tables": ["ods.typo"]}}}}
    done = looked.repository.get_job(job_name).execute_in_process(
        run_config=config, instance=looked.instance, raise_on_error=False
    )
    (failure,) = [e for e in done.all_events if e.is_step_failure]
    assert "No job writes or reads ods.typo" in str(failure.event_specific_data)


def test_compacting_needs_a_name(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy())
    done = looked.repository.get_job("lake_compact").execute_in_process(
        run_config={"ops": {"lake_compact_tables": {"config": {}}}},
        instance=looked.instance,
        raise_on_error=False,
    )
    (failure,) = [e for e in done.all_events if e.is_step_failure]
    assert "No table was named" in str(failure.event_specific_data)


def test_an_hour_without_anything_due_ends_with_nothing_done(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy())
    looked.write("ods.a", 1)
    done = looked.repository.get_job("lake_maintain").execute_in_process(instance=looked.instance)
    assert done.success


def test_what_a_dead_run_left_behind_does_not_keep_others_from_being_done(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(EXPIRES))
    looked.write("ods.a", 4)
    keeper = looked.lake.keeper
    for _ in range(2):  # as many as may be under way at a time
        keeper.actions.begin(
            "dwd.b", "compact", reason="", details="{}", holder="a dead run", before=None
        )
    assert asked(looked.tick(hours=2)) == [["ods.a"]]
    with keeper.hold(["dwd.b"], "a test"):
        assert keeper.left_behind() == ()
        looked.cursor = None
        assert "later: ods.a: 2 actions are under way" in looked.tick().skip_message


def test_a_table_with_a_compaction_job_shows_that_jobs_health(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(tables={"ods.*": TablePolicy("dedicated")}))
    assert set(looked.lake.runtime.jobs) == {"ods_a", "dwd_b", "compact-ods.a"}
    keys = looked.repository.asset_checks_defs_by_key
    of_table = {key.name for key in keys if key.asset_key == dg.AssetKey(["ods", "a"])}
    assert [name for name in of_table if name.startswith("job_health__compact")]

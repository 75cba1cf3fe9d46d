"""What a job is submitted with, beside the user's own SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakehouse_dagster.errors import MissingVariableError
from lakehouse_dagster.sql.model import JobDefinition
from lakehouse_dagster.streaming.marker import Marker, read_marker
from lakehouse_dagster.streaming.settings import (
    checkpoint_directory,
    checkpoint_interval_is_set,
    incarnation_settings,
    job_settings,
    operator_suffix,
    savepoint_directory,
    script_settings,
)
from tests.streaming.making import job, load, source, table

JOB_ID = "0123456789abcdef0123456789abcdef"


def defined(
    folder: Path, *, sets: str = "", name: str = "orders", extra: str = ""
) -> JobDefinition:
    script = sets + table("o.a") + table("i.b") + source("x") + extra + job(name, "o.a", "i.b", "x")
    return load(folder, {"script": script}).runtime.job(name).definition


def settings(
    definition: JobDefinition,
    *,
    environ: Mapping[str, str] | None = None,
    restore_from: str | None = None,
    operator_name: str = "orders",
    ignore_unclaimed_state: bool = False,
) -> dict[str, str]:
    of_job = job_settings(
        definition,
        environ=environ or {},
        catalog="lake",
        operator_name=operator_name,
        flink_restart_attempts=7,
    )
    return incarnation_settings(
        of_job,
        Marker("lake@1", definition.name, 3, operator_name),
        flink_job_id=JOB_ID,
        restore_from=restore_from,
        ignore_unclaimed_state=ignore_unclaimed_state,
    )


def test_a_careful_operators_defaults_are_set(tmp_path: Path) -> None:
    found = settings(defined(tmp_path))
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    assert found[retention] == "RETAIN_ON_CANCELLATION"
    assert found["restart-strategy.type"] == "exponential-delay"
    attempts = "restart-strategy.exponential-delay.attempts-before-reset-backoff"
    assert found[attempts] == "7"
    assert found["table.exec.sink.upsert-materialize"] == "NONE"


def test_the_script_has_its_way_with_the_defaults(tmp_path: Path) -> None:
    sets = "SET 'restart-strategy.type' = 'fixed-delay';\n"
    sets += (
        "SET 'table.exec.sink.upsert-materialize' = 'FORCE';\nSET 'parallelism.default' = '3';\n"
    )
    found = settings(defined(tmp_path, sets=sets))
    assert found["restart-strategy.type"] == "fixed-delay"
    assert found["table.exec.sink.upsert-materialize"] == "FORCE"
    assert found["parallelism.default"] == "3"


def test_who_the_job_is_cannot_be_overruled_by_a_script(tmp_path: Path) -> None:
    sets = "SET '$internal.pipeline.job-id' = 'ffffffffffffffffffffffffffffffff';\n"
    sets += "SET 'table.dml-sync' = 'true';\nSET 'execution.state-recovery.path' = '/old';\n"
    found = settings(defined(tmp_path, sets=sets), restore_from="/new")
    assert found["$internal.pipeline.job-id"] == JOB_ID
    assert found["pipeline.name"] == "orders"
    assert found["table.dml-sync"] == "false"
    assert found["execution.runtime-mode"] == "streaming"
    assert found["execution.state-recovery.path"] == "/new"


def test_a_restore_point_stays_ours(tmp_path: Path) -> None:
    definition = defined(tmp_path)
    restored = settings(definition, restore_from="file:/ckpt/chk-7")
    assert restored["execution.state-recovery.path"] == "file:/ckpt/chk-7"
    assert restored["execution.state-recovery.claim-mode"] == "NO_CLAIM"
    fresh = settings(definition)
    assert not [key for key in fresh if key.startswith("execution.state-recovery")]


def test_operator_ids_and_commit_users_are_fixed_from_the_first_run_on(tmp_path: Path) -> None:
    found = settings(defined(tmp_path))
    assert {key: value for key, value in found.items() if key.startswith("paimon.")} == {
        "paimon.lake.o.a.sink.operator-uid.suffix": "o.orders",
        "paimon.lake.o.a.commit.user-prefix": "orders",
        "paimon.lake.i.b.source.operator-uid.suffix": "i.orders",
    }


def test_operator_ids_of_a_renamed_job_are_made_from_its_old_name(tmp_path: Path) -> None:
    found = settings(defined(tmp_path), operator_name="bookings 1")
    assert found["paimon.lake.o.a.sink.operator-uid.suffix"] == "o.bookings_1"
    assert found["paimon.lake.o.a.commit.user-prefix"] == "bookings_1"
    assert found["pipeline.name"] == "orders"


def test_operator_ids_of_a_job_started_by_hand_are_left_to_flink(tmp_path: Path) -> None:
    found = settings(defined(tmp_path), operator_name="")
    assert {key: value for key, value in found.items() if key.startswith("paimon.")} == {
        "paimon.lake.o.a.commit.user-prefix": "orders"
    }


def test_every_incarnation_carries_its_marker_beside_the_scripts_own_parameters(
    tmp_path: Path,
) -> None:
    sets = "SET 'pipeline.global-job-parameters' = 'team:blue';\n"
    found = settings(defined(tmp_path, sets=sets))["pipeline.global-job-parameters"]
    pairs = dict(pair.split(":", 1) for pair in found.split(","))
    assert pairs.pop("team") == "blue"
    assert read_marker(pairs) == Marker("lake@1", "orders", 3, "orders")


def test_state_that_nobody_claims_is_dropped_only_on_request(tmp_path: Path) -> None:
    option = "execution.state-recovery.ignore-unclaimed-state"
    definition = defined(tmp_path)
    assert option not in settings(definition, restore_from="/sp")
    assert option not in settings(definition, ignore_unclaimed_state=True)
    allowed = settings(definition, restore_from="/sp", ignore_unclaimed_state=True)
    assert allowed[option] == "true"


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("ods_a", "ods_a"), ("a.b-c", "a.b-c"), ("my job/1", "my_job_1"), ("健康 x", "_x")],
)
def test_operator_suffixes_hold_only_what_may_stand_there(name: str, suffix: str) -> None:
    assert operator_suffix(name) == suffix
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", operator_suffix(name))


def test_variables_are_filled_in_at_submission_only(tmp_path: Path) -> None:
    sets = "SET 'execution.checkpointing.interval' = '${EVERY:-5s}';\n"
    sets += "SET 's3.secret-key' = '${LAKE_SECRET}';\n"
    definition = defined(tmp_path, sets=sets)
    assert definition.settings["s3.secret-key"] == "${LAKE_SECRET}"
    filled = script_settings(definition, {"LAKE_SECRET": "it's"})
    assert filled["s3.secret-key"] == "it's"
    assert filled["execution.checkpointing.interval"] == "5s"
    with pytest.raises(MissingVariableError) as refused:
        script_settings(definition, {})
    assert "LAKE_SECRET" in str(refused.value)
    assert "script.sql" in str(refused.value)


def test_checkpoints_are_where_the_script_says_else_the_cluster(tmp_path: Path) -> None:
    plain = defined(tmp_path / "plain")
    sets = "SET 'execution.checkpointing.dir' = 's3://${BUCKET}/own';\n"
    own = defined(tmp_path / "own", sets=sets)
    cluster = {"execution.checkpointing.dir": "file:/cluster"}
    assert checkpoint_directory({}, plain, {}) is None
    assert checkpoint_directory(cluster, plain, {}) == "file:/cluster"
    assert checkpoint_directory({"state.checkpoints.dir": "file:/old"}, plain, {}) == "file:/old"
    assert checkpoint_directory(cluster, own, {"BUCKET": "b"}) == "s3://b/own"


def test_savepoints_are_where_the_script_says_else_left_to_the_cluster(tmp_path: Path) -> None:
    plain = defined(tmp_path / "plain")
    own = defined(tmp_path / "own", sets="SET 'execution.checkpointing.savepoint-dir' = '/sp';\n")
    assert savepoint_directory(plain, {}) is None
    assert savepoint_directory(own, {}) == "/sp"


def test_whether_checkpoints_are_taken_at_all_is_known(tmp_path: Path) -> None:
    plain = defined(tmp_path / "plain")
    own = defined(tmp_path / "own", sets="SET 'execution.checkpointing.interval' = '5s';\n")
    assert not checkpoint_interval_is_set({}, plain)
    assert checkpoint_interval_is_set({"execution.checkpointing.interval": "1 min"}, plain)
    assert checkpoint_interval_is_set({}, own)

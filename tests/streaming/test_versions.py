"""What a job was submitted with is remembered, unless a secret stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.flink import ExecutionPlan
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.versions import (
    deployed,
    holds_secret,
    job_of,
    plan_of,
    remember,
)
from lakehouse_dagster.system_db import IncarnationState
from tests.flink.recorded_plans import recorded
from tests.streaming.making import job, load, source, table

PLAN = recorded("agg").plan()


def project(folder: Path, *, where: str = "", extra: str = "") -> Runtime:
    ods = extra + table("o.a") + source("x") + job("orders", "o.a", "x")
    dwd = job("totals", "d.b", "o.a")
    script = ods.replace(" FROM x", f" FROM x{where}")
    return load(folder, {"ods": script, "dwd": table("d.b") + dwd}).runtime


def submitted(runtime: Runtime, name: str, number: int, plan: ExecutionPlan = PLAN) -> None:
    """As ``submission.launch`` does it, without a cluster."""
    with runtime.hold(name, "test") as held:
        remember(held, plan)
        runtime.memory.record(
            name,
            number=number,
            flink_job_id=f"{number:032x}",
            fingerprint=held.job.fingerprint,
            restored_from=None,
            fencing=held.lease.fencing,
            session_handle=None,
        )


def test_what_ran_is_known_after_its_script_was_edited(tmp_path: Path) -> None:
    before = project(tmp_path)
    submitted(before, "totals", 1)
    was = before.jobs["totals"]
    assert deployed(before, "totals") is was  # the declared one: nothing has changed
    (tmp_path / "sql" / "dwd.sql").write_text(
        table("d.b") + "SET 'pipeline.name' = 'totals';\nINSERT INTO d.b SELECT id, v FROM o.a "
        "WHERE id > 7;\n"
    )
    after = load(tmp_path, {}).runtime
    assert after.jobs["totals"].fingerprint != was.fingerprint
    ran = deployed(after, "totals")
    assert ran == was
    assert ran is not None
    assert ran.declared_elsewhere == was.declared_elsewhere != ()


def test_each_incarnation_keeps_its_own_version_and_plan(tmp_path: Path) -> None:
    first = project(tmp_path)
    submitted(first, "orders", 1)
    second = project(tmp_path, where=" WHERE id > 1")
    other = recorded("plain").plan()
    submitted(second, "orders", 2, other)
    two, one = second.memory.incarnations("orders")
    assert plan_of(second, one) == PLAN
    assert plan_of(second, two) == other
    assert job_of(second, one) == first.jobs["orders"]
    assert job_of(second, two) == deployed(second, "orders") == second.jobs["orders"]


def test_a_renamed_job_runs_its_old_version_under_its_new_name(tmp_path: Path) -> None:
    before = project(tmp_path)
    submitted(before, "orders", 1)
    before.memory.update("orders", 1, state=IncarnationState.ENDED)
    before.memory.rename("orders", "bookings")
    script = table("o.a") + source("x") + job("bookings", "o.a", "x")
    after = load(tmp_path, {"ods": script}).runtime
    ran = deployed(after, "bookings")
    assert ran is not None
    assert ran.name == "bookings"
    assert ran.definition.statement == before.jobs["orders"].definition.statement


def test_a_job_that_never_ran_has_no_version(tmp_path: Path) -> None:
    assert deployed(project(tmp_path), "orders") is None


@pytest.mark.parametrize(
    ("extra", "secret"),
    [
        ("SET 's3.secret-key' = 'hunter22';\n", True),
        ("SET 's3.secret-key' = '${LAKE_KEY}';\n", False),
        ("SET 's3.secret-key' = '${LAKE_KEY:-hunter22}';\n", True),
        (
            "CREATE TEMPORARY TABLE k (id INT) WITH ('connector' = 'datagen', "
            "'password' = 'hunter22');\n",
            True,
        ),
        ("SET 'parallelism.default' = '3';\n", False),
    ],
)
def test_a_script_with_a_secret_in_it_is_never_stored(
    tmp_path: Path, extra: str, secret: bool
) -> None:
    runtime = project(tmp_path, extra=extra)
    assert holds_secret(runtime.jobs["orders"]) is secret
    submitted(runtime, "orders", 1)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("lakehouse.db*"))
    assert b"hunter22" not in stored
    assert (b"CREATE TABLE IF NOT EXISTS o.a" in stored) is not secret
    edited = project(tmp_path, extra=extra, where=" WHERE id > 1")
    assert (deployed(edited, "orders") is None) is secret
    (incarnation,) = edited.memory.incarnations("orders")
    assert plan_of(edited, incarnation) == PLAN  # it shows no secrets


def test_a_version_that_cannot_be_read_any_more_counts_as_unknown(tmp_path: Path) -> None:
    runtime = project(tmp_path)
    submitted(runtime, "orders", 1)
    fingerprint = runtime.jobs["orders"].fingerprint
    runtime.memory.save_version("orders", fingerprint, '{"definition": 1}', '{"nodes": 2}')
    edited = project(tmp_path, where=" WHERE id > 1")
    assert deployed(edited, "orders") is None
    (incarnation,) = edited.memory.incarnations("orders")
    assert plan_of(edited, incarnation) is None

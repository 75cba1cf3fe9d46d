"""``lakehouse status``: the same document whether the cluster answers or not, and soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from lakehouse_dagster.cli.project import load_project
from lakehouse_dagster.system_db import flink_job_id
from tests.cli.projects import Project, project
from tests.paimon.writing import Writer
from tests.streaming.overview_server import (
    Overview,
    completed_checkpoint,
    overview_entry,
    overview_server,
)
from tests.streaming.test_progress import COLUMNS

__all__ = ["project"]

JOB_KEYS = {
    "name",
    "desired",
    "observed",
    "reason",
    "incarnation",
    "flink_job_id",
    "restarts",
    "last_checkpoint_age_seconds",
    "waits_for_a_person",
    "last_error",
    "outdated",
    "orphaned",
    "foreign",
    "attempts",
    "next_attempt_at",
    "root_cause",
}
TABLE_KEYS = {
    "name",
    "snapshot",
    "committed_at",
    "age_seconds",
    "watermark_lag_seconds",
    "problem",
}


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as served:
        yield served


def write_orders(project: Project, commits: int) -> None:
    writer = Writer(
        project.folder / "warehouse",
        "shop.orders",
        COLUMNS,
        primary_keys=("id",),
        options={"bucket": "1"},
    )
    for number in range(commits):
        writer.append([{"id": number, "v": "x"}])


def start(project: Project, name: str) -> str:
    memory = load_project("shop").runtime.memory
    memory.ensure(name)
    job_id = flink_job_id("lake", name, 1)
    memory.record(
        name,
        number=1,
        flink_job_id=job_id,
        fingerprint="f",
        restored_from=None,
        fencing=1,
        session_handle=None,
    )
    return job_id


def test_status_with_the_cluster_down_has_every_key_and_the_tables(project: Project) -> None:
    project.module()
    job_id = start(project, "orders")
    write_orders(project, 2)
    started = time.monotonic()
    said = project.run("status", "-m", "shop", "--json")
    assert time.monotonic() - started < 25
    assert (said.code, said.err) == (0, "")
    assert set(said.json) == {"jobs", "tables"}
    assert all(set(job) == JOB_KEYS for job in said.json["jobs"])
    assert all(set(table) == TABLE_KEYS for table in said.json["tables"])
    jobs = {job["name"]: job for job in said.json["jobs"]}
    assert sorted(jobs) == ["orders", "sales"]
    assert {job["observed"] for job in jobs.values()} == {"UNREACHABLE"}
    assert "http://127.0.0.1:9" in jobs["orders"]["reason"]
    assert (jobs["orders"]["incarnation"], jobs["orders"]["flink_job_id"]) == (1, job_id)
    assert (jobs["sales"]["incarnation"], jobs["sales"]["desired"]) == (None, "UNMANAGED")
    tables = {table["name"]: table for table in said.json["tables"]}
    assert (tables["shop.orders"]["snapshot"], tables["shop.sales"]["snapshot"]) == (2, None)
    committed = datetime.fromisoformat(tables["shop.orders"]["committed_at"])
    assert committed.utcoffset() == timedelta(0)
    assert 0 <= tables["shop.orders"]["age_seconds"] < 60
    assert tables["shop.sales"] == {"name": "shop.sales", **dict.fromkeys(TABLE_KEYS - {"name"})}


def test_a_cluster_that_accepts_but_never_answers_is_not_waited_for_long(
    project: Project,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        project.module(rest_url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        said = project.run("status", "-m", "shop", "--json")
        assert time.monotonic() - started < 25
    assert [job["observed"] for job in said.json["jobs"]] == ["UNREACHABLE", "UNREACHABLE"]


def test_status_with_the_cluster_up_shows_what_it_says(
    project: Project, overview: Overview
) -> None:
    project.module(rest_url=overview.rest_url)
    job_id = start(project, "orders")
    now = int(time.time() * 1000)
    overview.jobs = [overview_entry(job_id, **{"start-time": now})]
    overview.checkpoints[job_id] = completed_checkpoint(4)
    overview.checkpoints[job_id]["latest"]["completed"]["latest_ack_timestamp"] = now - 3000
    overview.checkpoints[job_id]["latest"]["completed"]["trigger_timestamp"] = now - 3000
    said = project.run("status", "-m", "shop", "--json")
    orders = next(job for job in said.json["jobs"] if job["name"] == "orders")
    assert (orders["observed"], orders["restarts"]) == ("RUNNING", 0)
    assert 2 < orders["last_checkpoint_age_seconds"] < 30


def test_status_asks_about_every_job_however_many(project: Project, overview: Overview) -> None:
    from tests.streaming.making import job, source, table, write_scripts

    project.module(rest_url=overview.rest_url)
    names = [f"j{n}" for n in range(30)]
    write_scripts(
        project.folder / "sql",
        {n: table(f"more.{n}") + source(f"x{n}") + job(n, f"more.{n}", f"x{n}") for n in names},
    )
    ids = [start(project, name) for name in names]
    overview.jobs = [overview_entry(job_id) for job_id in ids]
    for job_id in ids:
        overview.checkpoints[job_id] = completed_checkpoint(1)
    said = project.run("status", "-m", "shop", "--json")
    ages = {job["name"]: job["last_checkpoint_age_seconds"] for job in said.json["jobs"]}
    assert all(ages[name] is not None for name in names)


def test_status_for_people_names_jobs_tables_and_reasons(project: Project) -> None:
    project.module()
    write_orders(project, 1)
    said = project.run("status", "-m", "shop")
    assert said.code == 0
    assert "orders  UNMANAGED  UNREACHABLE" in " ".join(said.out.split(" ")).replace("   ", "  ")
    assert "http://127.0.0.1:9" in said.out
    assert "shop.orders" in said.out
    assert " ago" in said.out


def test_a_table_that_cannot_be_read_says_why(project: Project) -> None:
    project.module()
    write_orders(project, 1)
    (project.folder / "warehouse" / "shop.db" / "orders" / "snapshot" / "snapshot-1").write_text(
        "{"
    )
    said = project.run("status", "-m", "shop", "--json")
    orders = next(table for table in said.json["tables"] if table["name"] == "shop.orders")
    assert (said.code, orders["snapshot"]) == (0, None)
    assert "shop.orders" in orders["problem"]

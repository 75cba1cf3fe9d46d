"""``lakehouse jobs``: says what it would do, does it once, says what was done."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lakehouse_dagster.cli import jobs as command
from lakehouse_dagster.cli.project import load_project
from lakehouse_dagster.errors import StreamingJobError
from lakehouse_dagster.streaming.apply import Applied
from lakehouse_dagster.streaming.definitions import _records
from lakehouse_dagster.streaming.outcomes import in_words
from lakehouse_dagster.streaming.start import StartedHow, StartOutcome
from lakehouse_dagster.streaming.stop import StopOutcome, StoppedHow
from lakehouse_dagster.system_db import DesiredState, flink_job_id
from tests.cli.projects import Project, project
from tests.streaming.overview_server import Overview, overview_entry, overview_server

__all__ = ["project"]

DONE = (
    Applied(
        "a",
        StartOutcome("a", StartedHow.STARTED, 2, "id", "file:/chk-7", "checkpoint 7"),
        None,
    ),
    Applied("b", StopOutcome("b", StoppedHow.STOPPED, 1, "file:/savepoint-1"), None),
    Applied("c", StopOutcome("c", StoppedHow.CANCELLED, 3, None), None),
    Applied("d", StopOutcome("d", StoppedHow.DID_NOT_RUN, None, None), None),
    Applied("e", StopOutcome("e", StoppedHow.DID_NOT_RUN, 1, "file:/savepoint-0"), None),
    Applied("f", None, StreamingJobError("It broke.", remedy="Mend it.")),
)


@pytest.fixture
def overview() -> Iterator[Overview]:
    with overview_server() as served:
        yield served


@pytest.mark.parametrize("action", ["start", "stop", "restart", "cancel"])
def test_a_dry_run_says_what_each_job_is_and_does_nothing(
    project: Project, overview: Overview, action: str
) -> None:
    project.module(rest_url=overview.rest_url)
    memory = load_project("shop").runtime.memory
    running = flink_job_id("lake", "orders", 1)
    memory.ensure("orders")
    memory.record(
        "orders",
        number=1,
        flink_job_id=running,
        fingerprint="f",
        restored_from=None,
        fencing=1,
        session_handle=None,
    )
    memory.set_desired("orders", DesiredState.RUNNING)
    memory.count_attempt("orders", next_attempt_at=None)
    now = int(time.time() * 1000)
    overview.jobs = [overview_entry(running, **{"start-time": now})]
    said = project.run("jobs", action, "sales", "orders", "sales", "-m", "shop", "--dry-run")
    assert (said.code, said.out, said.err) == (
        0,
        f"would {action} sales, which is ABSENT: never started\n"
        f"would {action} orders, which is RUNNING: all tasks run\n",
        "",
    )
    details = {f"/jobs/{running}/checkpoints", f"/jobs/{running}/exceptions"}
    assert set(overview.requests) == {"/jobs/overview", *details}
    record, unknown = memory.get("orders"), memory.get("sales")
    assert record is not None
    assert (record.desired, record.attempts) == (DesiredState.RUNNING, 1)
    assert unknown is not None
    assert unknown.desired is DesiredState.UNMANAGED
    assert [i.number for i in memory.incarnations("orders")] == [1]


def test_a_dry_run_as_json_has_the_documented_keys(project: Project, overview: Overview) -> None:
    project.module(rest_url=overview.rest_url)
    said = project.run("jobs", "start", "orders", "-m", "shop", "--dry-run", "--json")
    assert said.json == [
        {"job": "orders", "verb": "start", "desired": "UNMANAGED", "observed": "ABSENT"}
    ]


def test_a_dry_run_without_a_cluster_says_that_nothing_is_known(project: Project) -> None:
    project.module()
    said = project.run("jobs", "start", "orders", "-m", "shop", "--dry-run")
    assert said.code == 0
    assert said.out.startswith("would start orders, which is UNREACHABLE: ")


@pytest.mark.parametrize("action", ["start", "stop", "restart", "cancel"])
def test_an_unreachable_cluster_is_one_clear_sentence(project: Project, action: str) -> None:
    project.module()
    said = project.run("jobs", action, "orders", "-m", "shop")
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("Error: orders: The ")
    assert "'flink' at http://127.0.0.1:9" in line
    assert line.endswith("Look whether it runs and can be reached from here, then try again.")
    assert load_project("shop").runtime.memory.incarnations("orders") == ()


def test_an_unreachable_cluster_as_json_is_an_entry_with_the_error(project: Project) -> None:
    project.module()
    said = project.run("jobs", "start", "orders", "sales", "-m", "shop", "--json")
    assert said.code == 1
    assert [entry["job"] for entry in said.json] == ["orders", "sales"]
    assert all(set(entry) == {"job", "error"} for entry in said.json)
    assert len(said.err.splitlines()) == 2


def test_a_job_that_could_not_be_started_is_still_wanted_by_the_supervisor(
    project: Project,
) -> None:
    project.module()
    said = project.run("jobs", "start", "orders", "-m", "shop")
    record = load_project("shop").runtime.memory.get("orders")
    assert record is not None
    assert record.desired is DesiredState.RUNNING
    assert f"Error: orders: {record.last_error}\n" == said.err


def test_text_says_what_was_done() -> None:
    assert [in_words(result.outcome) for result in DONE if result.outcome is not None] == [
        "a: started as incarnation 2 (Flink job id), checkpoint 7",
        "b: stopped with savepoint file:/savepoint-1",
        "c: cancelled; its checkpoints are kept",
        "d: did not run",
        "e: did not run",
    ]


def test_json_says_what_was_done() -> None:
    found = [command._as_data(result) for result in DONE]
    assert [(entry["job"], entry.get("how")) for entry in found] == [
        ("a", "started"),
        ("b", "stopped"),
        ("c", "cancelled"),
        ("d", "did not run"),
        ("e", "did not run"),
        ("f", None),
    ]
    assert set(found[1]) == {"job", "how", "incarnation", "savepoint_path", "error"}
    assert found[-1] == {"job": "f", "error": "It broke. Mend it."}


def test_dagster_says_what_was_done() -> None:
    found = [record.data for record in _records(DONE)]
    assert [(entry["job"], entry["outcome"]) for entry in found] == [
        ("a", "started"),
        ("b", "stopped"),
        ("c", "cancelled"),
        ("d", "did not run"),
        ("e", "did not run"),
        ("f", "failed: It broke. Mend it."),
    ]
    assert found[3]["incarnation"] == ""

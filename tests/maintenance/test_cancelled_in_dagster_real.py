"""Dagster's own Cancel button, and a run's process that is killed, while a Flink job is at work.

A real webserver and code location run ``lake_compact``; the Flink job stands still at a file, so
that whatever is done to the run surely comes while it is at work.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg
import psutil
import pytest

from lakehouse_dagster.flink import FlinkJobStatus, JobSummary
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord
from tests.browser.dagster_ui import INSTANCE, served
from tests.maintenance.cases import T
from tests.maintenance.project import ROOT, ROWS, write_project
from tests.maintenance.tables import Tables
from tests.support.faults import HeldFile, is_cancelled_for_good
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.dagster, pytest.mark.flink]

AT_ONCE = "run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}\n"
LOCATION = "cancelled_shop"
LAUNCH = """
mutation($selector: JobOrPipelineSelector!, $config: RunConfigData) {
  launchRun(executionParams: {selector: $selector, runConfigData: $config}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on PipelineNotFoundError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""
TERMINATE = """
mutation($run: String!, $policy: TerminateRunPolicy) {
  terminateRun(runId: $run, terminatePolicy: $policy) { __typename }
}"""


@dataclass
class Shop:
    """A code location with the table ``m.t`` of six small files, served by Dagster's webserver."""

    tables: Tables
    url: str
    instance: dg.DagsterInstance

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """What the webserver answers to a GraphQL query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return dict(found["data"])

    def compact(self) -> str:
        """Launch a full compaction of the table, as the launchpad does; the run's id."""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": LOCATION,
            "pipelineName": "lake_compact",
        }
        config = {"ops": {"lake_compact_tables": {"config": {"tables": [T]}}}}
        launched = self.ask(LAUNCH, selector=selector, config=config)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def terminate(self, run: str, policy: str) -> None:
        answer = self.ask(TERMINATE, run=run, policy=policy)["terminateRun"]
        assert answer == {"__typename": "TerminateRunSuccess"}

    def wait_for(self, run: str, status: dg.DagsterRunStatus) -> None:
        def is_so() -> bool:
            found = self.instance.get_run_by_id(run)
            return found is not None and found.status is status

        until(is_so, f"the run {status.value}")

    def process_of(self, run: str) -> psutil.Process:
        """The process in which the run's op is at work, by what Dagster says of it."""
        events = [entry.dagster_event for entry in self.instance.all_logs(run)]
        pids = {
            int(str(event.event_specific_data.metadata["pid"].value))
            for event in events
            if event is not None
            and isinstance(event.event_specific_data, dg._core.events.EngineEventData)
            and "pid" in event.event_specific_data.metadata
        }
        (pid,) = pids
        return psutil.Process(pid)

    def job(self, record: ActionRecord) -> JobSummary | None:
        with self.tables.lab.cluster.job_manager() as job_manager:
            return job_manager.job(str(record.flink_job_id))

    def states(self) -> list[str]:
        """How the actions on the table ended, oldest first."""
        return [r.state.value for r in self.tables.keeper.actions.of_table(T)][::-1]

    def ends_its_job(self, file: HeldFile, record: ActionRecord) -> None:
        """Let the file go when the Flink job is cancelled so far that it commits nothing more."""
        rest_url = self.tables.lab.rest_url
        until(lambda: is_cancelled_for_good(rest_url, str(record.flink_job_id)), "its cancelling")
        file.let_go()

        def is_cancelled() -> bool:
            job = self.job(record)
            return job is not None and job.status is FlinkJobStatus.CANCELED

        until(is_cancelled, "the Flink job's end")

    def is_as_it_was(self) -> None:
        assert self.tables.facts(T).files == 6
        assert self.tables.rows(T) == ROWS

    def next_run_compacts(self) -> None:
        self.wait_for(self.compact(), dg.DagsterRunStatus.SUCCESS)
        assert self.tables.facts(T).files == 1
        assert self.tables.rows(T) == ROWS
        with self.tables.lab.cluster.job_manager() as job_manager:
            mine = {r.flink_job_id for r in self.tables.keeper.actions.of_table(T)}
            alive = [j for j in job_manager.jobs() if not j.status.is_terminal]
        assert [job for job in alive if job.job_id in mine] == []


@pytest.fixture
def shop(lab: Laboratory) -> Iterator[Shop]:
    folder, home = lab.folder, lab.folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE + AT_ONCE)
    tables = write_project(lab, LOCATION)
    environ = {"PYTHONPATH": f"{ROOT}:{folder}"}
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        served(folder, home, environ, module=LOCATION) as url,
    ):
        yield Shop(tables, url, instance)


@contextmanager
def at_work(shop: Shop) -> Iterator[tuple[str, ActionRecord, HeldFile]]:
    """A run whose Flink job stands still until the file is let go."""
    with HeldFile(next(shop.tables.folder(T).glob("bucket-0/*.parquet"))) as file:
        file.take()
        run = shop.compact()
        file.wait_until_wanted()
        (record,) = shop.tables.keeper.actions.running()
        yield run, record, file


@pytest.mark.parametrize("policy", ["SAFE_TERMINATE", "MARK_AS_CANCELED_IMMEDIATELY"])
def test_a_run_cancelled_by_dagsters_button_cancels_its_flink_job(shop: Shop, policy: str) -> None:
    with at_work(shop) as (run, record, file):
        shop.terminate(run, policy)
        shop.ends_its_job(file, record)
    shop.wait_for(run, dg.DagsterRunStatus.CANCELED)
    until(lambda: shop.states() == ["cancelled"], "what became of it on record")
    shop.is_as_it_was()
    until(lambda: not shop.tables.keeper.is_held(T), "the end of the run's process")
    shop.next_run_compacts()
    assert shop.states() == ["cancelled", "done"]


def test_a_run_whose_process_is_killed_is_settled_by_the_next_one(shop: Shop) -> None:
    with at_work(shop) as (run, record, file):
        os.kill(shop.process_of(run).pid, signal.SIGKILL)
        until(lambda: not shop.tables.keeper.is_held(T), "the end of the dead run's lease")
        again = shop.compact()
        shop.ends_its_job(file, record)
    shop.wait_for(again, dg.DagsterRunStatus.SUCCESS)
    assert shop.states() == ["interrupted", "done"]
    assert shop.tables.facts(T).files == 1
    assert shop.tables.rows(T) == ROWS

"""What a person sees in Dagster, read from its own pages by a real browser. Needs no Flink."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from definitions import lake
from lakehouse_dagster import FlinkCluster, PaimonCatalog, SystemDatabase
from lakehouse_dagster.streaming.runtime import Clock
from lakehouse_dagster.system_db import DesiredState, flink_job_id
from tests.browser.dagster_ui import INSTANCE, ROOT, DagsterUi, Page, browser, webserver
from tests.paimon.writing import Writer
from tests.streaming.overview_server import Overview, overview_entry, overview_server

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not all(browser()),
        reason="Chromium and its driver are not installed: pages are not looked at",
    ),
]

ERRORS = (
    "An error occurred",
    "Unexpected error",
    "Sorry, something went wrong",
    "GraphQL error",
    "Operation name:",
    "failed to load",
    "Load error",
    "Code location error",
)


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterUi]:
    """The project's definitions on an instance with what their sensors report of two jobs."""
    folder = tmp_path_factory.mktemp("ui")
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("DAGSTER_HOME", str(home))
        with dg.DagsterInstance.get() as instance, overview_server() as overview:
            Sensors(folder, instance, overview).report()
    with webserver(folder, home, {"LAKE_WAREHOUSE": str(folder / "warehouse")}) as served:
        yield served
    assert "Traceback" not in (folder / "webserver.log").read_text()


class Sensors:
    """The project's two sensors, ticked at times of our own; the JobManager is a fake."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, overview: Overview) -> None:
        self.instance, self.overview = instance, overview
        self.now = datetime.now(timezone.utc) - timedelta(hours=1)
        self.loaded = replace(
            lake,
            catalog=PaimonCatalog(str(folder / "warehouse")),
            flink=FlinkCluster(overview.rest_url, overview.rest_url),
            system_database=SystemDatabase(f"sqlite:///{folder / 'lakehouse.db'}"),
        ).load("definitions/sql", base_folder=ROOT)
        clock = Clock(now=lambda: self.now)
        self.loaded.__dict__["runtime"] = replace(self.loaded.runtime, clock=clock)
        self.repository = self.loaded.definitions().get_repository_def()
        self.cursors: dict[str, str | None] = {}
        self.writer = Writer(
            folder / "warehouse",
            "ods.work_order",
            pa.schema([pa.field("order_id", pa.int64(), nullable=False), ("status", pa.string())]),
            primary_keys=("order_id",),
            options={"bucket": "1"},
        )

    def report(self) -> None:
        """Three progress events of one table; a job that runs, and one that Flink gave up."""
        for commits in (3, 1, 5):
            for number in range(commits):
                rows = [{"order_id": n, "status": "submitted"} for n in range(10 + number)]
                self.writer.append(rows)
            self.tick("lake_progress")
            self.now += timedelta(minutes=10)
        started = {"start-time": int(self.now.timestamp() * 1000)}
        self.overview.jobs = [
            overview_entry(self.started("ods_work_order"), **started),
            overview_entry(self.started("dwd_work_order"), "FAILED", **started),
        ]
        self.tick("lake_supervisor")

    def started(self, name: str) -> str:
        memory = self.loaded.runtime.memory
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
        memory.set_desired(name, DesiredState.RUNNING)
        return job_id

    def tick(self, name: str) -> None:
        sensor = self.repository.get_sensor_def(name)
        context = dg.build_sensor_context(
            self.instance, cursor=self.cursors.get(name), repository_def=self.repository
        )
        result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursors[name] = result.cursor


def look(ui: DagsterUi, path: str, *words: str) -> Page:
    """A page that shows these words and no error."""
    wanted = ("Deployment", *words)
    page = ui.look(path, *wanted)
    assert [error for error in ERRORS if error in page] == []
    assert not [name for name in page.classes if "dialog" in name.lower()]
    assert "dialog" not in page.roles
    missing = [expected for expected in wanted if expected not in page]
    assert not missing, page.text
    return page


def test_the_lineage_shows_every_group(ui: DagsterUi) -> None:
    groups = (" sources 3 ", " ods 1 2 ", " dwd 1 ", " app 2 ")  # of ods, one has events
    look(ui, "/asset-groups", "Global asset lineage", *groups, "Materialize all (6)")


def test_a_group_shows_its_assets_with_kinds_and_state(ui: DagsterUi) -> None:
    ods = "/locations/definitions/asset-groups/ods/lineage"
    # Who writes the table was looked at before its job was managed: that is not told then.
    checks = "Asset checks 1 / 3 Passed"
    look(ui, ods, " agent ", " city ", " work_order ", "Flink paimon", " Materialized ", checks)


def test_an_assets_page_shows_what_it_is_and_how_it_is(ui: DagsterUi) -> None:
    page = look(
        ui,
        "/assets/ods/work_order",
        "Work orders, newest version",
        "Written by the streaming job ods_work_order",
        "order_id BIGINT non-nullable unique",
        "amount DECIMAL(10, 2) value of the ticket in CNY",
        "submitted_at TIMESTAMP(3) when it was submitted (UTC); never changes",
        "lake.ods.work_order",
        "Upstream assets filesystem / work_order",
        "Downstream assets dwd / work_order",
        "Open CREATE TABLE",
        "Flink paimon",
        "rows_written",
    )
    assert "Never materialized" not in page
    assert re.search(r" rows_written [\w ,:]+ 60 ", page.text)  # 10 + 11 + 12 + 13 + 14


def test_an_assets_page_shows_what_its_columns_are_made_from(ui: DagsterUi) -> None:
    page = look(
        ui,
        "/assets/dwd/work_order",
        "columns_made_from",
        "column made from",
        "order_id ods/work_order.order_id",
        "agent_name ods/agent.agent_name",
        "region ods/city.region",
        "row_filters",
    )
    filters = page.text.partition(" row_filters ")[2]
    assert "ods/work_order.status" in filters
    assert "column_lineage_unknown" not in page


def test_the_events_page_shows_each_progress_event_with_its_snapshots(ui: DagsterUi) -> None:
    look(
        ui,
        "/assets/ods/work_order?view=events",
        "Snapshots 5 to 9.",
        "snapshot_range 5 to 9",
        "commits 5 APPEND",
        "rows_written 60",
        "files_added 5",
        "Reported",
    )


def test_the_checks_page_shows_the_health_of_the_job(ui: DagsterUi) -> None:
    said = "Should be RUNNING, is FAILED: Flink gave up on it."
    page = "/assets/dwd/work_order?view=checks&checkDetail=job_health"
    look(ui, page, "job_health", "foreign_commits", said)


def test_the_automation_page_shows_both_sensors(ui: DagsterUi) -> None:
    sensors = [f"{name} Standard sensor" for name in ("lake_progress", "lake_supervisor")]
    look(ui, "/automation", *sensors)


def test_the_code_location_is_loaded(ui: DagsterUi) -> None:
    page = look(ui, "/deployment/locations", " Loaded ")
    assert " Failed " not in page

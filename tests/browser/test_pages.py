"""What a person sees in Dagster, read from its own pages by a real browser. Needs no Flink."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest

from definitions import lake
from lakehouse_dagster import LoadedLakehouse
from lakehouse_dagster.streaming.assets import health_check_keys
from lakehouse_dagster.streaming.events import check_evaluations, progress_materialization
from lakehouse_dagster.streaming.observe import Observation, ObservedState
from lakehouse_dagster.streaming.progress import ProgressEvent
from lakehouse_dagster.system_db import DesiredState
from tests.browser.dagster_ui import INSTANCE, ROOT, DagsterUi, Page, browser, webserver
from tests.streaming.making import incarnation, record

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        browser() is None, reason="no Chromium is installed: pages are not looked at"
    ),
]

NOW = datetime.now(timezone.utc).replace(microsecond=0)
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
    """The project's definitions on an instance with three progress events and two checks."""
    folder = tmp_path_factory.mktemp("ui")
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("DAGSTER_HOME", str(home))
        with dg.DagsterInstance.get() as instance:
            report(instance, lake.load(ROOT / "definitions" / "sql", base_folder=ROOT))
    with webserver(folder, home, {"LAKE_WAREHOUSE": str(folder / "warehouse")}) as served:
        yield served


def report(instance: dg.DagsterInstance, loaded: LoadedLakehouse) -> None:
    """What the two sensors would have reported after a few minutes."""
    for number, (first, last, rows) in enumerate(((1, 3, 1200), (4, 4, 210), (5, 9, 1777))):
        at = NOW - timedelta(minutes=10 - number)
        moved = ProgressEvent(
            table="ods.work_order",
            first_snapshot=first,
            last_snapshot=last,
            committed_at=at,
            watermark=None,
            commit_user="ods_work_order-7",
            commits_by_kind={"APPEND": last - first + 1},
            rows_written=rows,
            rows_removed=0,
            files_added=4,
            files_deleted=1,
            bytes_added=8192,
            partitions=(),
            expired=(),
            snapshots_not_looked_into=0,
        )
        key = loaded.graph.key("ods.work_order")
        instance.report_runless_asset_event(progress_materialization(key, moved, NOW))
    keys = health_check_keys(loaded.runtime, loaded.graph)
    for job, observed in (
        ("ods_work_order", ObservedState.RUNNING),
        ("dwd_work_order", ObservedState.FAILED),
    ):
        seen = Observation(
            job,
            DesiredState.RUNNING,
            observed,
            "all tasks run" if observed is ObservedState.RUNNING else "Flink gave up on it",
            incarnation(3, job=job),
        )
        for event in check_evaluations(keys, seen, record(job), loaded.runtime.policy):
            instance.report_runless_asset_event(event)


def look(ui: DagsterUi, path: str) -> Page:
    page = ui.look(path)
    assert "Deployment" in page, f"Dagster's page did not come up: {page.text[:200]}"
    assert [words for words in ERRORS if words in page] == []
    assert not [name for name in page.classes if "dialog" in name.lower()]
    assert "dialog" not in page.roles
    return page


def test_the_lineage_shows_every_group(ui: DagsterUi) -> None:
    page = look(ui, "/asset-groups")
    assert "Global asset lineage" in page
    for group, assets in (("sources", 3), ("ods", 3), ("dwd", 1), ("app", 2)):
        assert f" {group} {assets} " in page
    assert "Materialize all (6)" in page


def test_a_group_shows_its_assets_with_kinds_and_state(ui: DagsterUi) -> None:
    page = look(ui, "/locations/definitions/asset-groups/ods/lineage")
    print(page.text)
    for name in ("work_order", "agent", "city"):
        assert name in page


def test_an_assets_page_shows_what_it_is_and_how_it_is(ui: DagsterUi) -> None:
    page = look(ui, "/assets/ods/work_order")
    print(page.text)
    assert "Work orders, newest version" in page
    assert "Written by the streaming job ods_work_order" in page
    for column in (
        "order_id BIGINT non-nullable unique",
        "amount DECIMAL(10, 2) value of the ticket in CNY",
        "submitted_at TIMESTAMP(3) when it was submitted (UTC); never changes",
    ):
        assert column in page
    assert "Never materialized" not in page
    assert "lake.ods.work_order" in page
    assert "Upstream assets filesystem / work_order" in page
    assert "Downstream assets dwd / work_order" in page
    assert "Open CREATE TABLE" in page
    assert "Flink paimon" in page
    assert "rows_written" in page
    assert "1777" in page.text.replace(",", "")


def test_the_events_page_shows_each_progress_event_with_its_snapshots(ui: DagsterUi) -> None:
    page = look(ui, "/assets/ods/work_order?view=events")
    print(page.text)
    assert "Snapshots 5 to 9." in page
    for name, value in (
        ("snapshots", "5 to 9"),
        ("commits", "5 APPEND"),
        ("files_added", "4"),
        ("commit_user", "ods_work_order-7"),
    ):
        assert f"{name} {value}" in page
    assert "dagster/data_version" in page


def test_the_checks_page_shows_the_health_of_the_job(ui: DagsterUi) -> None:
    page = look(ui, "/assets/dwd/work_order?view=checks")
    print(page.text)
    assert "job_health" in page
    assert "Should be RUNNING, is FAILED: Flink gave up on it." in page


def test_the_automation_page_shows_both_sensors(ui: DagsterUi) -> None:
    page = look(ui, "/automation")
    for sensor in ("lake_progress", "lake_supervisor"):
        assert f"{sensor} Standard sensor" in page


def test_a_sensors_page_says_what_it_does(ui: DagsterUi) -> None:
    page = look(ui, "/locations/definitions/sensors/lake_supervisor")
    print(page.text)
    assert "Watches the Flink cluster and keeps every streaming job as it should be." in page
    assert "lake_reconcile_streaming_jobs" in page


def test_the_jobs_page_offers_the_actions(ui: DagsterUi) -> None:
    page = look(ui, "/jobs")
    for action in ("start", "stop", "restart", "cancel"):
        assert f"lake_{action}_streaming_jobs" in page

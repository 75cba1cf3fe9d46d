"""What a person sees of maintenance in Dagster, read from its own pages. Needs no Flink."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin

from lakehouse_dagster.cli.project import load_project
from lakehouse_dagster.maintenance.events import observation
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.browser.dagster_ui import INSTANCE, ROOT, DagsterUi, browser, webserver
from tests.browser.test_pages import look
from tests.paimon.writing import Writer
from tests.streaming.making import job, source, table, write_scripts
from tests.streaming.test_progress import COLUMNS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not all(browser()),
        reason="Chromium and its driver are not installed: pages are not looked at",
    ),
]

MODULE = """\
from lakehouse_dagster import *

folder = {folder!r}
defs = Lakehouse(
    catalog=PaimonCatalog(folder + "/warehouse"),
    flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
    system_database=SystemDatabase("sqlite:///" + folder + "/lakehouse.db"),
    maintenance=MaintenancePolicy(
        TablePolicy(
            compact=CompactSpec(cron="0 3 * * *"),
            expire=ExpireSpec(keep_at_least=1, keep_for="1ms"),
            bounds=CheckBounds(expiry_lag="1ms"),
        )
    ),
).definitions("sql", base_folder=folder)
"""
FIGURES = {"files": 9, "bytes": 9000, "snapshots": 9}


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterUi]:
    """A project with a policy: a consumer holds its table back, and one action was done."""
    folder = tmp_path_factory.mktemp("maintained")
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    write_scripts(folder / "sql", {"a": table("ods.a") + source("x") + job("ods_a", "ods.a", "x")})
    (folder / "maintained_shop.py").write_text(MODULE.format(folder=str(folder)))
    writer = Writer(
        folder / "warehouse", "ods.a", COLUMNS, primary_keys=("id",), options={"bucket": "1"}
    )
    for number in range(3):
        writer.append([{"id": number, "v": "x"}])
    (writer.folder / "consumer").mkdir()
    (writer.folder / "consumer" / "consumer-report").write_text('{"nextSnapshot": 1}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(home))
        patch.syspath_prepend(str(folder))
        with dg.DagsterInstance.get() as instance:
            report(instance)
        sys.modules.pop("maintained_shop")
    environ = {"PYTHONPATH": f"{ROOT}:{folder}"}
    with webserver(folder, home, environ, module="maintained_shop") as served:
        yield served
    assert "Traceback" not in (folder / "webserver.log").read_text()


def report(instance: dg.DagsterInstance) -> None:
    """What the sensor tells of the checks, and the observation of a compaction."""
    lake = load_project("maintained_shop")
    repository = lake.definitions().get_repository_def()
    sensor = repository.get_sensor_def("lake_maintenance")
    context = dg.build_sensor_context(
        instance, repository_def=repository, repository_name="__repository__"
    )
    # As the daemon's ticks know it: Dagster offers tests no way to say so.
    context._code_location_origin = RegisteredCodeLocationOrigin("maintained_shop")
    result = sensor.evaluate_tick(context)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    actions = lake.keeper.actions
    begun = actions.begin(
        "ods.a",
        "compact",
        reason="bucket 0 has 9 unmerged files.",
        details=json.dumps({"partitions": [], "figures": {}}),
        holder="a test",
        before=json.dumps(FIGURES),
    )
    ended = actions.update(
        begun.id,
        {
            "state": ActionState.DONE,
            "ended_at": begun.started_at + timedelta(seconds=4),
            "after": json.dumps({**FIGURES, "files": 1, "bytes": 1500}),
            "writer_restarts": 2,
        },
    )
    instance.report_runless_asset_event(observation(lake.graph.key("ods.a"), ended))


def test_the_events_page_shows_what_an_action_changed_and_took(ui: DagsterUi) -> None:
    look(
        ui,
        "/assets/ods/a?view=events",
        "compact: done. bucket 0 has 9 unmerged files.",
        "change files 9 to 1, bytes 9000 to 1500",
        "writer_restarts 2",
        "seconds 4",
        "snapshots_before 9",
    )


def test_the_checks_page_shows_who_holds_expiry_back(ui: DagsterUi) -> None:
    look(
        ui,
        "/assets/ods/a?view=checks&checkDetail=expiry_lag",
        "compaction_backlog",
        "small_files",
        "Old snapshots are kept for consumer report (needs snapshot 1",
    )


def test_the_launchpad_of_the_compaction_asks_for_tables(ui: DagsterUi) -> None:
    page = "/locations/maintained_shop/jobs/lake_compact/playground"
    look(ui, page, "lake_compact_tables", "tables", "only_if_due", "At 03:00 AM UTC")


def test_the_automation_page_shows_the_sensor_and_the_schedule(ui: DagsterUi) -> None:
    look(ui, "/automation", "lake_maintenance", "lake_compact")


def test_a_check_leads_to_the_launchpad_of_what_mends_it_filled_in_for_the_table(
    ui: DagsterUi,
) -> None:
    """Last: the browser remembers what was filled in."""
    page = look(ui, "/assets/ods/a?view=checks&checkDetail=small_files", "launch lake_compact")
    (link,) = {link for link in page.links if "playground/setup" in link}
    look(ui, link, "lake_compact_tables", '"ods.a"')

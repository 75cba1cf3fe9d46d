"""A process that evaluates both sensors on a real Dagster instance, as Dagster's daemon does.

The order is the daemon's: the events of a tick are stored, then its cursor; a tick that fails keeps
the cursor of the one before. What the supervisor asks for is run at once, in this process.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse_dagster import Lakehouse, LoadedLakehouse, ProgressPolicy, SystemDatabase
from lakehouse_dagster.paimon import PaimonCatalog
from tests.support.laboratory import QUICK, TABLE, Laboratory


def instance_in(folder: Path) -> dg.DagsterInstance:
    """The instance whose databases are in that folder."""
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder))


def event_logs(folder: Path) -> list[Path]:
    """The SQLite files of its event log."""
    return sorted(path for path in folder.rglob("*.db") if "history" in path.parts)


@dataclass
class Daemon:
    """One lakehouse's sensors, with cursors in files."""

    lab: Laboratory
    policy: Mapping[str, Any]
    instance: dg.DagsterInstance

    def __post_init__(self) -> None:
        self.lake = _load(self.lab, self.policy)
        self.repository = self.lake.definitions().get_repository_def()

    def cursor_file(self, sensor: str) -> Path:
        return self.lab.folder / f"{sensor}.cursor"

    def tick(self, sensor: dg.SensorDefinition) -> None:
        """Evaluate, store the events, keep the cursor, run what is asked for."""
        file = self.cursor_file(sensor.name)
        context = dg.build_sensor_context(
            self.instance,
            cursor=file.read_text() if file.exists() else None,
            repository_def=self.repository,
        )
        result = sensor.evaluate_tick(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        if result.cursor is not None:
            hidden = file.with_suffix(".new")
            hidden.write_text(result.cursor)
            hidden.rename(file)
        for request in result.run_requests or ():
            print(f"runs {request.job_name} {request.run_key}", flush=True)
            job = self.repository.get_job(str(request.job_name))
            job.execute_in_process(
                instance=self.instance, run_config=request.run_config, raise_on_error=False
            )


def _load(lab: Laboratory, policy: Mapping[str, Any]) -> LoadedLakehouse:
    lake = Lakehouse(
        catalog=PaimonCatalog(str(lab.folder / "warehouse")),
        flink=lab.cluster,
        name=lab.lakehouse,
        system_database=SystemDatabase(lab.database or f"sqlite:///{lab.folder / 'lakehouse.db'}"),
        supervision=replace(QUICK, **policy),
        progress=ProgressPolicy(tick_interval="1s", progress_interval="100ms"),
    )
    loaded = lake.load(lab.script, base_folder=lab.folder)
    environ = {"LAB": str(lab.folder)}
    loaded.__dict__["runtime"] = replace(loaded.runtime, environ=environ)
    return loaded


def run(lab_settings: Mapping[str, str], policy: Mapping[str, Any], stop_file: str) -> None:
    """Tick until told to end."""
    lab = Laboratory.opened(lab_settings)
    daemon = Daemon(lab, policy, instance_in(lab.folder / "dagster"))
    while not Path(stop_file).exists():
        for sensor in daemon.repository.sensor_defs:
            try:
                daemon.tick(sensor)
            except Exception:  # noqa: BLE001  (the daemon writes it down, and ticks again)
                print(f"tick of {sensor.name} failed: {traceback.format_exc(limit=-2)}", flush=True)
        time.sleep(0.3)


@dataclass(frozen=True)
class Told:
    """One progress event: which snapshots, and the data version that it carries."""

    first_snapshot: int
    last_snapshot: int
    data_version: str


def told(instance: dg.DagsterInstance, table: str = TABLE) -> list[Told]:
    """The progress events of a table's asset, oldest first."""
    keys = [key for key in instance.all_asset_keys() if list(key.path[-2:]) == table.split(".")]
    found = []
    for key in keys:
        records = instance.fetch_materializations(key, limit=5000, ascending=True).records
        for event in (record.asset_materialization for record in records):
            assert event is not None
            first, last = str(event.metadata["snapshot_range"].value).split(" to ")
            version = (event.tags or {})["dagster/data_version"]
            found.append(Told(int(first), int(last), version))
    return found

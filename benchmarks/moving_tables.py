"""Many tables of which some move, and the progress sensor that tells of them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg

from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, ProgressPolicy, SystemDatabase


@dataclass
class Ticking:
    """A lakehouse whose scripts declare ``tables`` tables; ``moved`` of them get a snapshot."""

    folder: Path
    warehouse: Path
    tables: int
    moved: int
    pair: int

    def tick(self, instance: dg.DagsterInstance) -> float:
        """Seconds of one tick in which ``moved`` tables moved, its events stored."""
        sensor, repository = self._sensor()
        cursor = self._evaluate(sensor, repository, instance, None)
        self._commit()
        began = time.perf_counter()
        self._evaluate(sensor, repository, instance, cursor)
        return time.perf_counter() - began

    def _evaluate(
        self,
        sensor: dg.SensorDefinition,
        repository: dg.RepositoryDefinition,
        instance: dg.DagsterInstance,
        cursor: str | None,
    ) -> str | None:
        context = dg.build_sensor_context(instance, cursor=cursor, repository_def=repository)
        result = sensor.evaluate_tick(context)
        events = result.asset_events
        assert len(events) == (self.moved if cursor else self.tables), result.skip_message
        # The first tick, which tells of all tables, is not what is measured: its events are not
        # stored, which would take most of a minute.
        for event in events if cursor else ():
            instance.report_runless_asset_event(event)
        return result.cursor

    def _sensor(self) -> tuple[dg.SensorDefinition, dg.RepositoryDefinition]:
        scripts = self.folder / f"sql-{self.pair}"
        scripts.mkdir()
        text = "".join(
            f"CREATE TABLE IF NOT EXISTS b.t{n:04d} (id BIGINT, v STRING);\n"
            for n in range(self.tables)
        )
        (scripts / "tables.sql").write_text(text)
        self._now = datetime.now(timezone.utc)
        lake = Lakehouse(
            catalog=PaimonCatalog(warehouse=str(self.warehouse)),
            flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
            system_database=SystemDatabase(f"sqlite:///{self.folder / f'lake-{self.pair}.db'}"),
            progress=ProgressPolicy(events_per_tick=self.tables, progress_interval="1ms"),
        )
        repository = lake.definitions(str(scripts)).get_repository_def()
        return repository.get_sensor_def("lake_progress"), repository

    def _commit(self) -> None:
        """Give the first tables one more snapshot, as a commit that adds nothing new would."""
        for number in range(self.moved):
            folder = self.warehouse / "b.db" / f"t{number:04d}" / "snapshot"
            newest = int((folder / "LATEST").read_text())
            snapshot = json.loads((folder / f"snapshot-{newest}").read_text())
            later = self._now + timedelta(seconds=1)
            snapshot |= {"id": newest + 1, "timeMillis": int(later.timestamp() * 1000)}
            (folder / f"snapshot-{newest + 1}").write_text(json.dumps(snapshot))
            (folder / "LATEST").write_text(str(newest + 1))

"""Many tables of which some move, and the progress sensor that tells of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, ProgressPolicy, SystemDatabase


class Ticking:
    """A lakehouse whose scripts declare ``tables`` tables; ``moving`` of them move at every tick.

    The first tick, which tells of all tables, is over when it is made; its events are not stored,
    which would take most of a minute.
    """

    def __init__(
        self, folder: Path, warehouse: Path, tables: int, moving: int, instance: dg.DagsterInstance
    ) -> None:
        self._warehouse = warehouse
        self._moving = moving
        self._instance = instance
        self._sensor, self._repository = _progress_sensor(folder, warehouse, tables)
        self._cursor: str | None = None
        assert len(self._evaluate()) == tables

    def tick(self) -> tuple[Sequence[Any], float]:
        """The events of one tick in which some tables moved, and its seconds."""
        self._commit()
        began = time.perf_counter()
        events = self._evaluate()
        seconds = time.perf_counter() - began
        assert len(events) == self._moving
        return events, seconds

    def store(self, events: Sequence[Any]) -> float:
        """Seconds of storing events as Dagster's daemon does."""
        began = time.perf_counter()
        for event in events:
            self._instance.report_runless_asset_event(event)
        return time.perf_counter() - began

    def _evaluate(self) -> Sequence[Any]:
        context = dg.build_sensor_context(
            self._instance, cursor=self._cursor, repository_def=self._repository
        )
        result = self._sensor.evaluate_tick(context)
        self._cursor = result.cursor
        return result.asset_events

    def _commit(self) -> None:
        """Give the first tables one more snapshot, as a commit that adds nothing new would."""
        now = datetime.now(timezone.utc)
        for number in range(self._moving):
            folder = self._warehouse / "b.db" / f"t{number:04d}" / "snapshot"
            newest = int((folder / "LATEST").read_text())
            snapshot = json.loads((folder / f"snapshot-{newest}").read_text())
            snapshot |= {"id": newest + 1, "timeMillis": int(now.timestamp() * 1000)}
            (folder / f"snapshot-{newest + 1}").write_text(json.dumps(snapshot))
            (folder / "LATEST").write_text(str(newest + 1))


def _progress_sensor(
    folder: Path, warehouse: Path, tables: int
) -> tuple[dg.SensorDefinition, dg.RepositoryDefinition]:
    scripts = folder / "sql"
    scripts.mkdir()
    text = "".join(
        f"CREATE TABLE IF NOT EXISTS b.t{n:04d} (id BIGINT, v STRING);\n" for n in range(tables)
    )
    (scripts / "tables.sql").write_text(text)
    lake = Lakehouse(
        catalog=PaimonCatalog(warehouse=str(warehouse)),
        flink=FlinkCluster("http://127.0.0.1:9", "http://127.0.0.1:9"),
        system_database=SystemDatabase(f"sqlite:///{folder / 'lake.db'}"),
        progress=ProgressPolicy(events_per_tick=tables, progress_interval="1ms"),
    )
    repository = lake.definitions(str(scripts)).get_repository_def()
    return repository.get_sensor_def("lake_progress"), repository

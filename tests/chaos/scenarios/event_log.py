"""Dagster's event log locked, its daemon killed: no cursor is lost, and what is told again carries
the same version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.system_db import DesiredState
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import PATIENCE_SECONDS, Scene
from tests.support.sqlite import locked

if TYPE_CHECKING:
    from tests.support.daemon import Told


def _event_log(scene: Scene, strike: Callable[[Path], None]) -> None:
    """Both sensors tick on a real instance while its event log is not well."""
    from tests.support.daemon import instance_in, told

    folder = scene.lab.folder / "dagster"
    scene.lab.source.write(40)
    scene.want(DesiredState.RUNNING)
    scene.daemon()
    scene.until(scene.one_runs, "the job", PATIENCE_SECONDS)
    scene.lab.copied()
    instance = instance_in(folder)
    scene.until(lambda: told(instance), "the first progress event", 40)
    with scene.live_rows(files=15):
        scene.pause(0, 1)
        strike(folder)
    scene.lab.copied()
    table = scene.lab.catalog.open().table("ods.copied")

    def all_told() -> bool:
        events = told(instance)
        return bool(events) and events[-1].last_snapshot == table.latest_snapshot_id()

    scene.until(all_told, "the newest snapshot in the event log", 40)
    scene.at(f"{len(told(instance))} events")
    _assert_gapless(told(instance))
    said = "".join(actor.log.read_text() for actor in scene.actors if actor.log.exists())
    assert said.count("runs ") <= 3, f"a storm of runs: {said}"


def _assert_gapless(events: list[Told]) -> None:
    """Every snapshot was told of, the same one always under the same version, in order."""
    for event in events:
        assert event.data_version == str(event.last_snapshot), event
    for before, after in pairwise(events):
        assert after.first_snapshot <= before.last_snapshot + 1, f"a gap: {before}, {after}"
        assert after.last_snapshot >= before.last_snapshot, f"backwards: {before}, {after}"
    versions = [event.data_version for event in events]
    assert len(versions) == len(set(versions)), f"the same was told twice: {versions}"


@scenario(Row.DATABASE, "Dagster's event log is locked for a while")
def event_log_locked(scene: Scene) -> None:
    def strike(folder: Path) -> None:
        from tests.support.daemon import event_logs

        with ExitStack() as locks:
            for file in event_logs(folder):
                locks.enter_context(locked(file))
            scene.pause(4, 12)

    _event_log(scene, strike)


@scenario(Row.DATABASE, "Dagster's daemon is killed between events and cursor")
def daemon_killed(scene: Scene) -> None:
    def strike(folder: Path) -> None:
        for _ in range(scene.random.randint(1, 3)):
            scene.pause(0.5, 2)
            scene.actors[-1].kill()
            scene.may_fail.add(scene.actors[-1].stop_file.stem)
            for cursor in scene.lab.folder.glob("*.cursor"):
                if scene.chance(True, False):
                    cursor.unlink()  # the tick's events were stored, its cursor was not
                    scene.at("cursor lost")
            scene.daemon()

    _event_log(scene, strike)

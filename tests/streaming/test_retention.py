"""What is deleted of a job's restore points, over real folders, and that a start misses nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import RestorePointKind, delete_checkpoints, delete_restore_point
from lakehouse_dagster.streaming.kept_points import RestorePointFacts, look
from lakehouse_dagster.streaming.restore import choose_restore_point
from lakehouse_dagster.streaming.retention import (
    RestorePointToDelete,
    nothing_left,
    superseded,
)
from lakehouse_dagster.system_db import Incarnation, IncarnationState, Origin
from tests.streaming.making import NOW, incarnation

METADATA = (Path(__file__).parent.parent / "flink/metadata/flink-2.0-files-savepoint").read_bytes()
DAY = timedelta(days=1)
ENDED, STOPPED, RUNNING = (
    IncarnationState.ENDED,
    IncarnationState.STOPPED,
    IncarnationState.RUNNING,
)


def metadata(checkpoint_id: int) -> bytes:
    """The metadata of a checkpoint of this number."""
    return METADATA[:8] + checkpoint_id.to_bytes(8, "big") + METADATA[16:]


@dataclass
class Disk:
    """Where one job's restore points are, and its lives."""

    folder: Path
    lives: list[Incarnation] = field(default_factory=list)
    alive: frozenset[str] = frozenset()
    now: datetime = NOW

    def life(self, state: IncarnationState = ENDED, **values: object) -> Incarnation:
        made = incarnation(len(self.lives) + 1, state=state, **values)
        self.lives.append(made)
        return made

    def checkpoint(self, life: Incarnation, number: int, *, days: float, sound: bool = True) -> str:
        """A complete checkpoint, so many days old."""
        folder = self.folder / "checkpoints" / life.flink_job_id
        (folder / "shared").mkdir(parents=True, exist_ok=True)
        return self._written(folder / f"chk-{number}", number, days, sound)

    def savepoint(
        self,
        life: Incarnation,
        number: int,
        *,
        days: float,
        ours: bool = True,
        elsewhere: bool = False,
    ) -> str:
        """A savepoint that the life was stopped with."""
        parent = self.folder / ("elsewhere" if elsewhere else "savepoints")
        path = parent / f"savepoint-{life.flink_job_id[:6]}-{number:012x}"
        self._written(path, number, days, True)
        self._change(
            life, savepoint_path=f"file:{path}", stop_trigger_id="f" * 32 if ours else None
        )
        return str(path)

    def due(self, grace: timedelta = DAY) -> list[RestorePointToDelete]:
        return list(superseded(self.lives, self.look(), self.now, grace))

    def paths_due(self, grace: timedelta = DAY) -> set[str]:
        return {point.path.removeprefix("file:") for point in self.due(grace)}

    def look(self) -> RestorePointFacts:
        return look(
            self.lives,
            self.alive,
            checkpoint_directory=f"file://{self.folder}/checkpoints",
            savepoint_directories=(f"file://{self.folder}/savepoints",),
        )

    def delete(self, due: Sequence[RestorePointToDelete]) -> None:
        lives = {life.number: life for life in self.lives}
        for point in due:
            if point.kind is RestorePointKind.SAVEPOINT:
                delete_restore_point(point.path)
            else:
                delete_checkpoints(
                    str(self.folder / "checkpoints"), lives[point.number].flink_job_id
                )

    def start(self) -> str:
        """What a start would go on from."""
        folder = self.folder / "checkpoints"
        ids = {path.name for path in folder.iterdir()} if folder.exists() else set()
        try:
            choice = choose_restore_point(
                "job",
                sorted(self.lives, key=lambda life: -life.number),
                checkpoint_directory=str(folder),
                ids_with_checkpoints=frozenset(ids),
            )
        except NoRestorePointError:
            return "refused"
        return f"{choice.path or 'nothing'}".removeprefix("file:")

    def _change(self, life: Incarnation, **values: object) -> None:
        self.lives[life.number - 1] = replace(self.lives[life.number - 1], **values)  # type: ignore[arg-type]

    def _written(self, folder: Path, number: int, days: float, sound: bool) -> str:
        folder.mkdir(parents=True)
        file = folder / "_metadata"
        file.write_bytes(metadata(number) if sound else metadata(number)[:-9])
        at = (self.now - timedelta(days=days)).timestamp()
        os.utime(file, (at, at))
        return str(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_what_a_later_stop_superseded_goes_after_the_grace(disk: Disk) -> None:
    first, second = disk.life(STOPPED), disk.life(STOPPED)
    old = disk.savepoint(first, 5, days=4)
    disk.savepoint(second, 9, days=2)
    assert disk.paths_due() == {old}
    assert disk.paths_due(grace=timedelta(days=3)) == set()


def test_the_only_restore_point_never_goes_however_old(disk: Disk) -> None:
    life = disk.life(STOPPED)
    disk.savepoint(life, 5, days=400)
    assert disk.due() == []
    lonely = disk.life(ENDED)
    disk.checkpoint(lonely, 6, days=300)
    assert {point.kind for point in disk.due()} == {RestorePointKind.SAVEPOINT}


def test_while_a_running_job_has_no_checkpoint_of_its_own_nothing_goes(disk: Disk) -> None:
    first, second = disk.life(STOPPED), disk.life(STOPPED)
    disk.savepoint(first, 5, days=9)
    disk.savepoint(second, 6, days=8)
    running = disk.life(RUNNING, running_at=NOW - timedelta(days=7))
    assert disk.due() == []
    disk.checkpoint(running, 7, days=0.001)
    assert {point.number for point in disk.due()} == {1, 2}


def test_a_running_job_must_have_run_for_the_grace(disk: Disk) -> None:
    old = disk.savepoint(disk.life(STOPPED), 5, days=9)
    running = disk.life(RUNNING, running_at=NOW - timedelta(hours=23))
    disk.checkpoint(running, 7, days=0.001)
    assert disk.due() == []
    disk._change(running, running_at=NOW - timedelta(hours=25))
    assert disk.paths_due() == {old}


def test_checkpoints_of_a_job_that_runs_are_flinks(disk: Disk) -> None:
    running = disk.life(RUNNING, running_at=NOW - timedelta(days=9))
    for number in (5, 6, 7):
        disk.checkpoint(running, number, days=8)
    assert disk.due() == []


def test_a_life_that_the_cluster_still_shows_is_left_alone_whatever_is_on_record(
    disk: Disk,
) -> None:
    zombie, second = disk.life(IncarnationState.SUPERSEDED), disk.life(STOPPED)
    disk.checkpoint(zombie, 3, days=9)
    disk.savepoint(second, 5, days=8)
    disk.alive = frozenset({zombie.flink_job_id})
    assert disk.due() == []
    disk.alive = frozenset()
    assert [point.number for point in disk.due()] == [1]


def test_checkpoints_go_with_the_whole_folder_of_their_job(disk: Disk) -> None:
    first, second = disk.life(ENDED), disk.life(STOPPED)
    for number in (1, 2, 3):
        disk.checkpoint(first, number, days=9)
    disk.savepoint(second, 5, days=8)
    (point,) = disk.due()
    assert point.path.endswith(f"/checkpoints/{first.flink_job_id}")
    assert "superseded by" in point.reason
    disk.delete([point])
    assert not (disk.folder / "checkpoints" / first.flink_job_id).exists()


def test_the_savepoint_of_a_life_supersedes_its_own_checkpoints(disk: Disk) -> None:
    life = disk.life(STOPPED)
    disk.checkpoint(life, 3, days=9)
    savepoint = disk.savepoint(life, 4, days=8)
    (point,) = disk.due()
    assert point.kind is RestorePointKind.CHECKPOINT
    disk.delete([point])
    assert disk.start() == savepoint


def test_checkpoints_after_a_savepoint_are_kept_and_the_savepoint_with_them(disk: Disk) -> None:
    life = disk.life(ENDED)
    disk.savepoint(life, 3, days=9)
    newest = disk.checkpoint(life, 4, days=8)
    assert disk.due() == []
    assert disk.start() == newest


def test_savepoints_that_are_not_ours_stay(disk: Disk) -> None:
    by_hand, elsewhere, last = disk.life(STOPPED), disk.life(STOPPED), disk.life(STOPPED)
    disk.savepoint(by_hand, 3, days=9, ours=False)
    disk.savepoint(elsewhere, 4, days=8, elsewhere=True)
    disk.savepoint(last, 5, days=7)
    assert disk.due() == []


def test_a_savepoint_path_that_climbs_out_of_our_folder_stays(disk: Disk) -> None:
    first, last = disk.life(STOPPED), disk.life(STOPPED)
    outside = Path(disk.savepoint(first, 3, days=9, elsewhere=True))
    climbing = f"{disk.folder}/savepoints/../elsewhere/{outside.name}"
    (disk.folder / "savepoints").mkdir(exist_ok=True)
    disk._change(first, savepoint_path=climbing)
    disk.savepoint(last, 5, days=7)
    assert disk.due() == []


def test_checkpoints_of_an_adopted_job_stay(disk: Disk) -> None:
    adopted, last = disk.life(ENDED, origin=Origin.ADOPTED), disk.life(STOPPED)
    disk.checkpoint(adopted, 3, days=9)
    disk.savepoint(last, 5, days=8)
    assert disk.due() == []


def test_a_damaged_restore_point_supersedes_nothing(disk: Disk) -> None:
    first, second = disk.life(STOPPED), disk.life(ENDED)
    disk.savepoint(first, 3, days=9)
    disk.checkpoint(second, 5, days=8, sound=False)
    assert disk.due() == []


def test_an_empty_folder_of_a_life_without_checkpoints_stays_until_it_is_superseded(
    disk: Disk,
) -> None:
    first, failed = disk.life(STOPPED), disk.life(ENDED)
    disk.savepoint(first, 3, days=9)
    (disk.folder / "checkpoints" / failed.flink_job_id / "shared").mkdir(parents=True)
    # Without the folder it would not be known that it never completed a checkpoint.
    assert disk.due() == []
    last = disk.life(STOPPED)
    disk.savepoint(last, 5, days=8)
    assert {point.number for point in disk.due()} == {1, 2}


def test_lives_of_which_nothing_is_left_are_told(disk: Disk) -> None:
    first, failed, last = disk.life(STOPPED), disk.life(ENDED), disk.life(STOPPED)
    disk.savepoint(first, 3, days=9)
    disk.savepoint(last, 5, days=8)
    assert not (disk.folder / "checkpoints" / failed.flink_job_id).exists()
    facts, due = disk.look(), disk.due()
    assert nothing_left(disk.lives, facts, due, NOW, DAY) == (1, 2)
    assert nothing_left(disk.lives, facts, [], NOW, DAY) == (2,)


# -- whatever the history -----------------------------------------------------------------------

days = st.floats(0, 10, allow_nan=False)


@st.composite
def histories(draw: st.DrawFn, folder: Path) -> Disk:
    """A job's lives in any state, with any restore points, of any age, some damaged or foreign."""
    disk = Disk(folder)
    number = 0
    count = draw(st.integers(1, 5))
    for index in range(count):
        last = index == count - 1
        states = [ENDED, STOPPED, IncarnationState.SUPERSEDED] + [RUNNING] * last
        ran = draw(st.one_of(st.none(), st.timedeltas(timedelta(0), timedelta(days=10))))
        life = disk.life(
            draw(st.sampled_from(states)),
            running_at=None if ran is None else NOW - ran,
            origin=draw(st.sampled_from([Origin.SUBMITTED, Origin.SUBMITTED, Origin.ADOPTED])),
        )
        if draw(st.booleans()):
            (folder / "checkpoints" / life.flink_job_id / "shared").mkdir(parents=True)
        steps = draw(st.lists(st.sampled_from(["checkpoint", "damaged", "savepoint"]), max_size=4))
        for step in steps:
            number += 1
            if step != "savepoint":
                disk.checkpoint(life, number, days=draw(days), sound=step == "checkpoint")
            elif disk.lives[-1].savepoint_path is None:
                disk.savepoint(
                    life,
                    number,
                    days=draw(days),
                    ours=draw(st.booleans()),
                    elsewhere=draw(st.booleans()),
                )
        if draw(st.integers(0, 4)) == 0:
            disk.alive |= {life.flink_job_id}
    return disk


@settings(max_examples=250, deadline=None)
@given(data=st.data(), grace=st.floats(0, 5, allow_nan=False))
def test_whatever_the_history_a_start_goes_on_from_the_same_point(
    data: st.DataObject, grace: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk = data.draw(histories(Path(folder)))
        before = disk.start()
        due = disk.due(timedelta(days=grace))
        disk.delete(due)
        assert disk.start() == before
        living = [life.number for life in disk.lives if not life.state.is_over]
        if living and not any(p.number == max(living) and p.sound for p in disk.look().points):
            assert not due
        for life in disk.lives:
            lives_on = not life.state.is_over or life.flink_job_id in disk.alive
            assert not (lives_on and life.number in {point.number for point in due})
        # A second look finds nothing more, and nothing that is gone.
        assert disk.due(timedelta(days=grace)) == []

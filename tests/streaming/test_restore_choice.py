"""Where the next incarnation takes its state from, over real folders with ``_metadata`` files."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.streaming.restore import RestoreChoice, choose_restore_point
from lakehouse_dagster.system_db import Incarnation, IncarnationState
from tests.streaming.making import incarnation


def metadata(number: int) -> bytes:
    """The shortest that Flink's reader takes: version 3, no master state, no operators."""
    return struct.pack(">IIqII", 0x4960672D, 3, number, 0, 0)


class Checkpoints:
    """The checkpoint directory of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, owner: Incarnation, number: int, *, complete: bool = True, age: int = 0) -> str:
        folder = self.folder / owner.flink_job_id / f"chk-{number}"
        return self._write(folder, complete, age, number)

    def savepoint(self, name: str, *, complete: bool = True, number: int = 1000) -> str:
        return self._write(self.folder / "savepoints" / name, complete, 0, number)

    def damage(self, restore_point: str) -> None:
        """Cut its metadata off in the middle, as a full disk does."""
        file = Path(restore_point) / "_metadata"
        written_at = file.stat().st_mtime
        file.write_bytes(file.read_bytes()[:11])
        os.utime(file, (written_at, written_at))

    def choose(self, *incarnations: Incarnation, **options: Any) -> RestoreChoice:
        folders = {path.name for path in self.folder.iterdir()}
        return choose_restore_point(
            "job",
            incarnations,
            checkpoint_directory=str(self.folder),
            ids_with_checkpoints=frozenset(folders),
            **options,
        )

    def _write(self, folder: Path, complete: bool, age: int, number: int) -> str:
        folder.mkdir(parents=True)
        if complete:
            (folder / "_metadata").write_bytes(metadata(number))
            os.utime(folder / "_metadata", (1_800_000_000 - age, 1_800_000_000 - age))
        return str(folder)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path)


def path_of(choice: RestoreChoice) -> str | None:
    return None if choice.path is None else choice.path.removeprefix("file://")


def test_a_job_that_never_ran_starts_from_nothing(checkpoints: Checkpoints) -> None:
    assert checkpoints.choose() == RestoreChoice(None, "the job never ran")


def test_the_savepoint_of_a_clean_stop_comes_first(checkpoints: Checkpoints) -> None:
    savepoint = checkpoints.savepoint("sp-1")
    last = incarnation(1, state=IncarnationState.STOPPED, savepoint_path=savepoint)
    checkpoints.of(last, 7)
    choice = checkpoints.choose(last)
    assert (path_of(choice), choice.reason) == (savepoint, "savepoint of incarnation 1")


def test_a_savepoint_that_is_gone_or_half_written_gives_way_to_the_newest_checkpoint(
    checkpoints: Checkpoints,
) -> None:
    gone = incarnation(1, savepoint_path=str(checkpoints.folder / "savepoints" / "gone"))
    checkpoint = checkpoints.of(gone, 7)
    assert path_of(checkpoints.choose(gone)) == checkpoint
    half = incarnation(2, savepoint_path=checkpoints.savepoint("half", complete=False))
    checkpoint = checkpoints.of(half, 8)
    choice = checkpoints.choose(half)
    assert (path_of(choice), choice.reason) == (checkpoint, "checkpoint 8 of incarnation 2")


def test_the_newest_complete_checkpoint_is_taken(checkpoints: Checkpoints) -> None:
    last = incarnation(1, checkpoint_id=9)
    checkpoints.of(last, 8, age=20)
    newest = checkpoints.of(last, 9, age=10)
    checkpoints.of(last, 10, complete=False)
    assert path_of(checkpoints.choose(last)) == newest


def test_a_checkpoint_taken_after_the_savepoint_comes_before_it(checkpoints: Checkpoints) -> None:
    """A stop can complete its savepoint and leave the job running: its commits went on."""
    savepoint = checkpoints.savepoint("sp", number=7)
    last = incarnation(1, state=IncarnationState.STOPPED, savepoint_path=savepoint)
    checkpoints.of(last, 6)
    assert path_of(checkpoints.choose(last)) == savepoint
    newer = checkpoints.of(last, 9, age=500)  # by their numbers, whatever the clocks say
    choice = checkpoints.choose(last)
    assert (path_of(choice), choice.reason) == (newer, "checkpoint 9 of incarnation 1")


def test_damaged_metadata_gives_way_to_the_next_older_complete_one_and_is_named(
    checkpoints: Checkpoints,
) -> None:
    last = incarnation(2, checkpoint_id=9)
    older = checkpoints.of(last, 8, age=20)
    newest = checkpoints.of(last, 9, age=10)
    checkpoints.damage(newest)
    choice = checkpoints.choose(last)
    assert path_of(choice) == older
    assert choice.reason == (
        "checkpoint 8 of incarnation 2; the checkpoint 9 of incarnation 2 is damaged"
    )
    assert choice.incarnation == last


def test_a_damaged_savepoint_gives_way_to_the_newest_checkpoint(checkpoints: Checkpoints) -> None:
    savepoint = checkpoints.savepoint("sp")
    last = incarnation(1, savepoint_path=savepoint)
    checkpoint = checkpoints.of(last, 7)
    checkpoints.damage(savepoint)
    assert path_of(checkpoints.choose(last)) == checkpoint


def test_when_all_that_is_left_is_damaged_nothing_is_started(checkpoints: Checkpoints) -> None:
    last = incarnation(1, checkpoint_id=7)
    checkpoints.damage(checkpoints.of(last, 7))
    with pytest.raises(NoRestorePointError):
        checkpoints.choose(last)


def test_metadata_of_an_unknown_version_is_left_to_flink(checkpoints: Checkpoints) -> None:
    last = incarnation(1, checkpoint_id=7)
    checkpoint = checkpoints.of(last, 7)
    (Path(checkpoint) / "_metadata").write_bytes(struct.pack(">IIqII", 0x4960672D, 99, 7, 0, 0))
    assert path_of(checkpoints.choose(last)) == checkpoint


def test_the_last_incarnation_counts_before_earlier_ones(checkpoints: Checkpoints) -> None:
    first, second = incarnation(1), incarnation(2)
    checkpoints.of(first, 99)
    newest = checkpoints.of(second, 1, age=1000)
    assert path_of(checkpoints.choose(second, first)) == newest


def test_an_incarnation_that_got_nowhere_leaves_the_state_of_the_one_before(
    checkpoints: Checkpoints,
) -> None:
    first = incarnation(1)
    kept = checkpoints.of(first, 4)
    died = incarnation(2, state=IncarnationState.ENDED, running_at=None, checkpoint_at=None)
    assert path_of(checkpoints.choose(died, first)) == kept


def test_a_checkpoint_elsewhere_is_found_by_its_recorded_path(
    checkpoints: Checkpoints, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = Checkpoints(tmp_path_factory.mktemp("old-directory"))
    last = incarnation(3, checkpoint_id=5)
    recorded = elsewhere.of(last, 5)
    choice = checkpoints.choose(incarnation(3, checkpoint_id=5, checkpoint_path=recorded))
    assert (choice.path, choice.reason) == (recorded, "checkpoint of incarnation 3")


def test_state_that_is_gone_is_never_given_up_silently(checkpoints: Checkpoints) -> None:
    had_state = incarnation(4, checkpoint_id=12, checkpoint_path="/gone/chk-12")
    with pytest.raises(NoRestorePointError) as refused:
        checkpoints.choose(had_state)
    message = str(refused.value)
    assert "Streaming job job ran before (incarnations 4)" in message
    assert str(checkpoints.folder) in message
    assert "lakehouse jobs start job --allow-empty-start" in message


def test_a_job_that_ran_and_has_no_folder_proves_nothing(checkpoints: Checkpoints) -> None:
    with pytest.raises(NoRestorePointError):
        checkpoints.choose(incarnation(1, checkpoint_at=None))


def test_a_folder_without_a_complete_checkpoint_proves_that_none_completed(
    checkpoints: Checkpoints,
) -> None:
    failed_first = incarnation(1, state=IncarnationState.ENDED, checkpoint_at=None)
    checkpoints.of(failed_first, 1, complete=False)
    choice = checkpoints.choose(failed_first)
    assert choice == RestoreChoice(None, "no earlier incarnation completed a checkpoint")


def test_a_job_that_never_came_to_run_may_start_from_nothing(checkpoints: Checkpoints) -> None:
    never_ran = incarnation(1, state=IncarnationState.ENDED, running_at=None, checkpoint_at=None)
    assert checkpoints.choose(never_ran).path is None


def test_an_older_incarnation_with_lost_state_forbids_the_empty_start_too(
    checkpoints: Checkpoints,
) -> None:
    never_ran = incarnation(2, running_at=None, checkpoint_at=None)
    with pytest.raises(NoRestorePointError, match=r"incarnations 2, 1"):
        checkpoints.choose(never_ran, incarnation(1, checkpoint_id=3))


def test_starting_from_nothing_must_be_asked_for_and_only_then_happens(
    checkpoints: Checkpoints,
) -> None:
    had_state = incarnation(1, checkpoint_id=12)
    choice = checkpoints.choose(had_state, allow_empty_start=True)
    assert choice == RestoreChoice(None, "asked to start from nothing")
    kept = checkpoints.of(had_state, 12)
    assert path_of(checkpoints.choose(had_state, allow_empty_start=True)) == kept


def test_older_state_does_not_stand_in_for_state_that_is_gone(checkpoints: Checkpoints) -> None:
    """It would read the sources again from long ago; only the last state continues the job."""
    first = incarnation(1, checkpoint_id=3)
    checkpoints.of(first, 3)
    lost = incarnation(2, checkpoint_id=90, checkpoint_path="/gone/chk-90")
    with pytest.raises(NoRestorePointError):
        checkpoints.choose(lost, first)

"""Only checkpoints that have their metadata count, and the one completed last is chosen."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError, FlinkError
from lakehouse_dagster.flink import (
    RestorePoint,
    RestorePointKind,
    complete_checkpoints,
    delete_checkpoints,
    delete_restore_point,
    file_access,
    is_complete,
    newest_complete_checkpoint,
    restore_points,
)

JOB = "0123456789abcdef0123456789abcdef"


def completed(folder: Path, at: int, content: bytes = b"metadata") -> Path:
    folder.mkdir(parents=True)
    metadata = folder / "_metadata"
    metadata.write_bytes(content)
    os.utime(metadata, (at, at))
    return folder


@pytest.fixture(params=["path", "file:/", "file:///", "arrow"])
def uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """How the same local folder is named; "arrow" reads it as a remote file system would be."""
    if request.param == "arrow":
        from pyarrow import fs

        local = file_access.ArrowFiles(fs.LocalFileSystem())
        monkeypatch.setattr(restore_points, "files_at", lambda path: (local, path))
    prefix = {"path": "", "arrow": "", "file:/": "file:", "file:///": "file://"}[request.param]
    return lambda path: f"{prefix}{path}"


def test_the_newest_is_the_one_completed_last(tmp_path: Path, uri: Callable[[Path], str]) -> None:
    completed(tmp_path / JOB / "chk-9", at=3_000)
    completed(tmp_path / JOB / "chk-10", at=2_000)
    folder = uri(tmp_path)
    assert newest_complete_checkpoint(folder, JOB) == RestorePoint(
        path=f"{folder}/{JOB}/chk-9",
        completed_at=datetime(1970, 1, 1, 0, 50, tzinfo=timezone.utc),
        kind=RestorePointKind.CHECKPOINT,
        checkpoint_id=9,
    )


def test_of_two_completed_at_once_the_higher_number_is_newer(
    tmp_path: Path, uri: Callable[[Path], str]
) -> None:
    for number in (9, 10):
        completed(tmp_path / JOB / f"chk-{number}", at=3_000)
    found = newest_complete_checkpoint(uri(tmp_path), JOB)
    assert found is not None
    assert found.checkpoint_id == 10


def test_a_checkpoint_without_metadata_is_passed_over(
    tmp_path: Path, uri: Callable[[Path], str]
) -> None:
    completed(tmp_path / JOB / "chk-1", at=1_000)
    (tmp_path / JOB / "chk-2").mkdir()
    completed(tmp_path / JOB / "chk-3", at=3_000, content=b"")
    (tmp_path / JOB / "chk-4" / "_metadata").mkdir(parents=True)
    completed(tmp_path / JOB / "shared", at=5_000)
    completed(tmp_path / JOB / "chk-x", at=5_000)
    completed(tmp_path / ("f" * 32) / "chk-7", at=9_000)
    (tmp_path / JOB / "chk-8").write_text("a file")
    found = newest_complete_checkpoint(uri(tmp_path) + "/", JOB)
    assert found is not None
    assert found.checkpoint_id == 1


def test_a_job_without_folder_or_checkpoints_has_none(
    tmp_path: Path, uri: Callable[[Path], str]
) -> None:
    assert newest_complete_checkpoint(uri(tmp_path), JOB) is None
    (tmp_path / JOB).mkdir()
    assert newest_complete_checkpoint(uri(tmp_path), JOB) is None


def test_a_restore_point_is_complete_with_its_metadata(
    tmp_path: Path, uri: Callable[[Path], str]
) -> None:
    savepoint = completed(tmp_path / "savepoint with spaces %20 ä", at=1_000)
    assert is_complete(uri(savepoint))
    assert is_complete(uri(savepoint) + "/")
    assert is_complete(uri(savepoint / "_metadata"))
    assert not is_complete(uri(tmp_path))
    assert not is_complete(uri(tmp_path / "gone"))


def test_a_folder_that_cannot_be_read_is_not_taken_for_empty(tmp_path: Path) -> None:
    (tmp_path / JOB).write_text("not a folder")
    with pytest.raises(FlinkError, match="not known whether there is a restore point"):
        newest_complete_checkpoint(str(tmp_path), JOB)


@pytest.mark.parametrize("folder", ["relative/path", "ftp://host/x", "C:\\x", ""])
def test_an_address_of_an_unknown_kind_is_refused(folder: str) -> None:
    with pytest.raises(ConfigurationError, match="file://"):
        is_complete(folder)


def test_a_job_id_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="job id"):
        newest_complete_checkpoint(str(tmp_path), "../other")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3_is_looked_at_through_arrow(scheme: str) -> None:
    files, path = file_access.files_at(f"{scheme}://bucket/ckpt?region=us-east-1")
    assert isinstance(files, file_access.ArrowFiles)
    assert path == "bucket/ckpt"


# -- deletion -----------------------------------------------------------------------------------


def test_all_complete_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    for number, at in ((1, 100), (2, 200), (10, 300)):
        completed(tmp_path / JOB / f"chk-{number}", at)
    (tmp_path / JOB / "chk-11").mkdir()
    found = complete_checkpoints(str(tmp_path), JOB)
    assert [point.checkpoint_id for point in found] == [10, 2, 1]
    assert found[0] == newest_complete_checkpoint(str(tmp_path), JOB)


@pytest.mark.parametrize("name", ["chk-7", "savepoint-0123ab-0123456789ab", "savepoint-by-hand"])
def test_a_restore_point_is_deleted_alone(
    name: str, uri: Callable[[Path], str], tmp_path: Path
) -> None:
    point = completed(tmp_path / JOB / name, 100)
    (point / "state").write_bytes(b"state")
    beside = completed(tmp_path / JOB / "chk-8", 200)
    (tmp_path / JOB / "shared").mkdir()
    (tmp_path / JOB / "shared" / "part").write_bytes(b"of chk-8 too")
    assert delete_restore_point(uri(point))
    assert not point.exists()
    assert (beside / "_metadata").exists()
    assert (tmp_path / JOB / "shared" / "part").exists()
    assert not delete_restore_point(uri(point))


@pytest.mark.parametrize("name", ["chk-7", "savepoint-0123ab-0123456789ab"])
def test_what_an_interrupted_deletion_left_is_deleted(name: str, tmp_path: Path) -> None:
    point = completed(tmp_path / name, 100)
    (point / "state").write_bytes(b"state")
    (point / "_metadata").unlink()
    assert delete_restore_point(str(point))
    assert not point.exists()


@pytest.mark.parametrize("name", ["warehouse", "chk-", "chk-7x", "savepoints", "shared", JOB])
def test_what_flink_does_not_call_a_restore_point_stays(
    name: str, uri: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = completed(tmp_path / name, 100)
    with pytest.raises(ConfigurationError, match="not deleted"):
        delete_restore_point(uri(folder))
    assert (folder / "_metadata").exists()


def test_a_savepoint_named_by_hand_without_metadata_stays(tmp_path: Path) -> None:
    folder = tmp_path / "savepoint-of-somebody"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    with pytest.raises(ConfigurationError):
        delete_restore_point(str(folder))
    assert (folder / "notes").exists()


@pytest.mark.parametrize("path", ["/", "file:///", "file:/", "/tmp", "/usr"])
def test_nothing_at_the_root_is_deleted(path: str) -> None:
    with pytest.raises(ConfigurationError):
        delete_restore_point(path)


def test_links_are_never_followed_when_deleting(tmp_path: Path) -> None:
    outside = completed(tmp_path / "outside" / "chk-1", 100)
    link = tmp_path / "chk-1"
    link.symlink_to(outside)
    with pytest.raises(ConfigurationError, match="link"):
        delete_restore_point(str(link))
    point = completed(tmp_path / "chk-2", 100)
    (point / "state").symlink_to(outside / "_metadata")
    (point / "more").symlink_to(outside)
    assert delete_restore_point(str(point))
    assert (outside / "_metadata").read_bytes() == b"metadata"
    job = tmp_path / "ckpt" / JOB
    completed(job / "chk-3", 100)
    (job / "chk-4").symlink_to(outside)
    (job / "shared").symlink_to(outside.parent)
    assert delete_checkpoints(str(tmp_path / "ckpt"), JOB)
    assert (outside / "_metadata").read_bytes() == b"metadata"
    (tmp_path / "ckpt" / JOB).symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigurationError, match="link"):
        delete_checkpoints(str(tmp_path / "ckpt"), JOB)


def test_all_checkpoints_of_a_job_go_with_what_they_share(
    uri: Callable[[Path], str], tmp_path: Path
) -> None:
    other = "f" * 32
    for job in (JOB, other):
        completed(tmp_path / job / "chk-1", 100)
        (tmp_path / job / "chk-2").mkdir()
        (tmp_path / job / "shared").mkdir()
        (tmp_path / job / "shared" / "part").write_bytes(b"part")
        (tmp_path / job / "taskowned").mkdir()
    assert delete_checkpoints(uri(tmp_path), JOB)
    assert [path.name for path in tmp_path.iterdir()] == [other]
    assert not delete_checkpoints(uri(tmp_path), JOB)


def test_a_folder_that_holds_other_things_stays_whole(
    uri: Callable[[Path], str], tmp_path: Path
) -> None:
    completed(tmp_path / JOB / "chk-1", 100)
    (tmp_path / JOB / "savepoint-0123ab-0123456789ab").mkdir()
    with pytest.raises(ConfigurationError, match="savepoint-0123ab"):
        delete_checkpoints(uri(tmp_path), JOB)
    assert (tmp_path / JOB / "chk-1" / "_metadata").exists()


@pytest.mark.parametrize("job_id", ["", "..", "../x", "0123", JOB.upper(), f"{JOB}/.."])
def test_only_a_job_id_names_a_folder_to_delete(job_id: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        delete_checkpoints(str(tmp_path), job_id)

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

        local = restore_points._ArrowFiles(fs.LocalFileSystem())
        monkeypatch.setattr(restore_points, "_files_at", lambda path: (local, path))
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
    files, path = restore_points._files_at(f"{scheme}://bucket/ckpt?region=us-east-1")
    assert isinstance(files, restore_points._ArrowFiles)
    assert path == "bucket/ckpt"

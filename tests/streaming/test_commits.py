"""A restore point from before what was committed is refused: it would double and lose rows."""

from __future__ import annotations

import pytest

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import newest_complete_checkpoint
from lakehouse_dagster.streaming.start import StartedHow
from tests.support.fixtures import lab  # noqa: F401
from tests.support.laboratory import TABLE, Laboratory

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]


def _cancelled_with_rows(lab: Laboratory, *, quiet: int = 0) -> str:  # noqa: F811
    """A job that committed rows with its newest checkpoints and was cancelled; its Flink id."""
    lab.source.write()
    first = lab.start()
    lab.copied()
    for _ in range(3):
        lab.source.write()
        lab.copied()
        lab.wait_for_checkpoints(first.flink_job_id, 1)
    lab.source.write()
    lab.copied()
    if quiet:
        lab.wait_for_checkpoints(first.flink_job_id, quiet)
    lab.cancel()
    return first.flink_job_id


def _newest(lab: Laboratory, job_id: str) -> str:  # noqa: F811
    point = newest_complete_checkpoint(str(lab.folder / "checkpoints"), job_id)
    assert point is not None
    return point.path.removeprefix("file://")


def _committing_checkpoint(lab: Laboratory) -> int:  # noqa: F811
    reader = lab.catalog.open().table(TABLE)
    snapshot = reader.latest_snapshot()
    assert snapshot is not None
    return snapshot.commit_identifier


def _lose_metadata_from(lab: Laboratory, job_id: str, number: int) -> None:  # noqa: F811
    """Take away the metadata of that checkpoint and of all after it."""
    for folder in (lab.folder / "checkpoints" / job_id).glob("chk-*"):
        if int(folder.name.removeprefix("chk-")) >= number:
            (folder / "_metadata").unlink(missing_ok=True)


def test_a_checkpoint_from_before_the_last_commit_is_refused(lab: Laboratory) -> None:  # noqa: F811
    job_id = _cancelled_with_rows(lab)
    committed = _committing_checkpoint(lab)
    _lose_metadata_from(lab, job_id, committed)
    assert _newest(lab, job_id).endswith(f"chk-{committed - 1}")
    with pytest.raises(NoRestorePointError) as refused:
        lab.start()
    assert f"committed by its checkpoint {committed}" in refused.value.message
    assert "--allow-empty-start" in str(refused.value)
    assert lab.on_cluster() == []
    lab.copied()


def test_a_lost_checkpoint_without_a_commit_does_no_harm(lab: Laboratory) -> None:  # noqa: F811
    job_id = _cancelled_with_rows(lab, quiet=2)
    newest = int(_newest(lab, job_id).rsplit("-", 1)[1])
    assert newest > _committing_checkpoint(lab)
    _lose_metadata_from(lab, job_id, newest)
    lab.source.write()
    outcome = lab.start()
    assert outcome.how is StartedHow.STARTED
    assert str(outcome.restored_from).endswith(f"chk-{newest - 1}")
    lab.copied_exactly(outcome.flink_job_id)

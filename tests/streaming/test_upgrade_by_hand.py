"""Jobs that were started by hand and adopted: their operator ids are Flink's own."""

from __future__ import annotations

import pytest

from lakehouse_dagster.errors import StateWouldBeLostError, StateWouldMoveError, UpgradeFailedError
from lakehouse_dagster.streaming.adopt import adopt
from lakehouse_dagster.streaming.upgrade import UpgradedHow
from lakehouse_dagster.streaming.versions import deployed
from lakehouse_dagster.system_db import IncarnationState
from tests.streaming.upgrading import (
    COPY,
    NO_CHECKPOINTS,
    OTHERS,
    WATCHED,
    others,
    source,
    statement_set,
    upgraded,
    write,
    writing_once,
)
from tests.support.by_hand import submit_by_hand
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]


def _adopted(lab: Laboratory, statement: str, *, sources: str | None = None) -> str:
    """A job that somebody submitted themselves, and that is ours now; its Flink id."""
    write(lab, statement, sources=sources)
    lab.source.write()
    others(lab)
    job_id = submit_by_hand(lab)
    lab.copied()
    runtime = lab.runtime()
    with runtime.hold(lab.job, "adopt") as held:
        assert adopt(held).flink_job_id == job_id
    lab.wait_for_checkpoints(job_id, 1)
    assert deployed(runtime, lab.job) is None  # what it runs is known to nobody
    return job_id


def test_the_same_sql_takes_over_the_state_of_a_job_started_by_hand(lab: Laboratory) -> None:
    _adopted(lab, COPY)
    outcome = upgraded(lab)  # nobody knows what it ran, so it is no "unchanged"
    assert (outcome.how, outcome.to_incarnation) == (UpgradedHow.UPGRADED, 2)
    lab.source.write()
    lab.copied_exactly(outcome.flink_job_id)
    assert lab.incarnations()[0].restored_from == lab.incarnations()[1].savepoint_path is not None
    assert upgraded(lab).how is UpgradedHow.UNCHANGED


def test_a_changed_script_is_examined_by_what_the_job_and_its_checkpoint_show(
    lab: Laboratory,
) -> None:
    job_id = _adopted(lab, COPY)
    write(lab, f"{COPY} WHERE id > 0")
    with pytest.raises(StateWouldBeLostError) as refused:
        upgraded(lab)
    assert not isinstance(refused.value, StateWouldMoveError)
    assert "lost would be that of the global committer of copied." in str(refused.value)
    assert [job.job_id for job in lab.on_cluster()] == [job_id]
    outcome = upgraded(lab, allow_state_loss=True)
    lab.source.write()
    lab.copied_exactly(outcome.flink_job_id)  # the source kept its place, and so its state

    write(lab, f"{COPY} WHERE id >= 0 AND amount >= 0")  # its operators have our ids by now
    outcome = upgraded(lab)
    lab.source.write()
    lab.copied_exactly(outcome.flink_job_id)
    assert outcome.savepoint_path == lab.incarnations()[1].savepoint_path


def test_a_job_started_by_hand_that_was_stopped_is_examined_when_it_is_started(
    lab: Laboratory,
) -> None:
    _adopted(lab, statement_set(COPY))
    lab.stop()
    write(lab, statement_set(OTHERS, COPY))
    with pytest.raises(StateWouldMoveError, match="other"):
        lab.start()
    write(lab, statement_set(COPY))
    lab.source.write()
    outcome = lab.start()
    lab.assert_restored(outcome)
    lab.copied_exactly(outcome.flink_job_id)


def test_a_moved_source_of_a_job_started_by_hand_is_refused(lab: Laboratory) -> None:
    job_id = _adopted(lab, statement_set(COPY))
    write(lab, statement_set(OTHERS, COPY))
    with pytest.raises(StateWouldMoveError, match="other"):
        upgraded(lab)
    assert [job.job_id for job in lab.on_cluster()] == [job_id]


def test_a_failed_upgrade_says_that_what_ran_is_not_known_and_where_its_state_is(
    lab: Laboratory,
) -> None:
    _adopted(lab, COPY, sources=source("incoming", "incoming"))
    failing = COPY.replace("amount FROM", "CAST(1 / (id - id) AS INT) FROM")
    write(lab, failing, settings=[NO_CHECKPOINTS])
    runtime = lab.runtime(policy=WATCHED, clock=writing_once(lab, 2, IncarnationState.RUNNING))
    with pytest.raises(UpgradeFailedError) as failed:
        upgraded(lab, runtime, allow_state_loss=True)
    savepoint = lab.incarnations()[1].savepoint_path
    assert "What ran before is not known" in str(failed.value)
    assert str(savepoint) in str(failed.value)

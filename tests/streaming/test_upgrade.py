"""A changed script takes the place of what runs, with its state, or what ran runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakehouse_dagster.errors import (
    StateIncompatibleError,
    StateWouldBeLostError,
    StateWouldMoveError,
    StreamingJobError,
    UpgradeFailedError,
)
from lakehouse_dagster.flink import is_complete
from lakehouse_dagster.streaming import upgrade
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob
from lakehouse_dagster.streaming.session import prepare
from lakehouse_dagster.streaming.start import StartedHow, StartOutcome, start_or_adopt
from lakehouse_dagster.streaming.submission import launch
from lakehouse_dagster.streaming.upgrade import UpgradedHow
from lakehouse_dagster.streaming.versions import deployed
from lakehouse_dagster.system_db import DesiredState, Incarnation, IncarnationState
from tests.streaming.upgrading import (
    COPY,
    NO_CHECKPOINTS,
    OTHERS,
    SLOW_CHECKPOINTS,
    WATCHED,
    count,
    others,
    source,
    statement_set,
    upgraded,
    write,
    writing_once,
)
from tests.support.faults import Does, Fault, FaultyProxy
from tests.support.fixtures import gateway_proxy, lab, rest_proxy
from tests.support.history import JobWatcher
from tests.support.laboratory import Laboratory, until

__all__ = ["gateway_proxy", "lab", "rest_proxy"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]


def _runs(lab: Laboratory, number: int) -> str:
    """Exactly one incarnation runs: this one; its Flink job id."""
    latest = lab.incarnations()[0]
    assert [job.job_id for job in lab.on_cluster()] == [latest.flink_job_id]
    assert latest.number == number
    assert latest.state is IncarnationState.RUNNING
    assert lab.books.memory.ensure(lab.job).desired is DesiredState.RUNNING
    assert lab.lease_is_free()
    return latest.flink_job_id


def test_an_added_filter_keeps_the_state_and_no_row_is_lost_or_doubled(lab: Laboratory) -> None:
    write(lab, COPY)
    lab.source.write()
    first = lab.start()
    lab.copied()
    write(lab, f"{COPY} WHERE id > 0")
    with JobWatcher(lab.cluster, lab.job) as watcher:
        outcome = upgraded(lab)
        lab.source.write()
        lab.copied_exactly(outcome.flink_job_id)
    assert (outcome.how, outcome.from_incarnation, outcome.to_incarnation) == (
        UpgradedHow.UPGRADED,
        1,
        2,
    )
    assert outcome.savepoint_path == lab.incarnations()[1].savepoint_path
    assert lab.incarnations()[1].savepoint_at is not None
    restored = lab.checkpoints(outcome.flink_job_id).restored_path
    assert str(restored).rpartition("/")[2] == str(outcome.savepoint_path).rpartition("/")[2]
    assert watcher.ids == [first.flink_job_id, outcome.flink_job_id]
    assert watcher.most_at_once == 1
    assert _runs(lab, 2) == outcome.flink_job_id


def test_a_script_that_has_not_changed_is_left_alone(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    write(lab, COPY)
    first = lab.start()
    outcome = upgraded(lab, lab.runtime(rest_url=rest_proxy.url))
    assert (outcome.how, outcome.to_incarnation) == (UpgradedHow.UNCHANGED, 1)
    assert rest_proxy.requests("POST") == []
    assert _runs(lab, 1) == first.flink_job_id


def test_a_job_that_does_not_run_is_started(lab: Laboratory) -> None:
    write(lab, COPY)
    outcome = upgraded(lab)
    assert (outcome.how, outcome.from_incarnation) == (UpgradedHow.STARTED, None)
    assert _runs(lab, 1) == outcome.flink_job_id


def test_a_script_that_does_not_compile_never_stops_a_healthy_job(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    write(lab, COPY)
    first = lab.start()
    write(lab, f"{COPY} WHERE nonesuch > 1")
    runtime = lab.runtime(rest_url=rest_proxy.url)
    with pytest.raises(StreamingJobError, match="'nonesuch'"):
        upgraded(lab, runtime)
    with pytest.raises(StreamingJobError, match="'nonesuch'"):
        lab.restart(runtime)
    assert rest_proxy.requests("POST") == []
    assert _runs(lab, 1) == first.flink_job_id


def test_a_statement_set_grows_at_its_end(lab: Laboratory) -> None:
    write(lab, statement_set(COPY))
    lab.source.write()
    lab.start()
    lab.copied()
    write(lab, statement_set(COPY, OTHERS))
    other = others(lab)
    other.write(30)
    outcome = upgraded(lab)
    assert outcome.changes == (f"reads {_other(lab)} as well", "writes others as well")
    lab.source.write()
    until(lambda: count(lab, "ods.others") == 30, "the rows of the second source")
    lab.copied_exactly(outcome.flink_job_id)
    assert count(lab, "ods.others") == 30


def _other(lab: Laboratory) -> str:
    return f"{lab.books.catalog.name}.default.other"


def test_a_source_put_before_another_is_refused_and_the_job_runs_on(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    write(lab, statement_set(COPY))
    lab.source.write()
    first = lab.start()
    lab.copied()
    write(lab, statement_set(OTHERS, COPY))
    others(lab)
    runtime = lab.runtime(rest_url=rest_proxy.url)
    with pytest.raises(StateWouldMoveError) as refused:
        upgraded(lab, runtime)
    said = str(refused.value)
    assert ".incoming would go to the source" in said
    assert "at the end of the statement set" in said
    assert "SET 'pipeline.name'" in said
    assert f"lakehouse jobs upgrade {lab.job} --allow-state-loss" in said
    assert rest_proxy.requests("POST") == []
    assert _runs(lab, 1) == first.flink_job_id

    lab.stop()
    with pytest.raises(StateWouldMoveError, match="jobs start"):
        lab.start()
    assert len(lab.incarnations()) == 1


def test_flink_itself_would_hand_the_state_of_a_source_to_another(lab: Laboratory) -> None:
    """Why a moved source is refused: Flink says restored, and rows are written twice."""
    write(lab, statement_set(COPY))
    lab.source.write()
    lab.start()
    lab.copied()
    savepoint = lab.stop().savepoint_path
    write(lab, statement_set(OTHERS, COPY))
    others(lab).write(10)
    runtime = lab.runtime()
    with (
        runtime.hold(lab.job, "reckless") as held,
        held.runtime.cluster.job_manager() as job_manager,
        held.runtime.cluster.sql_gateway() as gateway,
    ):
        prepared = prepare(held, gateway, LOGGER)
        choice = RestoreChoice(savepoint, "whatever it means")
        new = launch(held, prepared, 2, choice, job_manager, gateway, LOGGER)
    assert lab.checkpoints(new.flink_job_id).restored_path is not None
    until(lambda: count(lab, "ods.copied") == 100, "fifty rows twice")


def test_a_source_that_keeps_its_name_but_reads_elsewhere_is_refused(lab: Laboratory) -> None:
    write(lab, COPY, sources=source("incoming", "incoming"))
    lab.start()
    others(lab)
    write(lab, COPY, sources=source("incoming", "other"))
    with pytest.raises(StateWouldMoveError, match="other"):
        upgraded(lab)
    _runs(lab, 1)


def test_a_moved_source_that_was_allowed_starts_from_nothing(lab: Laboratory) -> None:
    write(lab, statement_set(COPY))
    lab.source.write()
    lab.start()
    lab.copied()
    write(lab, statement_set(OTHERS, COPY))
    others(lab).write(10)
    outcome = upgraded(lab, allow_state_loss=True)
    assert outcome.savepoint_path is None
    assert lab.checkpoints(outcome.flink_job_id).restored_path is None
    assert is_complete(str(lab.incarnations()[1].savepoint_path))
    until(lambda: count(lab, "ods.others") == 10, "the rows of the other source")
    until(lambda: count(lab, "ods.copied") == 100, "the rows read anew, as was said")


def test_state_that_no_operator_would_take_is_refused_or_dropped_on_request(
    lab: Laboratory,
) -> None:
    write(lab, statement_set(COPY, OTHERS))
    other = others(lab)
    lab.source.write()
    other.write(30)
    lab.start()
    lab.copied()
    until(lambda: count(lab, "ods.others") == 30, "the rows of the second source")
    write(lab, COPY)
    with pytest.raises(StateWouldBeLostError) as refused:
        upgraded(lab)
    assert "the global committer of others" in str(refused.value)
    assert not isinstance(refused.value, StateWouldMoveError)
    _runs(lab, 1)
    outcome = upgraded(lab, allow_state_loss=True)
    lab.source.write()
    lab.copied_exactly(outcome.flink_job_id)  # the state of the first source was kept
    assert "no longer writes others" in outcome.changes


TOTALS = (
    "INSERT INTO ods.totals SELECT id AS k, CAST(SUM(amount) AS DOUBLE) FROM incoming GROUP BY id"
)


def test_state_of_another_type_is_found_out_and_the_old_version_runs_again(
    lab: Laboratory,
) -> None:
    """The types of columns do not show in a plan: Flink finds out when it restores."""
    write(lab, TOTALS, sources=source("incoming", "incoming"))
    lab.source.write()
    lab.start()
    totals = lab.catalog.open().table("ods.totals")
    until(lambda: totals.latest_snapshot_id(), "the first totals")
    write(lab, TOTALS, sources=source("incoming", "incoming", amount="DOUBLE"))
    with (
        JobWatcher(lab.cluster, lab.job, every_seconds=0.03) as watcher,
        pytest.raises(UpgradeFailedError) as failed,
    ):
        upgraded(lab)
    assert isinstance(failed.value.__cause__, StateIncompatibleError)
    assert watcher.most_at_once == 1
    said = str(failed.value)
    assert "The old version runs again as incarnation 3" in said
    third, second, first = lab.incarnations()
    assert third.restored_from == second.restored_from == first.savepoint_path is not None
    assert str(first.savepoint_path) in said
    assert second.state is IncarnationState.ENDED
    assert third.fingerprint == first.fingerprint != second.fingerprint
    job_id = _runs(lab, 3)
    lab.source.write()
    wanted = {row.id: float(row.amount) for row in lab.source.rows}

    def found() -> dict[int, float]:
        rows = totals.read(columns=["k", "total"]).to_pylist()
        return {row["k"]: row["total"] for row in rows}

    until(lambda: found() == wanted, "all totals")
    lab.wait_for_checkpoints(job_id)
    assert found() == wanted
    assert lab.books.memory.ensure(lab.job).last_error == said


@pytest.mark.parametrize(
    ("number", "state"),
    [(1, IncarnationState.STOPPED), (2, IncarnationState.RUNNING)],
    ids=["as it begins", "once it runs"],
)
def test_a_version_that_fails_on_its_first_record_gives_way_to_the_old_one(
    lab: Laboratory, number: int, state: IncarnationState
) -> None:
    write(lab, COPY)
    lab.source.write()
    lab.start()
    lab.copied()
    write(lab, f"{COPY} WHERE 1 / (id - 70) < 2", settings=[NO_CHECKPOINTS])
    runtime = lab.runtime(policy=WATCHED, clock=writing_once(lab, number, state))
    with pytest.raises(UpgradeFailedError, match="/ by zero") as failed:
        upgraded(lab, runtime)
    assert "The old version runs again as incarnation 3" in str(failed.value)
    assert "Flink could not run" in str(failed.value)  # and nobody waited until it is too late
    assert len(str(failed.value)) < 700
    assert [i.session_handle for i in lab.incarnations()] == [None] * 3
    job_id = _runs(lab, 3)
    lab.copied_exactly(job_id)
    ran = deployed(lab.books, lab.job)
    assert ran is not None
    assert "WHERE" not in ran.definition.statement.text


def test_a_version_that_fails_after_it_has_committed_is_undone_from_its_own_checkpoint(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the savepoint the old version would write once more what the new one has written."""
    write(lab, COPY)
    lab.source.write()
    lab.start()
    lab.copied()
    write(
        lab,
        f"{COPY} WHERE 1 / (id - 70) < 2",
        settings=[SLOW_CHECKPOINTS],
    )
    watch = upgrade.wait_for_first_checkpoint

    def watch_late(held: HeldJob, new: Incarnation, *others: Any) -> None:
        """Before the watch looks for the first time: rows are committed, then a bad one comes."""
        lab.source.write(10)
        lab.copied()
        lab.source.write(40)
        until(lambda: _failures(lab, new.flink_job_id) > 2, "the failures")
        watch(held, new, *others)

    monkeypatch.setattr(upgrade, "wait_for_first_checkpoint", watch_late)
    with pytest.raises(UpgradeFailedError, match="/ by zero") as failed:
        upgraded(lab, lab.runtime(policy=WATCHED))
    assert "The old version runs again as incarnation 3" in str(failed.value)
    third, second, first = lab.incarnations()
    assert f"{second.flink_job_id}/chk-" in str(third.restored_from)
    assert third.fingerprint == first.fingerprint
    lab.copied_exactly(_runs(lab, 3))


def _runs_until_row_70(lab: Laboratory, settings: Sequence[str]) -> StartOutcome:
    """A job that has copied fifty rows, and has a checkpoint of its own."""
    write(lab, f"{COPY} WHERE 1 / (id - 70) < 2", settings=settings)
    lab.source.write()
    first = lab.start()
    lab.copied()
    lab.wait_for_checkpoints(first.flink_job_id, 1)
    return first


def _restarts(lab: Laboratory) -> bool:
    return any(job.status.is_restarting for job in lab.on_cluster())


def _failures(lab: Laboratory, job_id: str) -> int:
    with lab.cluster.job_manager() as job_manager:
        return len(job_manager.exceptions(job_id))


def test_a_job_that_fails_again_and_again_is_replaced_from_its_newest_checkpoint(
    lab: Laboratory,
) -> None:
    """It gives no savepoint; its corrected script goes on where the last commit was."""
    # It waits for minutes after the second failure: while it ran it could be stopped.
    restarts = [
        "SET 'restart-strategy.exponential-delay.backoff-multiplier' = '1000'",
        "SET 'restart-strategy.exponential-delay.max-backoff' = '1 h'",
    ]
    first = _runs_until_row_70(lab, restarts)
    lab.source.write()
    until(lambda: _failures(lab, first.flink_job_id) > 1, "the failures")
    until(lambda: _restarts(lab), "a longer pause")
    write(lab, f"{COPY} WHERE id > 0")
    outcome = upgraded(lab)
    assert outcome.how is UpgradedHow.UPGRADED
    lab.copied_exactly(outcome.flink_job_id)
    _runs(lab, 2)
    assert lab.incarnations()[1].state is IncarnationState.ENDED


def test_a_savepoint_that_cannot_be_written_leaves_the_old_version_running(
    lab: Laboratory,
) -> None:
    write(lab, COPY)
    first = lab.start()
    (lab.folder / "savepoints").write_text("a file where a folder should be")
    write(lab, f"{COPY} WHERE id > 0")
    with pytest.raises(StreamingJobError, match="could not stop"):
        upgraded(lab)
    assert _runs(lab, 1) == first.flink_job_id


def test_an_edited_script_goes_live_by_a_person_never_by_the_supervisor(lab: Laboratory) -> None:
    write(lab, COPY)
    lab.source.write()
    lab.start()
    lab.copied()
    lab.cancel()
    write(lab, f"{COPY} WHERE id < 0")
    runtime = lab.runtime()
    with runtime.hold(lab.job, "supervisor") as held:
        outcome = start_or_adopt(held, recover=True)
    assert (outcome.how, outcome.incarnation) == (StartedHow.STARTED, 2)
    lab.source.write()
    lab.copied_exactly(outcome.flink_job_id)
    second, first = lab.incarnations()
    assert second.fingerprint == first.fingerprint != runtime.job(lab.job).fingerprint
    ran = deployed(runtime, lab.job)
    assert ran is not None
    assert "WHERE" not in ran.definition.statement.text
    assert upgraded(lab).how is UpgradedHow.UPGRADED
    newest = deployed(lab.runtime(), lab.job)
    assert newest is not None
    assert "WHERE id < 0" in newest.definition.statement.text


def test_a_restart_brings_the_declared_script_too(lab: Laboratory) -> None:
    write(lab, COPY)
    lab.start()
    write(lab, f"{COPY} WHERE id > 0")
    outcome = lab.restart(lab.runtime(policy=WATCHED))
    assert outcome.incarnation == 2
    assert lab.incarnations()[0].fingerprint == lab.runtime().job(lab.job).fingerprint
    again = lab.restart(lab.runtime(policy=WATCHED))
    assert again.incarnation == 3
    assert again.restored_from == lab.incarnations()[1].savepoint_path is not None


def test_a_table_that_is_read_by_two_scans_starts_and_restarts(lab: Laboratory) -> None:
    """Their operators cannot have uids of their own: Flink refuses one uid twice."""
    write(
        lab,
        statement_set(
            COPY,
            "INSERT INTO ods.others SELECT id, text, amount FROM ods.copied WHERE amount > 50 "
            "UNION ALL SELECT id, text, amount FROM ods.copied WHERE amount < 10",
        ),
    )

    def wanted() -> int:
        return sum(row.amount > 50 or row.amount < 10 for row in lab.source.rows)

    lab.source.write()
    lab.start()
    until(lambda: count(lab, "ods.others") == wanted(), "the rows of both scans")
    outcome = lab.restart(lab.runtime(policy=WATCHED))
    lab.source.write()
    until(lambda: count(lab, "ods.others") == wanted(), "the rows of both scans")
    lab.copied_exactly(outcome.flink_job_id)
    assert count(lab, "ods.others") == wanted()


def test_two_inserts_into_one_table_start_and_restart(lab: Laboratory) -> None:
    write(lab, statement_set(COPY, "INSERT INTO ods.copied SELECT id, text, amount FROM other"))
    other = others(lab)
    lab.source.write(40)
    lab.start()
    until(lambda: count(lab, "ods.copied") == 40, "the rows of the first source")
    outcome = lab.restart(lab.runtime(policy=WATCHED))
    other.write(30)
    until(lambda: count(lab, "ods.copied") == 70, "the rows of both sources")
    lab.wait_for_checkpoints(outcome.flink_job_id)
    assert count(lab, "ods.copied") == 70


def test_a_job_that_begins_to_fail_as_it_is_stopped_is_replaced_at_once(
    lab: Laboratory, rest_proxy: FaultyProxy
) -> None:
    """Waiting for a savepoint of a job that hardly ever runs would take the whole stop timeout."""
    restarts = [
        "SET 'restart-strategy.type' = 'fixed-delay'",
        "SET 'restart-strategy.fixed-delay.attempts' = '1000'",
        "SET 'restart-strategy.fixed-delay.delay' = '1 h'",
    ]
    first = _runs_until_row_70(lab, restarts)

    def fails() -> None:
        lab.source.write()
        until(lambda: _restarts(lab), "the failure")

    rest_proxy.add(Fault("POST", "/jobs/[0-9a-f]+/stop$", Does.PASS_ON, before=fails))
    write(lab, f"{COPY} WHERE id > 0", settings=restarts)
    outcome = upgraded(lab, lab.runtime(rest_url=rest_proxy.url, policy=WATCHED))
    assert outcome.how is UpgradedHow.UPGRADED
    assert f"{first.flink_job_id}/chk-" in str(outcome.savepoint_path)
    lab.copied_exactly(outcome.flink_job_id)
    _runs(lab, 2)
    assert lab.incarnations()[1].end_reason == "cancelled to be upgraded"

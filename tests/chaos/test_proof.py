"""The judge of the laboratory is judged: what must not be is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.history import read_log
from tests.support.proof import Evidence, violations
from tests.support.rows import Comparison, Row

JOB, FIRST, SECOND, THIRD = "orders", "a" * 32, "b" * 32, "c" * 32


def _started(job_id: str, name: str = JOB) -> str:
    return (
        f"2026-01-01 00:00:00,000 INFO  JobMaster [pekko] - Initializing job '{name}' ({job_id})."
    )


def _ended(job_id: str, state: str = "CANCELED", name: str = JOB) -> str:
    return f"... INFO - Job {name} ({job_id}) switched from state CANCELLING to {state}."


NEW_PROCESS = "... INFO  ClusterEntrypoint [] - Starting StandaloneSessionClusterEntrypoint."
GOOD_LOG = [NEW_PROCESS, _started(FIRST), _started(THIRD, "other"), _ended(FIRST), _started(SECOND)]


def _rows(
    *, count: int = 60, distinct: int = 60, missing: int = 0, unexpected: int = 0
) -> Comparison:
    return Comparison(
        expected=60,
        count=count,
        distinct=distinct,
        missing=tuple(Row.numbered(n) for n in range(1, missing + 1)),
        unexpected=tuple(Row.numbered(n) for n in range(1, unexpected + 1)),
    )


def _evidence(*log: str) -> Evidence:
    return Evidence(
        job=JOB,
        history=read_log(log or GOOD_LOG),
        wanted_id=SECOND,
        alive_ids=[SECOND],
        rows=_rows(),
        restored=(f"file:///c/{FIRST}/chk-7", f"file:/c/{FIRST}/chk-7"),
        posted_ids=[FIRST, SECOND],
    )


def test_a_good_history_is_found_good() -> None:
    assert violations(_evidence()) == ()


def test_two_jobs_of_one_name_at_once_are_found_in_the_log() -> None:
    (found,) = violations(_evidence(NEW_PROCESS, _started(FIRST), _started(SECOND)))
    assert found == f"two jobs named {JOB} ran at once: {FIRST} and {SECOND}"


def test_jobs_are_over_with_the_job_manager_that_led_them() -> None:
    log = [NEW_PROCESS, _started(FIRST), NEW_PROCESS, _started(SECOND)]
    assert violations(_evidence(*log)) == ()


def test_a_failed_and_a_finished_job_are_over_too() -> None:
    for state in ("FAILED", "FINISHED"):
        assert violations(_evidence(_started(FIRST), _ended(FIRST, state), _started(SECOND))) == ()
    (found,) = violations(_evidence(_started(FIRST), _ended(FIRST, "RESTARTING"), _started(SECOND)))
    assert "ran at once" in found


def test_a_job_of_the_same_name_that_somebody_else_started_is_not_ours_to_count() -> None:
    evidence = _evidence(_started(FIRST), _started(SECOND))
    evidence = replace(evidence, foreign_ids=frozenset({FIRST}), alive_ids=[FIRST, SECOND])
    assert violations(evidence) == ()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"most_at_once": 2}, f"2 jobs named {JOB} were seen at once"),
        ({"posted_ids": [FIRST, SECOND, SECOND]}, f"the INSERT of job {SECOND} was sent 2 times"),
        ({"alive_ids": []}, f"job {SECOND} should run and does not"),
        ({"alive_ids": [FIRST, SECOND]}, f"job {FIRST} runs and should not"),
        ({"wanted_id": None}, f"job {SECOND} runs and should not"),
        ({"restored": ("file:///c/x", None)}, "restored from None according to Flink"),
        ({"restored": (None, "file:///c/x/chk-1")}, "but None is on record"),
        ({"held_leases": ["job/orders"]}, "lease job/orders is still held"),
        ({"running_submissions": ["o-1"]}, "submission o-1 is still under way"),
        ({"unexpected_errors": ["KeyError"]}, "an error that is none of ours: KeyError"),
    ],
)
def test_what_must_not_be_is_found(change: dict[str, object], found: str) -> None:
    (said,) = violations(replace(_evidence(), **change))  # type: ignore[arg-type]
    assert found in said


def test_a_job_that_was_started_twice_is_found() -> None:
    log = [*GOOD_LOG, _ended(SECOND), _started(SECOND)]
    (found,) = violations(_evidence(*log))
    assert found == f"job {SECOND} was started 2 times"


def test_a_job_restarted_by_flink_was_restored_from_a_checkpoint_of_its_own() -> None:
    own = f"file:/c/{SECOND}/chk-3"
    assert violations(replace(_evidence(), restored=(None, own))) == ()


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (_rows(count=59, distinct=59, missing=1), "rows lost"),
        (_rows(count=61, unexpected=1), "rows doubled or made up"),
        # One lost and another doubled: the count alone looks right.
        (_rows(distinct=59, missing=1, unexpected=1), "rows lost"),
        (_rows(distinct=59, missing=1, unexpected=1), "rows doubled"),
        (_rows(count=61, distinct=61), "61 rows, 61 distinct, for 60"),
    ],
)
def test_lost_and_doubled_rows_are_found(rows: Comparison, found: str) -> None:
    assert any(found in said for said in violations(replace(_evidence(), rows=rows)))

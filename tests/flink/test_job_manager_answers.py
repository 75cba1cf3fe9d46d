"""What the JobManager's answers become, where a running cluster does not easily give them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lakehouse_dagster.errors import AnswerLostError, ConfigurationError, FlinkRequestError
from lakehouse_dagster.flink import FlinkJobStatus, OperationStatus, SavepointResult
from tests.flink.answers import JOB, OVERVIEW, Recorder, always, flink_error, job_manager

TRIGGER = "f" * 32


def test_the_overview_keeps_its_slots_apart() -> None:
    overview = job_manager(always(json=OVERVIEW)).overview()
    assert (overview.task_managers, overview.slots_total, overview.slots_available) == (2, 8, 5)


def test_suspended_is_not_an_end_since_another_job_manager_goes_on() -> None:
    terminal = {status for status in FlinkJobStatus if status.is_terminal}
    assert terminal == {FlinkJobStatus.FAILED, FlinkJobStatus.CANCELED, FlinkJobStatus.FINISHED}
    going_on = {status for status in OperationStatus if not status.is_terminal}
    assert {status.value for status in going_on} == {"INITIALIZED", "PENDING", "RUNNING"}


def test_configuration_masks_secrets_that_flink_does_not_know() -> None:
    entries = [
        {"key": "rest.port", "value": "8081"},
        {"key": "s3.access-key", "value": "AKIA"},
    ]
    configuration = job_manager(always(json=entries)).configuration()
    assert configuration == {"rest.port": "8081", "s3.access-key": "****"}


def test_checkpoint_statistics_tell_what_was_restored() -> None:
    answer: dict[str, Any] = {
        "counts": {"restored": 2, "total": 9, "in_progress": 1, "completed": 7, "failed": 3},
        "latest": {
            "completed": None,
            "savepoint": None,
            "restored": {"id": 5, "is_savepoint": False, "external_path": "s3://b/chk-5"},
        },
    }
    statistics = job_manager(always(json=answer)).checkpoints(JOB)
    assert (statistics.completed_count, statistics.failed_count) == (7, 3)
    assert statistics.restored_count == 2
    assert statistics.latest_completed is None
    assert statistics.restored_path == "s3://b/chk-5"


def test_exceptions_come_newest_first_whatever_flink_s_order() -> None:
    entries = [
        {"exceptionName": "a.B", "stacktrace": f"a.Boom: {n}", "timestamp": n, "taskName": task}
        for n, task in ((1000, "map"), (3000, None), (2000, "sink"))
    ]
    found = job_manager(always(json={"exceptionHistory": {"entries": entries}})).exceptions(JOB)
    assert [(e.root_cause, e.task) for e in found] == [
        ("Boom: 3000", None),
        ("Boom: 2000", "sink"),
        ("Boom: 1000", "map"),
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": {"id": "IN_PROGRESS"}, "operation": None}, SavepointResult(False, None, None)),
        (
            {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/sp"}},
            SavepointResult(True, "file:/sp", None),
        ),
        (
            {
                "status": {"id": "COMPLETED"},
                "operation": {"failure-cause": {"class": "a.B", "stack-trace": "a.Boom: no"}},
            },
            SavepointResult(True, None, "Boom: no"),
        ),
    ],
)
def test_a_savepoint_is_under_way_or_done_or_failed(
    answer: dict[str, Any], expected: SavepointResult
) -> None:
    assert job_manager(always(json=answer)).savepoint_result(JOB, TRIGGER) == expected


def test_a_stop_sends_the_trigger_id_it_was_given() -> None:
    transport = always(202, json={"request-id": TRIGGER})
    job_manager(transport).stop_with_savepoint(
        JOB, trigger_id=TRIGGER, target_directory="file:///sp"
    )
    assert transport.sent == [f"POST /jobs/{JOB}/stop"]
    assert transport.requests[0].read() == (
        b'{"triggerId":"' + TRIGGER.encode() + b'","drain":false,"targetDirectory":"file:///sp"}'
    )


def test_a_stop_under_another_trigger_id_is_not_taken_for_ours() -> None:
    with pytest.raises(AnswerLostError, match="instead of"):
        job_manager(always(202, json={"request-id": JOB})).stop_with_savepoint(
            JOB, trigger_id=TRIGGER
        )


def test_cancelling_what_has_ended_is_fine_but_another_refusal_is_not() -> None:
    ended = "Job cancellation failed because the job has already reached another terminal state."
    job_manager(Recorder(lambda request: flink_error(409, ended))).cancel(JOB)
    with pytest.raises(FlinkRequestError, match="time-out"):
        job_manager(Recorder(lambda request: flink_error(500, "time-out"))).cancel(JOB)


@pytest.mark.parametrize("job_id", ["", "../config", JOB.upper(), f"{JOB}/yarn-cancel", "é" * 32])
def test_what_is_no_job_id_never_becomes_part_of_an_address(job_id: str) -> None:
    transport = always(json={})
    for call in (
        lambda: job_manager(transport).job(job_id),
        lambda: job_manager(transport).cancel(job_id),
        lambda: job_manager(transport).savepoint_result(JOB, job_id),
        lambda: job_manager(transport).stop_with_savepoint(JOB, trigger_id=job_id),
    ):
        with pytest.raises(ConfigurationError, match="32 hexadecimal digits"):
            call()
    assert transport.requests == []


def test_the_records_that_wait_for_each_source_are_asked_by_vertex() -> None:
    reading, writing = "a" * 32, "b" * 32

    def answer(request: httpx.Request) -> httpx.Response:
        path, asked = request.url.path, dict(request.url.params)
        if path == f"/jobs/{JOB}":
            return httpx.Response(200, json={"vertices": [{"id": reading}, {"id": writing}]})
        if path == f"/jobs/{JOB}/vertices/{writing}/subtasks/metrics":
            return httpx.Response(200, json=[{"id": "numRecordsIn"}])
        assert path == f"/jobs/{JOB}/vertices/{reading}/subtasks/metrics"
        names = ["Source__a[1].pendingRecords", "Source__b.pendingRecords"]
        if not asked:
            return httpx.Response(200, json=[{"id": name} for name in ("busyTime", *names)])
        assert asked == {"agg": "sum", "get": ",".join(names)}
        return httpx.Response(
            200, json=[{"id": names[0], "sum": 41.0}, {"id": names[1], "sum": 0.0}]
        )

    waiting = job_manager(Recorder(answer)).pending_records(JOB)
    assert waiting == {"Source__a[1]": 41, "Source__b": 0}

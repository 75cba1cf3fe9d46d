"""The JobManager's REST API: what runs, how its checkpoints are, and stopping it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from lakehouse_dagster.errors import (
    AnswerLostError,
    ClusterUnreachableError,
    ConfigurationError,
    FlinkRequestError,
    NotFoundError,
)
from lakehouse_dagster.flink.cluster import FlinkCluster
from lakehouse_dagster.flink.endpoint import Endpoint
from lakehouse_dagster.flink.execution_plan import ExecutionPlan
from lakehouse_dagster.flink.redaction import root_cause
from lakehouse_dagster.flink.running_plan import plan_of_running
from lakehouse_dagster.flink.types import (
    Checkpoint,
    CheckpointStatistics,
    ClusterOverview,
    FlinkJobStatus,
    JobConfiguration,
    JobException,
    JobSummary,
    SavepointResult,
)
from lakehouse_dagster.secret_names import MASK, is_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

_Record = TypeVar("_Record")
_PENDING_RECORDS = ".pendingRecords"

_HIGH_AVAILABILITY = ("high-availability.type", "high-availability")
"""The option, and the name that it had before Flink 1.17."""


class JobManager(Endpoint):
    """One JobManager (``/overview``, ``/jobs`` …); a context manager that closes its connections.

    Every method can raise ClusterUnreachableError (nobody answered, or not Flink: nothing is known
    about any job) and FlinkRequestError (Flink answered with an error).
    """

    def __init__(
        self, cluster: FlinkCluster, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        super().__init__(cluster, cluster.rest_url, "JobManager", transport)

    def overview(self) -> ClusterOverview:
        """The cluster's version, slots and numbers of jobs (``GET /overview``)."""
        return self._read("/overview", _overview)

    def jobs(self) -> tuple[JobSummary, ...]:
        """All jobs that the JobManager knows, ended ones included (``GET /jobs/overview``).

        Ended jobs stay for ``jobstore.expiration-time`` (one hour by default), and not beyond a
        restart of the JobManager.
        """
        return self._read(
            "/jobs/overview", lambda answer: tuple(_summary(job) for job in answer["jobs"])
        )

    def job(self, job_id: str) -> JobSummary | None:
        """One job; None when this JobManager says that it does not know it."""
        try:
            return self._read(_job_path(job_id), _summary_from_details)
        except NotFoundError as error:
            if _says_job_is_unknown(error):
                return None
            raise

    def checkpoints(self, job_id: str) -> CheckpointStatistics:
        """How the checkpoints of a job are, and what it was restored from.

        Raises:
            NotFoundError: the JobManager does not know the job.
        """
        return self._read(_job_path(job_id, "/checkpoints"), _checkpoint_statistics)

    def exceptions(self, job_id: str) -> tuple[JobException, ...]:
        """The failures of a job that the JobManager remembers, newest first.

        It keeps ``web.exception-history-size`` of them (16 by default).

        Raises:
            NotFoundError: the JobManager does not know the job.
        """
        return self._read(_job_path(job_id, "/exceptions"), _exceptions)

    def configuration(self) -> dict[str, str]:
        """The JobManager's configuration (``GET /jobmanager/config``), secrets masked."""
        return self._read(
            "/jobmanager/config",
            lambda answer: {
                entry["key"]: MASK if is_secret(entry["key"]) else entry["value"]
                for entry in answer
            },
        )

    def high_availability(self) -> bool:
        """Whether jobs outlive this JobManager, in ZooKeeper, Kubernetes or a store of its own."""
        configuration = self.configuration()
        kinds = (configuration.get(option) for option in _HIGH_AVAILABILITY)
        return next((kind for kind in kinds if kind), "NONE").upper() != "NONE"

    def job_configuration(self, job_id: str) -> JobConfiguration:
        """What a job was submitted with (``GET /jobs/:id/config``), secrets masked.

        Raises:
            NotFoundError: the JobManager does not know the job.
        """
        return self._read(_job_path(job_id, "/config"), _job_configuration)

    def execution_plan(self, job_id: str) -> ExecutionPlan:
        """The operators of a job as it runs (``GET /jobs/:id/plan``).

        Raises:
            NotFoundError: the JobManager does not know the job.
        """
        return self._read(_job_path(job_id, "/plan"), plan_of_running)

    def pending_records(self, job_id: str) -> dict[str, int]:
        """How many records wait for each source of a job that tells so, as Kafka's do.

        By the name that the source has in Flink's metrics (Flink's page "Metrics",
        ``pendingRecords``); the subtasks' values are added. A source that has not fetched yet does
        not tell.

        Raises:
            NotFoundError: the JobManager does not know the job.
        """
        found: dict[str, int] = {}
        for vertex in self._read(_job_path(job_id), _vertex_ids):
            path = _job_path(job_id, f"/vertices/{_hex_id(vertex, 'vertex id')}/subtasks/metrics")
            names = self._read(path, _pending_metrics)
            if names:
                asked = f"{path}?agg=sum&get={quote(','.join(names), safe=',')}"
                found |= self._read(asked, _pending_records)
        return found

    def stop_with_savepoint(
        self,
        job_id: str,
        *,
        trigger_id: str,
        target_directory: str | None = None,
    ) -> None:
        """Begin to stop a job with a savepoint; ask ``savepoint_result`` how it goes.

        Flink accepts this even for a job that it does not know or that has ended: the failure then
        stands in the savepoint's result. Within ``rest.async.store-duration`` (5 minutes by
        default) the same trigger id again does not stop or save twice.

        Args:
            job_id: 32 hexadecimal digits.
            trigger_id: 32 hexadecimal digits, chosen by the caller before the request, so that the
                savepoint can be found even when the answer is lost.
            target_directory: where the savepoint goes; None for the cluster's
                ``execution.checkpointing.savepoint-dir``.

        Raises:
            ClusterUnreachableError: it was not sent.
            AnswerLostError: it was sent, but no answer came.
            FlinkRequestError: it was refused, for example for want of a target directory.
        """
        body: dict[str, Any] = {"triggerId": _hex_id(trigger_id, "trigger id"), "drain": False}
        if target_directory is not None:
            body["targetDirectory"] = target_directory
        answer = self._rest.post(_job_path(job_id, "/stop"), body)
        if answer.get("request-id") != trigger_id:
            raise AnswerLostError(
                f"Flink took the stop of job {job_id} under the trigger id "
                f"{answer.get('request-id')!r} instead of {trigger_id}.",
                remedy="Look at the job's state and its latest savepoint.",
            )

    def savepoint_result(self, job_id: str, trigger_id: str) -> SavepointResult | None:
        """How far a savepoint is; None when Flink knows no such trigger (any more)."""
        path = _job_path(job_id, f"/savepoints/{_hex_id(trigger_id, 'trigger id')}")
        try:
            return self._read(path, _savepoint_result)
        except NotFoundError as error:
            if "no savepoint operation" in error.root_cause:
                return None
            raise

    def cancel(self, job_id: str) -> None:
        """Cancel a job, without waiting for its end; one that has ended or is unknown is fine."""
        try:
            self._rest.patch(_job_path(job_id), params={"mode": "cancel"})
        except NotFoundError as error:
            if not _says_job_is_unknown(error):
                raise
        except FlinkRequestError as error:
            # 409: "… the job has already reached another terminal state (FINISHED)."
            if error.status_code != 409:
                raise

    def _read(self, path: str, parse: Callable[[Any], _Record]) -> _Record:
        answer = self._rest.get(path)
        try:
            return parse(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ClusterUnreachableError(
                f"The JobManager of cluster {self.cluster.name!r} at {self.cluster.rest_url} "
                f"answered GET {path} with JSON of another shape than Flink's "
                f"({type(error).__name__}: {error}).",
                remedy="Look at the address and at the version of Flink (1.20 or newer).",
            ) from error


def _job_path(job_id: str, rest: str = "") -> str:
    return f"/jobs/{_hex_id(job_id, 'job id')}{rest}"


def _hex_id(value: str, what: str) -> str:
    # Checked before it becomes part of an address.
    if not re.fullmatch(r"[0-9a-f]{32}", value):
        raise ConfigurationError(
            f"{value!r} is not a {what} of Flink.", remedy="It has 32 hexadecimal digits."
        )
    return value


def _says_job_is_unknown(error: NotFoundError) -> bool:
    # Not every 404 says so: a wrong path prefix gives one too ("Unable to load requested file").
    return bool(
        re.search(r"FlinkJobNotFoundException|Could not find Flink job", error.root_cause)
        or re.search(r"Job [0-9a-f]{32} not found", error.root_cause)
    )


def _time(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)


def _overview(answer: Mapping[str, Any]) -> ClusterOverview:
    return ClusterOverview(
        flink_version=str(answer["flink-version"]),
        task_managers=int(answer["taskmanagers"]),
        slots_total=int(answer["slots-total"]),
        slots_available=int(answer["slots-available"]),
    )


def _summary(job: Mapping[str, Any]) -> JobSummary:
    return _summary_of(*_job_values(job), *_task_counts(job["tasks"]))


def _summary_from_details(job: Mapping[str, Any]) -> JobSummary:
    tasks = [vertex["tasks"] for vertex in job["vertices"]]
    return _summary_of(
        *_job_values(job),
        sum(sum(counts.values()) for counts in tasks),
        sum(counts["RUNNING"] for counts in tasks),
        sum(counts["FINISHED"] for counts in tasks),
    )


_job_values = itemgetter("jid", "name", "state", "start-time", "end-time")
_task_counts = itemgetter("total", "running", "finished")


@lru_cache(maxsize=8192)  # of a job that goes on as it did, every overview says the same
def _summary_of(
    job_id: str,
    name: str,
    state: str,
    start_time: int,
    end_time: int,
    tasks_total: int,
    tasks_running: int,
    tasks_finished: int,
) -> JobSummary:
    return JobSummary(
        job_id=str(job_id),
        name=str(name),
        status=FlinkJobStatus(state),
        started_at=_time(int(start_time)),
        ended_at=_time(int(end_time)) if int(end_time) >= 0 else None,
        tasks_total=int(tasks_total),
        tasks_running=int(tasks_running),
        tasks_finished=int(tasks_finished),
    )


def _vertex_ids(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(vertex["id"]) for vertex in answer["vertices"])


def _pending_metrics(answer: list[Mapping[str, Any]]) -> list[str]:
    names = [str(metric["id"]) for metric in answer]
    return [name for name in names if name.endswith(_PENDING_RECORDS)]


def _pending_records(answer: list[Mapping[str, Any]]) -> dict[str, int]:
    return {
        str(metric["id"]).removesuffix(_PENDING_RECORDS): int(metric["sum"]) for metric in answer
    }


def _job_configuration(answer: Mapping[str, Any]) -> JobConfiguration:
    # Ended jobs may come without execution-config.
    execution = answer.get("execution-config") or {}
    return JobConfiguration(
        job_id=str(answer["jid"]),
        name=str(answer["name"]),
        parallelism=int(execution.get("job-parallelism", 0)),
        user_config={
            str(key): MASK if is_secret(str(key)) else str(value)
            for key, value in (execution.get("user-config") or {}).items()
        },
    )


def _checkpoint(answer: Mapping[str, Any] | None) -> Checkpoint | None:
    if not answer:
        return None
    return Checkpoint(
        id=int(answer["id"]),
        external_path=str(answer["external_path"]),
        completed_at=_time(int(answer["latest_ack_timestamp"])),
        is_savepoint=bool(answer["is_savepoint"]),
    )


def _checkpoint_statistics(answer: Mapping[str, Any]) -> CheckpointStatistics:
    counts = answer["counts"]
    latest = answer["latest"]
    restored = latest.get("restored")
    return CheckpointStatistics(
        completed_count=int(counts["completed"]),
        failed_count=int(counts["failed"]),
        restored_count=int(counts["restored"]),
        latest_completed=_checkpoint(latest.get("completed")),
        latest_savepoint=_checkpoint(latest.get("savepoint")),
        restored_path=restored.get("external_path") if restored else None,
    )


def _exceptions(answer: Mapping[str, Any]) -> tuple[JobException, ...]:
    entries = [
        JobException(
            root_cause=root_cause(str(entry["stacktrace"])),
            task=entry.get("taskName"),
            occurred_at=_time(int(entry["timestamp"])),
        )
        for entry in answer["exceptionHistory"]["entries"]
    ]
    return tuple(sorted(entries, key=lambda entry: entry.occurred_at, reverse=True))


def _savepoint_result(answer: Mapping[str, Any]) -> SavepointResult:
    if answer["status"]["id"] != "COMPLETED":
        return SavepointResult(done=False, location=None, failure=None)
    operation = answer["operation"]
    failure = operation.get("failure-cause")
    if failure:
        text = failure.get("stack-trace") or failure.get("class") or ""
        return SavepointResult(done=True, location=None, failure=root_cause(str(text)))
    return SavepointResult(done=True, location=str(operation["location"]), failure=None)

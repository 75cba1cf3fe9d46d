"""Asking the services whether they are ready, and noticing the one that died instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.logs import reason_of_death, tail
from lakehouse_dagster.local.ports import HOST
from lakehouse_dagster.local.services import Service

if TYPE_CHECKING:
    from lakehouse_dagster.local.progress import Progress
    from lakehouse_dagster.local.settings import Ports, StackFolders

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 5.0
_LINES_LOOKED_AT = 400


class ServiceDiedError(StackError):
    """A service ended while it was starting; ``service`` tells which."""

    def __init__(self, message: str, *, service: Service, reason: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.service = service
        self.reason = reason

    @property
    def port_was_taken(self) -> bool:
        """Whether it died because another process listens on its port."""
        return any(sign in self.reason for sign in _PORT_TAKEN)


_PORT_TAKEN = (
    "Address already in use",
    "Could not start rest endpoint on any port",
    "Could not start actor system on any port",
    "BindException",
)


def wait_until_ready(
    ports: Ports,
    folders: StackFolders,
    *,
    task_manager_id: str | None,
    died: Callable[[], Mapping[Service, int | None]],
    log_starts: Mapping[Service, int],
    timeout_seconds: float,
    progress: Progress,
) -> None:
    """Return once the JobManager has its TaskManager and the SQL Gateway answers.

    Args:
        task_manager_id: the TaskManager that must have registered.
        died: names the services that ended since, with their exit codes where known.
        log_starts: size of each service's log in bytes before it was started.

    Raises ServiceDiedError with the line of the log that tells why; StackError after the bound.
    """
    started = time.monotonic()
    questions: dict[str, Callable[[httpx.Client], bool]] = {
        Service.JOB_MANAGER.label: lambda client: _overview(client, ports) is not None,
        Service.TASK_MANAGER.label: lambda client: _has_task_manager(
            client, ports, task_manager_id
        ),
        Service.SQL_GATEWAY.label: lambda client: _gateway_answers(client, ports),
    }
    # Never through a proxy: it is this machine that is asked.
    with httpx.Client(timeout=_ANSWER_SECONDS, trust_env=False) as client:
        while questions:
            for service, exit_code in died().items():
                raise _died(service, exit_code, folders, log_starts.get(service, 0))
            for name in [name for name, ready in questions.items() if ready(client)]:
                del questions[name]
                progress.message(f"{name} ready after {time.monotonic() - started:.1f} s")
            if questions and time.monotonic() - started > timeout_seconds:
                raise StackError(
                    f"The local stack is not ready after {timeout_seconds:.0f} s: still waiting "
                    f"for {', '.join(questions)}.",
                    remedy=f"See the logs in {folders.logs}.",
                )
            if questions:
                time.sleep(_POLL_SECONDS)


def _died(
    service: Service, exit_code: int | None, folders: StackFolders, since_bytes: int
) -> ServiceDiedError:
    log = service.log_file(folders)
    output = tail(service.output_file(folders), _LINES_LOOKED_AT)
    logged = tail(log, _LINES_LOOKED_AT, since_bytes=since_bytes)
    # A JVM that cannot start writes no log; one that starts prints next to nothing.
    reason = reason_of_death(logged) or reason_of_death(output) or "it left no message"
    code = "" if exit_code is None else f" (exit code {exit_code})"
    where = log if logged else service.output_file(folders)
    return ServiceDiedError(
        f"The {service.label} ended while starting{code}: {reason.rstrip('.')}.",
        service=service,
        reason="\n".join((*output, *logged)),
        remedy=f"See {where}.",
    )


def _overview(client: httpx.Client, ports: Ports) -> dict[str, Any] | None:
    return _get(client, f"http://{HOST}:{ports.rest}/overview")


def _has_task_manager(client: httpx.Client, ports: Ports, wanted: str | None) -> bool:
    answer = _get(client, f"http://{HOST}:{ports.rest}/taskmanagers")
    registered = answer.get("taskmanagers", []) if answer else []
    return any(task_manager.get("id") == wanted for task_manager in registered)


def _gateway_answers(client: httpx.Client, ports: Ports) -> bool:
    return _get(client, f"http://{HOST}:{ports.sql_gateway}/info") is not None


def _get(client: httpx.Client, url: str) -> dict[str, Any] | None:
    try:
        response = client.get(url)
    except httpx.HTTPError:
        return None
    if response.status_code != httpx.codes.OK:
        return None
    try:
        answer: dict[str, Any] = response.json()
    except ValueError:
        return None
    return answer

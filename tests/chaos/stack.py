"""The cluster of the laboratory: one that stays up, and of which only the killed is restarted."""

from __future__ import annotations

import time
from pathlib import Path

from lakehouse_dagster.local import processes
from lakehouse_dagster.local.engines import engine_named
from lakehouse_dagster.local.fetch import prefetch
from lakehouse_dagster.local.services import Service, clear_temporary, launch
from lakehouse_dagster.local.settings import StackFolders
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.local.state import read_state, write_state

SLOTS = 24
QUICK_TO_NOTICE = {
    "heartbeat.interval": "1s",
    "heartbeat.timeout": "8s",
    # What the REST API answers is otherwise up to 3 s old.
    "web.refresh-interval": "100ms",
    "rest.cache.checkpoint-statistics.timeout": "100ms",
    "restart-strategy.exponential-delay.initial-backoff": "500ms",
    "jobstore.expiration-time": "600",
}


def stack_of(folder: Path, engine: str) -> LocalStack:
    """The laboratory's stack, the same from every process."""
    return LocalStack(
        folder,
        engine,
        slots=SLOTS,
        task_manager_memory_mib=2000,
        checkpoint_interval_seconds=1,
        extra_config=QUICK_TO_NOTICE,
    )


def job_manager_log(stack: LocalStack) -> Path:
    """Appended to by every JobManager of the stack, however often it is killed."""
    return stack.folder / "log" / "jobmanager.log"


def start_one(stack: LocalStack, service: Service) -> None:
    """Start one killed service and leave the others as they are.

    ``up()`` would replace the TaskManager along with the JobManager; here it goes on with tasks of
    jobs that nobody leads any more, until it notices.
    """
    state = read_state(stack.folder)
    assert state is not None
    folders = StackFolders(stack.folder)
    clear_temporary(service, folders)
    installed = prefetch(engine_named(state.engine).name, None)
    child = processes.start(launch(service, state.stack_id, installed, state.settings, folders))
    time.sleep(0.1)
    write_state(stack.folder, state.with_process(service, processes.record_of(child.pid)))

"""A whole Flink on this machine: JobManager, TaskManager and SQL Gateway in one folder.

For demos, tests and first steps. Everything it writes is in its folder; what it needs comes from
the cache (``lakehouse_dagster.local.fetch``). It outlives the process that started it, and any
other process can find, complete or stop it.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lakehouse_dagster.errors import ConfigurationError, StackError
from lakehouse_dagster.local import processes
from lakehouse_dagster.local.engines import DEFAULT_ENGINE, engine_named
from lakehouse_dagster.local.fetch import InstalledEngine, prefetch
from lakehouse_dagster.local.filesystem import locked, make_folder, naming_a_full_disk
from lakehouse_dagster.local.flink_config import write_configuration
from lakehouse_dagster.local.logs import ServiceLog, size_of, tail
from lakehouse_dagster.local.ports import HOST, free_ports, is_free, require_free
from lakehouse_dagster.local.progress import Progress, SilentProgress
from lakehouse_dagster.local.readiness import ServiceDiedError, wait_until_ready
from lakehouse_dagster.local.services import Service, clear_temporary, launch, task_manager_id
from lakehouse_dagster.local.settings import Ports, StackFolders, StackSettings
from lakehouse_dagster.local.state import ProcessRecord, StackState, read_state, write_state
from lakehouse_dagster.local.status import ProcessStatus, StackStatus

__all__ = ["LocalStack", "ProcessStatus", "StackStatus"]

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_PORT_ATTEMPTS = 3
_EXIT_CODE_SECONDS = 5.0


_PORT_PATIENCE_SECONDS = 5.0


class LocalStack:
    """A local Flink cluster with a SQL Gateway, in one folder.

    Args:
        folder: holds everything the stack writes; created where missing. Jars put into its
            ``lib`` folder (connectors) are on the class path of all services.
        engine: a name in ``engines.ENGINES``.
        slots: task slots; every running job takes at least one.
        task_manager_memory_mib: all memory of the TaskManager's process.
        checkpoint_interval_seconds: Paimon commits one snapshot a checkpoint.
        checkpoints_retained: completed checkpoints kept for each job.
        rest_port, sql_gateway_port: fixed ports; by default free ones are chosen and kept.
        start_timeout_seconds: how long ``up`` waits for the services, and for another ``up``.
        home: the cache folder; by default ``LAKEHOUSE_HOME`` or ``~/.cache/lakehouse``.
        extra_config: Flink options that win over the stack's own.

    Raises ConfigurationError for an unknown engine or settings that cannot work.
    """

    def __init__(
        self,
        folder: Path | str,
        engine: str = DEFAULT_ENGINE,
        *,
        slots: int = 8,
        task_manager_memory_mib: int = 896,
        checkpoint_interval_seconds: float = 10.0,
        checkpoints_retained: int = 3,
        rest_port: int | None = None,
        sql_gateway_port: int | None = None,
        start_timeout_seconds: float = 120.0,
        home: Path | None = None,
        extra_config: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if os.pathsep in str(self.folder):
            raise ConfigurationError(
                f"The folder {self.folder} holds a {os.pathsep!r}, which no Java class path can.",
                remedy="Choose another folder.",
            )
        self.engine = engine_named(engine)
        self.settings = StackSettings(
            slots=slots,
            task_manager_memory_mib=task_manager_memory_mib,
            checkpoint_interval_seconds=checkpoint_interval_seconds,
            checkpoints_retained=checkpoints_retained,
            extra_config=dict(extra_config or {}),
        )
        self._rest_port = rest_port
        self._sql_gateway_port = sql_gateway_port
        self._start_timeout_seconds = start_timeout_seconds
        self._home = home
        self._folders = StackFolders(self.folder)
        # Children of ours; kept so that their exit codes can be read.
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def __repr__(self) -> str:
        return f"LocalStack({str(self.folder)!r}, engine={self.engine.name!r})"

    def up(self, progress: Progress | None = None) -> StackStatus:
        """Make sure that the whole stack runs and answers, starting only what is missing.

        A stack that runs already, whoever started it, is adopted with the settings it has. A
        service that died is started again at the port it had. When something fails, what this
        call started is stopped again.

        Raises DownloadError, JavaNotFoundError, StackError (port taken, a service that died at
        start, disk full, folder not writable).
        """
        progress = progress or SilentProgress()
        make_folder(self.folder, purpose="the local stack")
        # Fetching may take minutes and has a lock of its own.
        installed = (
            None if self.status().running else prefetch(self.engine.name, progress, home=self._home)
        )
        with self._locked(progress), naming_a_full_disk(self.folder):
            return self._up(installed, progress)

    def status(self) -> StackStatus:
        """What runs now, by the state file in the folder; asks no service, starts nothing."""
        state = read_state(self.folder)
        found = processes.running(state) if state else {}
        return self._status(state, found, adopted=False)

    def down(self, progress: Progress | None = None) -> None:
        """Stop the stack's own processes (TERM, then KILL) and nobody else's; keep its files.

        Jobs that run are suspended; their retained checkpoints stay. Nothing happens when nothing
        runs. Works from any process, also after the one that started the stack crashed.

        Raises StackError when a process does not end.
        """
        if read_state(self.folder) is None:
            return
        progress = progress or SilentProgress()
        with self._locked(progress):
            state = read_state(self.folder)
            if state is None:
                return
            found = processes.running(state)
            if found:
                labels = ", ".join(service.label for service in Service if service in found)
                progress.message(f"stopping {labels}")
            self._stop(tuple(Service), state)

    def logs(self, service: str | None = None, *, lines: int = 50) -> tuple[ServiceLog, ...]:
        """The last lines of every service's log, or of one (``Service`` values)."""
        try:
            services = tuple(Service) if service is None else (Service(service),)
        except ValueError:
            known = ", ".join(one.value for one in Service)
            raise ConfigurationError(f"There is no service {service!r}; known: {known}.") from None
        found: list[ServiceLog] = []
        for one in services:
            for path in (one.output_file(self._folders), one.log_file(self._folders)):
                last = tail(path, lines)
                if last:
                    found.append(ServiceLog(one.value, path, last))
        return tuple(found)

    def _up(self, installed: InstalledEngine | None, progress: Progress) -> StackStatus:
        state = read_state(self.folder)
        found = processes.running(state) if state else {}
        if state is None or not found:
            return self._start_afresh(state, installed, progress)
        self._require_same_engine(state)
        if state.settings != self.settings or self._wants_other_ports(state.ports):
            progress.message("the stack keeps the settings it was started with until it is down")
        state = self._write_down(state, found)
        missing = [service for service in Service if service not in found]
        if not missing:
            self._wait(state, {}, progress)
            return self._status(state, found, adopted=True)
        labels = ", ".join(service.label for service in missing)
        progress.message(f"not running any more: {labels}")
        _require_ports_of(missing, state.ports)
        if Service.JOB_MANAGER in missing and Service.TASK_MANAGER in found:
            # It would find the new JobManager by itself, but only after 50 s (heartbeat.timeout),
            # and until then go on with tasks of jobs that nobody leads any more.
            state = self._stop([Service.TASK_MANAGER], state)
            missing = [service for service in Service if service not in state.processes]
        return self._start(state, missing, installed, progress)

    def _start_afresh(
        self, earlier: StackState | None, installed: InstalledEngine | None, progress: Progress
    ) -> StackStatus:
        """Start everything with our settings, at the earlier ports where those are still free."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            state = StackState(
                stack_id=earlier.stack_id if earlier else uuid.uuid4().hex,
                engine=self.engine.name,
                ports=self._choose_ports(earlier.ports if earlier and attempt == 1 else None),
                settings=self.settings,
            )
            try:
                return self._start(state, list(Service), installed, progress)
            except ServiceDiedError as error:
                # Somebody may have been quicker to take a port that we had found free.
                taken = error.port_was_taken and not _all_free(state.ports)
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
        raise AssertionError("the loop returns or raises")

    def _start(
        self,
        state: StackState,
        missing: Sequence[Service],
        installed: InstalledEngine | None,
        progress: Progress,
    ) -> StackStatus:
        installed = installed or prefetch(state.engine, progress, home=self._home)
        for folder in self._folders.all():
            make_folder(folder, purpose="the local stack")
        # Written before anything starts: whatever happens now, `down` finds the processes by
        # the id of the stack.
        write_state(self.folder, state)
        write_configuration(state.settings, state.ports, self._folders)
        progress.message(f"starting {', '.join(service.label for service in missing)}")
        log_starts = {service: size_of(service.log_file(self._folders)) for service in missing}
        try:
            for service in missing:
                state = self._start_one(service, state, installed)
            self._wait(state, log_starts, progress)
        except BaseException:
            self._stop(missing, state)
            raise
        return self._status(state, processes.running(state), adopted=False)

    def _start_one(
        self, service: Service, state: StackState, installed: InstalledEngine
    ) -> StackState:
        clear_temporary(service, self._folders)
        child = processes.start(
            launch(service, state.stack_id, installed, state.settings, self._folders)
        )
        self._children[child.pid] = child
        try:
            record = processes.record_of(child.pid)
        except psutil.Error:
            return state  # ended already: the wait tells why
        state = state.with_process(service, record)
        write_state(self.folder, state)
        return state

    def _wait(
        self, state: StackState, log_starts: Mapping[Service, int], progress: Progress
    ) -> None:
        wait_until_ready(
            state.ports,
            self._folders,
            task_manager_id=_task_manager_id(processes.running(state)),
            died=lambda: self._died(state),
            log_starts=log_starts,
            timeout_seconds=self._start_timeout_seconds,
            progress=progress,
        )

    def _died(self, state: StackState) -> dict[Service, int | None]:
        """The services that do not run, with their exit codes where they were our children."""
        gone: dict[Service, int | None] = {}
        for service in Service:
            record = state.processes.get(service)
            if record is None or processes.alive(record) is None:
                child = self._children.get(record.pid) if record else None
                gone[service] = _exit_code(child) if child else None
        return gone

    def _stop(self, services: Collection[Service], state: StackState) -> StackState:
        found = processes.running(state)
        processes.end([found[service] for service in services if service in found])
        self._forget_ended_children()
        kept = {name: record for name, record in state.processes.items() if name not in services}
        state = dataclasses.replace(state, processes=kept)
        write_state(self.folder, state)
        return state

    def _forget_ended_children(self) -> None:
        self._children = {
            pid: child for pid, child in self._children.items() if child.poll() is None
        }

    def _write_down(self, state: StackState, found: Mapping[Service, psutil.Process]) -> StackState:
        """Record exactly what runs, also what an ``up`` started that did not live to record it."""
        records = {
            service: ProcessRecord(process.pid, process.create_time())
            for service, process in found.items()
        }
        if records != state.processes:
            state = dataclasses.replace(state, processes=records)
            write_state(self.folder, state)
        return state

    def _choose_ports(self, earlier: Ports | None) -> Ports:
        if self._rest_port is not None:
            require_free(self._rest_port, use="the JobManager's REST interface")
        if self._sql_gateway_port is not None:
            require_free(self._sql_gateway_port, use="the SQL Gateway")
        if earlier is None or not _all_free(earlier):
            earlier = Ports(*free_ports(3))
        return Ports(
            rest=self._rest_port or earlier.rest,
            rpc=earlier.rpc,
            sql_gateway=self._sql_gateway_port or earlier.sql_gateway,
        )

    def _wants_other_ports(self, ports: Ports) -> bool:
        return (self._rest_port or ports.rest) != ports.rest or (
            self._sql_gateway_port or ports.sql_gateway
        ) != ports.sql_gateway

    def _require_same_engine(self, state: StackState) -> None:
        if state.engine != self.engine.name:
            raise StackError(
                f"In {self.folder} a stack of engine {state.engine} runs, not {self.engine.name}.",
                remedy="Stop it first, or use another folder.",
            )

    @contextmanager
    def _locked(self, progress: Progress) -> Iterator[None]:
        def waiting() -> None:
            progress.message("another process starts or stops the stack; waiting for it")

        with locked(
            self.folder / "stack.lock",
            wait_seconds=2 * self._start_timeout_seconds,
            on_wait=waiting,
            what=f"starting or stopping the stack in {self.folder}",
        ):
            yield

    def _status(
        self,
        state: StackState | None,
        found: Mapping[Service, psutil.Process],
        *,
        adopted: bool,
    ) -> StackStatus:
        return StackStatus(
            engine=state.engine if state else self.engine.name,
            folder=self.folder,
            rest_url=f"http://{HOST}:{state.ports.rest}" if state else "",
            sql_gateway_url=f"http://{HOST}:{state.ports.sql_gateway}" if state else "",
            warehouse=self._folders.warehouse,
            checkpoints=self._folders.checkpoints,
            savepoints=self._folders.savepoints,
            processes=tuple(_process_status(service, found.get(service)) for service in Service),
            adopted=adopted,
        )


def _task_manager_id(found: Mapping[Service, psutil.Process]) -> str | None:
    try:
        return task_manager_id(found[Service.TASK_MANAGER].cmdline())
    except (KeyError, psutil.Error):
        return None  # ended already: the wait tells why


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """How a child ended; its threads may still be ending when it already counts as dead."""
    try:
        return child.wait(timeout=_EXIT_CODE_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _process_status(service: Service, process: psutil.Process | None) -> ProcessStatus:
    if process is not None:
        try:
            return ProcessStatus(service.value, process.pid, True, process.memory_info().rss)
        except psutil.Error:
            pass  # ended as we looked
    return ProcessStatus(service.value, None, False, None)


def _all_free(ports: Ports) -> bool:
    return all(is_free(port) for port in dataclasses.astuple(ports))


def _require_ports_of(services: Collection[Service], ports: Ports) -> None:
    """A service is started again where the others look for it, or not at all."""
    wanted = []
    if Service.JOB_MANAGER in services:
        wanted += [(ports.rest, "the JobManager's REST interface"), (ports.rpc, "the JobManager")]
    if Service.SQL_GATEWAY in services:
        wanted += [(ports.sql_gateway, "the SQL Gateway")]
    for port, use in wanted:
        # A process that was killed a moment ago may hold its port for a moment longer.
        require_free(port, use=use, patience_seconds=_PORT_PATIENCE_SECONDS)

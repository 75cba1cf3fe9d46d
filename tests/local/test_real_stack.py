"""A real Flink of our own: started, killed in part, adopted, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.flink.cluster import FlinkCluster
from lakehouse_dagster.flink.sql_gateway import Session
from lakehouse_dagster.local import services
from lakehouse_dagster.local.fetch import prefetch
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.settings import StackSettings
from lakehouse_dagster.local.stack import LocalStack, StackStatus
from lakehouse_dagster.local.state import read_state
from tests.support.laboratory import until
from tests.support.stacks import up

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack in a folder with a space in its name, stopped whatever happens."""
    stack = LocalStack(
        tmp_path_factory.mktemp("stack") / "with space", checkpoint_interval_seconds=2
    )
    with up(stack):
        yield stack


def _pids(status: StackStatus) -> dict[str, int | None]:
    return {process.name: process.pid for process in status.processes}


def _kill(status: StackStatus, service: Service) -> None:
    pid = _pids(status)[service.value]
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=10)


def _of_stack(folder: Path) -> list[int]:
    """Every process of the machine that carries the stack's marker."""
    state = read_state(folder)
    assert state is not None
    markers = {services.marker(state.stack_id, service) for service in Service}
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if markers & set(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def _overview(status: StackStatus) -> dict[str, int]:
    answer: dict[str, int] = httpx.get(f"{status.rest_url}/overview", trust_env=False).json()
    return answer


@pytest.mark.chaos
def test_a_running_stack_is_adopted_by_another_process(stack: LocalStack) -> None:
    before = stack.status()
    assert before.running
    code = (
        "import sys; from lakehouse_dagster.local.stack import LocalStack; "
        "status = LocalStack(sys.argv[1]).up(); "
        "print(status.adopted, [process.pid for process in status.processes])"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(stack.folder)], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == f"True {[process.pid for process in before.processes]}"


@pytest.mark.chaos
def test_it_listens_on_this_machine_only(stack: LocalStack) -> None:
    for pid in _pids(stack.status()).values():
        listening = [
            connection.laddr.ip
            for connection in psutil.Process(pid).net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


@pytest.mark.chaos
def test_everything_it_writes_is_in_its_folder(stack: LocalStack) -> None:
    for pid in _pids(stack.status()).values():
        written = [file.path for file in psutil.Process(pid).open_files() if "w" in file.mode]
        assert written
        assert all(Path(path).is_relative_to(stack.folder) for path in written)


@pytest.mark.chaos
def test_a_killed_job_manager_comes_back_at_its_ports_and_has_a_task_manager(
    stack: LocalStack,
) -> None:
    before = stack.status()
    _kill(before, Service.JOB_MANAGER)
    assert not stack.status().running
    after = stack.up()
    assert after.running
    assert not after.adopted
    assert (after.rest_url, after.sql_gateway_url) == (before.rest_url, before.sql_gateway_url)
    assert _pids(after)["sql-gateway"] == _pids(before)["sql-gateway"]
    until(lambda: _overview(after)["slots-total"] == stack.settings.slots, "all slots")


@pytest.mark.chaos
@pytest.mark.parametrize("service", [Service.TASK_MANAGER, Service.SQL_GATEWAY])
def test_a_killed_service_is_started_again_and_the_others_are_left_alone(
    stack: LocalStack, service: Service
) -> None:
    before = stack.status()
    _kill(before, service)
    after = stack.up()
    assert after.running
    changed = {name for name, pid in _pids(after).items() if pid != _pids(before)[name]}
    assert changed == {service.value}
    assert after.sql_gateway_url == before.sql_gateway_url
    # The JobManager still counts a killed TaskManager for a while; the new one must be there.
    pid = _pids(after)["taskmanager"]
    registered = httpx.get(f"{after.rest_url}/taskmanagers", trust_env=False).json()
    ids = {task_manager["id"] for task_manager in registered["taskmanagers"]}
    assert services.task_manager_id(psutil.Process(pid).cmdline()) in ids


@pytest.mark.chaos
def test_streams_and_compaction_run_within_the_memory_of_a_small_machine(
    stack: LocalStack,
) -> None:
    status = stack.up()
    cluster = FlinkCluster(rest_url=status.rest_url, sql_gateway_url=status.sql_gateway_url)
    batch = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}
    with cluster.sql_gateway() as gateway:
        session = gateway.open_session("memory")
        jobs = _start_streams(session, status.warehouse)
        peak_bytes = 0
        ends_at = time.monotonic() + 30
        while time.monotonic() < ends_at:
            session.execute("CALL sys.compact(`table` => 'ods.orders')", config=batch)
            peak_bytes = max(peak_bytes, stack.status().resident_bytes)
            time.sleep(1)
        counted = session.execute("SELECT COUNT(*) FROM ods.orders", config=batch).rows
        session.delete()
    with cluster.job_manager() as job_manager:
        for job in jobs:
            job_manager.cancel(job)
    print(f"peak resident memory of the stack: {peak_bytes // MIB} MiB")

    def only_the_newest() -> bool:
        kept = [len(list((status.checkpoints / job).glob("chk-*/_metadata"))) for job in jobs]
        return 1 <= min(kept) <= max(kept) <= stack.settings.checkpoints_retained

    # A canceled job leaves its newest checkpoints to start from, and not all there ever were:
    # Flink removes an older one a moment after it completed the newest.
    until(only_the_newest, "only the newest checkpoints")
    assert counted[0][0] > 0
    assert peak_bytes < 1536 * MIB
    for service in Service:
        log = (stack.folder / "log" / f"{service.value}.log").read_text()
        assert "OutOfMemoryError" not in log
        assert "Can't allocate enough direct buffer" not in log


def _start_streams(session: Session, warehouse: Path) -> list[str]:
    table = (
        "(id BIGINT, city STRING, amount DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('bucket' = '1'"
    )
    for statement in (
        f"CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 'file://{warehouse}')",
        "USE CATALOG lake",
        "CREATE DATABASE ods",
        # The compaction is the batch job's alone: two that compact one table get in each other's
        # way.
        f"CREATE TABLE ods.orders {table}, 'write-only' = 'true')",
        f"CREATE TABLE ods.copies {table}, 'changelog-producer' = 'lookup')",
        "CREATE TEMPORARY TABLE made_up (id BIGINT, city STRING, amount DECIMAL(10, 2)) WITH "
        "('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.id.min' = '1', "
        "'fields.id.max' = '50000', 'fields.city.length' = '2')",
    ):
        session.execute(statement)
    jobs: list[str] = []
    for table_name in ("ods.orders", "ods.copies"):
        result = session.execute(f"INSERT INTO {table_name} SELECT * FROM made_up")
        assert result.job_id is not None
        jobs.append(result.job_id)
    return jobs


@pytest.mark.chaos
def test_after_down_nothing_runs_and_the_next_up_finds_the_same_ports(stack: LocalStack) -> None:
    before = stack.status()
    stack.down()
    assert _of_stack(stack.folder) == []
    assert not stack.status().running
    after = stack.up()
    assert (after.rest_url, after.sql_gateway_url) == (before.rest_url, before.sql_gateway_url)
    assert not after.adopted


@pytest.mark.chaos
def test_of_two_that_start_it_at_once_one_starts_it_and_one_adopts_it(tmp_path: Path) -> None:
    code = (
        "import sys; from lakehouse_dagster.local.stack import LocalStack; "
        "status = LocalStack(sys.argv[1], slots=2).up(); "
        "print(status.adopted, sorted(process.pid for process in status.processes))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        answers = sorted(process.communicate(timeout=300)[0].strip() for process in both)
        pids = sorted(_of_stack(tmp_path))
        assert len(pids) == 3
        assert answers == [f"False {pids}", f"True {pids}"]
    finally:
        LocalStack(tmp_path, slots=2).down()
    assert _of_stack(tmp_path) == []


@pytest.mark.chaos
@pytest.mark.parametrize("moment", ["while starting", "when ready"])
def test_a_crash_of_ours_leaves_a_stack_that_any_process_can_stop(
    tmp_path: Path, moment: str
) -> None:
    code = (
        "import sys; from lakehouse_dagster.local.progress import PlainProgress; "
        "from lakehouse_dagster.local.stack import LocalStack; "
        "LocalStack(sys.argv[1], slots=2).up(PlainProgress(sys.stdout)); "
        "print('all ready', flush=True); import time; time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        if moment == "when ready":
            assert any(line.startswith("all ready") for line in ours.stdout)
        else:
            until(
                lambda: read_state(tmp_path) and _of_stack(tmp_path),
                "the first process of the stack",
            )
        os.kill(ours.pid, signal.SIGKILL)
    stack = LocalStack(tmp_path, slots=2)
    if moment == "when ready":
        assert len(_of_stack(tmp_path)) == 3
    stack.down()
    assert _of_stack(tmp_path) == []
    assert not stack.status().running


@pytest.mark.chaos
def test_a_service_that_dies_at_start_says_why_and_leaves_nothing_running(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, slots=2, extra_config={"heartbeat.interval": "abc"})
    with pytest.raises(StackError) as died:
        stack.up()
    message = str(died.value)
    assert "Manager ended while starting (exit code 1): " in message
    assert "Could not parse value 'abc' for key 'heartbeat.interval'" in message
    assert f"See {tmp_path}/log/" in message
    assert _of_stack(tmp_path) == []


@pytest.mark.flink
@pytest.mark.parametrize(("slots", "total_mib"), [(8, 896), (16, 1400)])
def test_the_memory_written_down_is_what_flink_itself_computes(
    tmp_path: Path, slots: int, total_mib: int
) -> None:
    installed = prefetch()
    settings = StackSettings(slots=slots, task_manager_memory_mib=total_mib)
    options = settings.memory.options(slots)
    (tmp_path / "config.yaml").write_text(
        "".join(f"{key}: {value}\n" for key, value in options.items())
    )
    class_path = os.pathsep.join(
        str(path)
        for path in (installed.pyflink / "bin" / "bash-java-utils.jar", *installed.lib.glob("*"))
    )
    computed = subprocess.run(
        [
            *(str(installed.java.executable), "-cp", class_path),
            "org.apache.flink.runtime.util.bash.BashJavaUtils",
            *("GET_TM_RESOURCE_PARAMS", "--configDir", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    results = [
        line.split("BASH_JAVA_UTILS_EXEC_RESULT:")[1].split()
        for line in computed.stdout.splitlines()
        if line.startswith("BASH_JAVA_UTILS_EXEC_RESULT:")
    ]
    jvm = dict(argument.rsplit("=", 1) for argument in results[0] if "=" in argument)
    heap_bytes = next(int(a.removeprefix("-Xmx")) for a in results[0] if a.startswith("-Xmx"))
    ours = settings.memory.jvm_arguments()
    assert ours == [
        f"-Xmx{heap_bytes // MIB}m",
        f"-XX:MaxDirectMemorySize={int(jvm['-XX:MaxDirectMemorySize']) // MIB}m",
        f"-XX:MaxMetaspaceSize={int(jvm['-XX:MaxMetaspaceSize']) // MIB}m",
    ]
    flink = dict(a.split("=", 1) for a in results[1] if "=" in a and "memory" in a)
    assert flink["taskmanager.memory.task.heap.size"] == f"{settings.memory.task_heap_mib * MIB}b"

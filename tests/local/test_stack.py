"""What the local stack refuses and tells without starting anything."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError, StackError
from lakehouse_dagster.local import processes
from lakehouse_dagster.local import stack as stack_module
from lakehouse_dagster.local.filesystem import locked
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.settings import Ports, StackSettings
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.local.state import StackState, write_state

Sleeper = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests end before the engine matters; a fetch would be a mistake."""
    monkeypatch.setattr(stack_module, "prefetch", lambda *_, **__: None)


def test_a_folder_without_a_stack_has_nothing_running_and_is_left_alone(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "none")
    status = stack.status()
    assert (status.engine, status.rest_url, status.running) == ("flink-2.0", "", False)
    assert [process.name for process in status.processes] == [
        "jobmanager",
        "taskmanager",
        "sql-gateway",
    ]
    stack.down()
    assert stack.logs() == ()
    assert not (tmp_path / "none").exists()


def test_an_unknown_engine_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"known engines: flink-1\.20, flink-2\.0"):
        LocalStack(tmp_path, "flink-9")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError) as refused:
        LocalStack(tmp_path / "file" / "stack").up()
    assert str(refused.value) == (
        f"The folder {tmp_path / 'file' / 'stack'} for the local stack cannot be written: "
        "Not a directory. Choose another folder or change its permissions."
    )


def test_a_folder_that_no_class_path_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds a ':'"):
        LocalStack(tmp_path / "a:b")


@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("rest_port", "the JobManager's REST interface"),
        ("sql_gateway_port", "the SQL Gateway"),
    ],
)
def test_a_fixed_port_that_is_taken_is_refused_before_anything_starts(
    tmp_path: Path, argument: str, use: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StackError, match=f"^Port {port} for {use} is taken by "):
            LocalStack(tmp_path, **{argument: port}).up()  # type: ignore[arg-type]
    assert not (tmp_path / "stack.json").exists()


def test_a_stack_of_another_engine_is_neither_adopted_nor_touched(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    other = sleeper()
    records = {Service.JOB_MANAGER: processes.record_of(other.pid)}
    write_state(tmp_path, StackState("ab", "flink-1.20", Ports(1, 2, 3), StackSettings(), records))
    with pytest.raises(StackError) as refused:
        LocalStack(tmp_path).up()
    assert str(refused.value) == (
        f"In {tmp_path} a stack of engine flink-1.20 runs, not flink-2.0. "
        "Stop it first, or use another folder."
    )
    assert other.poll() is None


def test_only_one_process_at_a_time_starts_or_stops_a_stack(tmp_path: Path) -> None:
    write_state(tmp_path, StackState("ab", "flink-2.0", Ports(1, 2, 3), StackSettings()))
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path / "stack.lock", wait_seconds=0, on_wait=lambda: None, what="x"):
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    try:
        with pytest.raises(StackError, match="Another process is still starting or stopping"):
            LocalStack(tmp_path, start_timeout_seconds=0.1).down()
    finally:
        release.set()
        holder.join()
    LocalStack(tmp_path, start_timeout_seconds=0.1).down()


def test_an_unknown_service_has_no_logs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LocalStack(tmp_path).logs("zookeeper")
    assert str(refused.value) == (
        "There is no service 'zookeeper'; known: jobmanager, taskmanager, sql-gateway."
    )


def test_settings_that_may_hold_secrets_are_not_shown(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, extra_config={"s3.secret-key": "hush"})
    assert "hush" not in repr(stack)
    assert "hush" not in repr(stack.settings)

"""``lakehouse stack``: output, exit codes, errors on stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakehouse_dagster.cli.stack import stack
from lakehouse_dagster.local import processes
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.settings import Ports, StackSettings
from lakehouse_dagster.local.state import StackState, write_state


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(stack, arguments)


def test_status_is_one_json_document(tmp_path: Path) -> None:
    write_state(tmp_path, StackState("ab", "flink-2.0", Ports(21001, 2, 21003), StackSettings()))
    result = _run("status", "--folder", str(tmp_path), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["engine"] == "flink-2.0"
    assert document["rest_url"] == "http://127.0.0.1:21001"
    assert document["sql_gateway_url"] == "http://127.0.0.1:21003"
    assert document["running"] is False
    assert document["resident_bytes"] == 0
    assert document["warehouse"] == str(tmp_path / "warehouse")
    assert document["processes"][0] == {
        "name": "jobmanager",
        "pid": None,
        "running": False,
        "resident_bytes": None,
    }


def test_an_unknown_engine_is_wrong_usage() -> None:
    result = _run("up", "--engine", "flink-9")
    assert result.exit_code == 2
    assert "There is no engine 'flink-9'; known engines: flink-1.20, flink-2.0." in result.stderr


def test_a_failure_is_told_on_stderr_and_exits_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = _run("logs", "zookeeper", "--folder", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "Error: There is no service 'zookeeper'; known: jobmanager, taskmanager, sql-gateway.\n"
    )


def test_down_dry_run_names_what_would_stop_and_stops_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            records = {Service.TASK_MANAGER: processes.record_of(process.pid)}
            write_state(
                tmp_path, StackState("ab", "flink-2.0", Ports(1, 2, 3), StackSettings(), records)
            )
            result = _run("down", "--dry-run", "--folder", str(tmp_path), "--json")
            assert json.loads(result.stdout) == {"stop": ["taskmanager"]}
            assert process.poll() is None
        finally:
            process.kill()


def test_up_dry_run_names_what_would_be_fetched_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    result = _run("up", "--dry-run", "--folder", str(tmp_path / "stack"), "--json")
    assert result.exit_code == 0
    plan = json.loads(result.stdout)
    assert plan["start"] == ["jobmanager", "taskmanager", "sql-gateway"]
    assert "org.apache.paimon:paimon-flink-2.0:2.0.0" in plan["fetch"]
    assert list(tmp_path.iterdir()) == []


def test_logs_show_the_end_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "taskmanager.log").write_text("one\ntwo\nthree\n")
    result = _run("logs", "-n", "2", "--folder", str(tmp_path), "--json")
    assert json.loads(result.stdout) == [
        {
            "service": "taskmanager",
            "path": str(tmp_path / "log" / "taskmanager.log"),
            "lines": ["two", "three"],
        }
    ]

"""Sizes and options of the local stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.local.flink_config import (
    LOG4J_PROPERTIES,
    flink_options,
    write_configuration,
)
from lakehouse_dagster.local.settings import Ports, StackFolders, StackSettings

PORTS = Ports(rest=21001, rpc=21002, sql_gateway=21003)


@pytest.mark.parametrize(("slots", "total_mib"), [(1, 896), (8, 896), (16, 1400), (32, 2048)])
def test_the_parts_of_the_memory_add_up(slots: int, total_mib: int) -> None:
    settings = StackSettings(slots=slots, task_manager_memory_mib=total_mib)
    options = settings.memory.options(slots)
    parts = [
        "taskmanager.memory.framework.heap.size",
        "taskmanager.memory.framework.off-heap.size",
        "taskmanager.memory.task.heap.size",
        "taskmanager.memory.task.off-heap.size",
        "taskmanager.memory.network.max",
        "taskmanager.memory.managed.size",
        "taskmanager.memory.jvm-metaspace.size",
        "taskmanager.memory.jvm-overhead.max",
    ]
    assert sum(int(options[part].removesuffix("m")) for part in parts) == total_mib
    assert options["taskmanager.cpu.cores"] == f"{slots}.0"


def test_too_little_memory_for_the_slots_is_refused_with_the_least_that_does() -> None:
    with pytest.raises(ConfigurationError) as refused:
        StackSettings(slots=8, task_manager_memory_mib=500)
    assert str(refused.value) == ("task_manager_memory_mib is 500, but 8 slots need at least 672.")
    assert StackSettings(slots=8, task_manager_memory_mib=672).memory.task_heap_mib == 128


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"slots": 0}, "slots is 0, but a stack needs at least one."),
        ({"checkpoint_interval_seconds": 0}, "Paimon never commits. Give a number above 0."),
        ({"checkpoints_retained": 0}, "checkpoints_retained must be at least 1."),
        (
            {"extra_config": {"taskmanager.memory.managed.size": "1g"}},
            "Use the argument task_manager_memory_mib instead.",
        ),
        ({"extra_config": {"rest.port": "8081"}}, "Use the argument rest_port instead."),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        StackSettings(**wrong)  # type: ignore[arg-type]
    assert str(refused.value).endswith(sentence)


def test_the_cluster_listens_on_this_machine_only(tmp_path: Path) -> None:
    options = flink_options(StackSettings(), PORTS, StackFolders(tmp_path))
    addresses = {key: value for key, value in options.items() if "address" in key or "host" in key}
    assert set(addresses.values()) == {"127.0.0.1"}
    assert {"jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address"} <= set(addresses)
    assert options["web.access-control-allow-origin"] == "http://127.0.0.1:21001"
    assert options["web.submit.enable"] == "false"


def test_checkpoints_are_kept_and_restarts_are_bounded(tmp_path: Path) -> None:
    settings = StackSettings(checkpoint_interval_seconds=2.5, checkpoints_retained=4)
    options = flink_options(settings, PORTS, StackFolders(tmp_path))
    assert options["execution.checkpointing.interval"] == "2500ms"
    assert options["execution.checkpointing.num-retained"] == "4"
    assert (
        options["execution.checkpointing.externalized-checkpoint-retention"]
        == "RETAIN_ON_CANCELLATION"
    )
    assert options["execution.checkpointing.dir"] == f"file://{tmp_path}/checkpoints"
    assert options["restart-strategy.type"] == "exponential-delay"
    assert options["restart-strategy.exponential-delay.attempts-before-reset-backoff"] == "10"


def test_the_users_options_win_and_any_text_survives_the_file(tmp_path: Path) -> None:
    folders = StackFolders(tmp_path)
    folders.configuration.mkdir()
    hard = 'a "quoted" value: # with \\ and \n newline'
    settings = StackSettings(extra_config={"parallelism.default": "3", "s3.secret-key": hard})
    write_configuration(settings, PORTS, folders)
    path = folders.configuration / "config.yaml"
    lines = dict(line.split(": ", 1) for line in path.read_text().splitlines())
    assert json.loads(lines["parallelism.default"]) == "3"
    assert json.loads(lines["s3.secret-key"]) == hard
    # It may hold secrets.
    assert path.stat().st_mode & 0o077 == 0
    assert "quoted" not in repr(settings)


def test_logs_are_bounded() -> None:
    assert "SizeBasedTriggeringPolicy" in LOG4J_PROPERTIES
    assert "appender.file.policies.size.size = 10MB" in LOG4J_PROPERTIES
    assert "appender.file.strategy.max = 3" in LOG4J_PROPERTIES

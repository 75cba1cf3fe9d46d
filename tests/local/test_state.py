"""What a stack remembers in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.filesystem import naming_a_full_disk
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.settings import Ports, StackSettings
from lakehouse_dagster.local.state import ProcessRecord, StackState, read_state, write_state

STATE = StackState(
    stack_id="abc",
    engine="flink-2.0",
    ports=Ports(21001, 21002, 21003),
    settings=StackSettings(slots=4, extra_config={"a": "b"}),
    processes={Service.JOB_MANAGER: ProcessRecord(17, 1700000000.25)},
)


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE
    changed = STATE.with_process(Service.SQL_GATEWAY, ProcessRecord(18, 1.5))
    write_state(tmp_path, changed)
    assert read_state(tmp_path) == changed
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_only_its_owner_may_read_the_state(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_state_that_cannot_be_understood_is_named_and_never_guessed(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"stack\.json is not the state file of a stack"):
        read_state(tmp_path)


def test_a_full_disk_leaves_the_old_state_whole(full_disk: Path) -> None:
    write_state(full_disk, STATE)
    with pytest.raises(OSError):
        (full_disk / "ballast").write_bytes(b"x" * 1024 * 1024)
    with pytest.raises(StackError, match=r"^The disk that holds .* is full\."):
        with naming_a_full_disk(full_disk):
            write_state(full_disk, StackState("other", "flink-2.0", STATE.ports, STATE.settings))
    assert read_state(full_disk) == STATE
    assert sorted(path.name for path in full_disk.iterdir()) == ["ballast", "stack.json"]

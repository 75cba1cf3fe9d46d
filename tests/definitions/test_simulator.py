"""The simulator's folder: what Flink reads is what the log says, also after a crash."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from definitions.business import KINDS, WORK_ORDER, Business, BusinessSettings
from definitions.event_log import EventLog
from definitions.simulator import Pace, Simulator, SimulatorSettings, hold, is_held, main
from lakehouse_dagster.errors import ConfigurationError

SETTINGS = SimulatorSettings(
    BusinessSettings(seed=3, agents=4, cities=2, orders_per_round=5, order_changes_per_round=5),
    Pace(interval_seconds=0, slow_interval_seconds=0),
)


def write(folder: Path, rounds: int, settings: SimulatorSettings = SETTINGS) -> None:
    with Simulator(folder, settings) as simulator:
        simulator.run(rounds)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "input").rglob("*"))
        if path.is_file()
    }


def test_the_log_holds_exactly_what_the_files_hold(tmp_path: Path) -> None:
    write(tmp_path, 12)
    log = EventLog(tmp_path)
    last = log.last_round()
    assert last is not None
    assert last.number == 11
    for kind in KINDS:
        content = b"".join(
            path.read_bytes() for path in sorted((tmp_path / "input" / kind).glob("*.json"))
        )
        assert content == log.read(kind, last)
        assert content.count(b"\n") == last.log_lines[kind] > 0


def test_a_file_is_one_whole_round(tmp_path: Path) -> None:
    write(tmp_path, 3)
    business = Business(SETTINGS.business)
    for number in range(3):
        expected = business.next_round().json_lines(WORK_ORDER)
        assert EventLog(tmp_path).input_path(WORK_ORDER, number).read_bytes() == expected


def test_nothing_but_whole_files_is_ever_visible(tmp_path: Path) -> None:
    write(tmp_path, 5)
    names = [path.name for path in (tmp_path / "input").rglob("*") if path.is_file()]
    assert names
    assert all(name.startswith("round-") and name.endswith(".json") for name in names)


def test_a_restarted_simulation_is_the_same_as_one_that_never_stopped(tmp_path: Path) -> None:
    for _ in range(3):
        write(tmp_path / "stopped", 4)
    write(tmp_path / "whole", 12)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


@pytest.mark.parametrize("torn", ["log", "marker", "file"])
def test_after_a_crash_nothing_is_given_twice_or_left_out(tmp_path: Path, torn: str) -> None:
    write(tmp_path / "whole", 8)
    write(tmp_path / "crashed", 5)
    log = EventLog(tmp_path / "crashed")
    if torn == "log":  # died while a sixth round was appended
        with log.log_path(WORK_ORDER).open("ab") as file:
            file.write(b'{"order_id":1,"agent_')
    elif torn == "marker":  # died while the sixth round was committed
        with log.log_path(WORK_ORDER).open("ab") as file:
            file.write(b'{"order_id":1}\n')
        with (tmp_path / "crashed" / "log" / "rounds.jsonl").open("ab") as file:
            file.write(b'{"round": 5, "by')
    else:  # died before the fifth round's file was renamed
        path = log.input_path(WORK_ORDER, 4)
        path.rename(path.with_name(f".{path.name}.tmp"))
    write(tmp_path / "crashed", 3)
    assert files(tmp_path / "crashed") == files(tmp_path / "whole")
    last = log.last_round()
    assert last is not None
    assert log.read(WORK_ORDER, last) == EventLog(tmp_path / "whole").read(WORK_ORDER, last)


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    other = SimulatorSettings(BusinessSettings(seed=4), SETTINGS.pace)
    with pytest.raises(ConfigurationError, match="other settings"):
        write(tmp_path, 1, other)


def test_a_log_of_another_making_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 2)
    path = EventLog(tmp_path).log_path(WORK_ORDER)
    content = path.read_bytes()
    path.write_bytes(content[:-20] + b"#" + content[-19:])
    with pytest.raises(ConfigurationError, match="another version of the simulator"):
        write(tmp_path, 1)


def test_two_simulators_in_one_folder_are_refused(tmp_path: Path) -> None:
    with Simulator(tmp_path, SETTINGS):
        with pytest.raises(ConfigurationError, match="Another simulator writes"):
            write(tmp_path, 1)
    write(tmp_path, 1)


def test_no_round_is_written_while_a_check_holds_the_folder(tmp_path: Path) -> None:
    stop = threading.Event()
    with Simulator(tmp_path, SETTINGS) as simulator:
        simulator.run(1)
        with hold(tmp_path):
            thread = threading.Thread(target=simulator.run, kwargs={"stop": stop})
            thread.start()
            time.sleep(0.1)
            held_at = EventLog(tmp_path).last_round()
        deadline = time.monotonic() + 60
        while EventLog(tmp_path).last_round() == held_at and time.monotonic() < deadline:
            time.sleep(0.01)
        stop.set()
        thread.join()
    assert held_at is not None
    assert held_at.number == 0
    went_on = EventLog(tmp_path).last_round()
    assert went_on is not None
    assert went_on.number > 0


def test_two_checks_at_once_are_refused_and_a_dead_one_is_forgotten(tmp_path: Path) -> None:
    with hold(tmp_path):
        with pytest.raises(ConfigurationError, match="Another check"), hold(tmp_path):
            pass
        assert is_held(tmp_path)
    assert not is_held(tmp_path)
    (tmp_path / "hold").write_text("1")
    os.utime(tmp_path / "hold", (0, 0))
    assert not is_held(tmp_path)


def test_writing_ends_at_the_bound_of_the_input(tmp_path: Path) -> None:
    bounded = SimulatorSettings(
        SETTINGS.business, Pace(0, fast_rounds=0, slow_interval_seconds=0, input_bytes_max=20_000)
    )
    with Simulator(tmp_path, bounded) as simulator:
        last = simulator.run()
    size = sum(len(content) for content in files(tmp_path).values())
    assert last is not None
    assert size == sum(last.log_bytes.values())
    assert 20_000 <= size < 25_000


def test_rounds_slow_down_after_a_while() -> None:
    pace = Pace(interval_seconds=5, fast_rounds=3, slow_interval_seconds=60)
    assert [pace.pause_seconds(n) for n in range(4)] == [5, 5, 60, 60]


def test_the_command_writes_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--seed", "2", "--rounds", "2", "--interval", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("round 1: ")
    assert json.loads((tmp_path / "settings.json").read_text())["seed"] == 2

"""The process that reads: what it is given, how it is bounded, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.sql import Severity, read_project, read_script, worker_pool
from lakehouse_dagster.sql.packing import unpack
from lakehouse_dagster.sql.transport import to_data
from lakehouse_dagster.sql.unit import Externals, Reading, ReadingContext, SourceText, Unit
from lakehouse_dagster.sql.worker_pool import MIB, Limits, Question, Unanswered, WorkerPool

pytestmark = pytest.mark.usefixtures("in_a_process_of_its_own", "no_process_is_left")

_SETTING = {"context": to_data(ReadingContext()), "externals": to_data(Externals())}
_ORDINARY = "CREATE TABLE a.b (x INT)"

_ONE_SECOND = Limits(seconds=1, wall_factor=5)

# What a script does to the reading process that begins with these words.
_HOSTILE = """
import os, signal, sys, time
from lakehouse_dagster.sql import tasks
run = tasks.Tasks.run
def hostile(self, task, unit):
    word, _, rest = unit["files"][0]["text"].partition(" ")
    if word == "HANG":
        open(rest, "w").close()
        time.sleep(1000)
    if word == "WAIT":
        time.sleep(1.5)
    if word == "LOOP":
        while True:
            pass
    if word == "STOP":
        os.kill(os.getpid(), signal.SIGSTOP)
    if word == "DIE":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "DIE_ONCE" and not os.path.exists(rest):
        open(rest, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "EAT":
        eaten = [bytearray(1 << 20) for _ in range(1 << 12)]
    if word == "FAIL":
        raise KeyError("the script's own text")
    if word == "PRINT":
        print("noise"), os.write(1, b"noise"), os.write(2, b"noise"), sys.stdout.flush()
    if word == "ENVIRONMENT":
        return dict(os.environ)
    return run(self, task, unit)
tasks.Tasks.run = hostile
"""


def _workers() -> set[psutil.Process]:
    return {c for c in psutil.Process().children() if "worker" in str(c.cmdline())}


@pytest.fixture
def no_process_is_left() -> Iterator[None]:
    before = _workers()  # other tests may keep one
    yield
    assert [left.cmdline() for left in _workers() - before] == []


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    before, found, after = worker_pool._START.partition("from lakehouse")
    assert found
    monkeypatch.setattr(worker_pool, "_START", f"{before}exec({_HOSTILE!r}); {found}{after}")


def question(text: str) -> Question:
    return Question("jobs", to_data(Unit((SourceText("s.sql", text),))), text, len(text))


def ask(*texts: str, limits: Limits | None = None, workers: int = 1) -> Sequence[object]:
    with WorkerPool(limits, most_workers=workers) as pool:
        answers = pool.ask_all([question(text) for text in texts], _SETTING)
    return [answer if isinstance(answer, Unanswered) else "read" for answer in answers]


@pytest.mark.usefixtures("hostile")
def test_a_script_that_hangs_is_given_up_and_the_others_are_read(tmp_path: Path) -> None:
    answers = ask(_ORDINARY, f"HANG {tmp_path / 'x'}", _ORDINARY, limits=_ONE_SECOND)
    assert answers == ["read", Unanswered("it could not be read within 1 s"), "read"]


@pytest.mark.usefixtures("hostile")
def test_a_process_that_stands_still_is_given_up() -> None:
    answers = ask("STOP", _ORDINARY, limits=_ONE_SECOND)
    assert answers == [Unanswered("it could not be read within 1 s"), "read"]


@pytest.mark.usefixtures("hostile")
def test_a_script_may_wait_for_the_processor_longer_than_it_may_use_it() -> None:
    assert ask("WAIT", _ORDINARY, limits=Limits(seconds=1, wall_factor=60)) == ["read", "read"]


@pytest.mark.usefixtures("hostile")
def test_a_script_that_keeps_the_processor_busy_is_given_up() -> None:
    answers = ask("LOOP", _ORDINARY, limits=Limits(seconds=1, wall_factor=600))
    assert answers == [Unanswered("it could not be read within 1 s"), "read"]


@pytest.mark.usefixtures("hostile")
def test_a_script_that_takes_all_memory_is_given_up_and_the_others_are_read() -> None:
    answers = ask(_ORDINARY, "EAT", _ORDINARY, limits=Limits(memory_bytes=512 * MIB))
    reason = "it could not be read within 512 MiB of memory"
    assert answers == ["read", Unanswered(reason), "read"]


@pytest.mark.usefixtures("hostile")
def test_a_script_that_ends_the_process_is_given_up_and_the_others_are_read() -> None:
    answers = ask(_ORDINARY, "DIE", _ORDINARY)
    assert answers == ["read", Unanswered("the process that reads it ended each time"), "read"]


@pytest.mark.usefixtures("hostile")
def test_a_process_that_is_killed_from_outside_is_replaced_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    assert ask(_ORDINARY, f"DIE_ONCE {tmp_path / 'x'}", _ORDINARY) == ["read"] * 3


@pytest.mark.usefixtures("hostile")
def test_a_failure_of_the_reader_is_told_without_the_scripts_text() -> None:
    assert ask("FAIL") == [Unanswered("the reader itself failed on it (KeyError)")]


@pytest.mark.usefixtures("hostile")
def test_what_is_printed_does_not_get_among_the_answers() -> None:
    assert ask("PRINT", _ORDINARY) == ["read", "read"]


@pytest.mark.usefixtures("hostile")
def test_the_process_does_not_see_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "hush")
    with WorkerPool() as pool:
        (seen,) = pool.ask_all([question("ENVIRONMENT")], _SETTING)
    assert set(seen) <= {*worker_pool._KEPT_VARIABLES, "LC_CTYPE"}


def test_an_answer_that_is_too_long_is_refused() -> None:
    answers = ask("SELECT '" + "x" * 10_000 + "'", _ORDINARY, limits=Limits(answer_bytes=5_000))
    assert answers == [Unanswered("what it says is too long"), "read"]


def test_several_processes_answer_in_the_order_of_the_questions() -> None:
    texts = [f"CREATE TABLE a.t{n} (x INT)" for n in range(120)]
    with WorkerPool(most_workers=3) as pool:
        answers = pool.ask_all([question(text) for text in texts], _SETTING)
    names = [unpack(Reading, answer["read"]).scripts[0].tables[0].name.table for answer in answers]
    assert names == [f"t{n}" for n in range(120)]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Control-C interrupts, also where whoever started the tests lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_ends_the_reading_and_its_processes(
    tmp_path: Path, workers: int, interruptible: None
) -> None:
    hanging = tmp_path / "hanging"

    def interrupt() -> None:
        while not hanging.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        ask(f"HANG {hanging}", *[_ORDINARY] * 60, workers=workers)


def test_the_process_ends_when_the_one_that_asks_is_killed() -> None:
    program = (
        "import sys, time\n"
        "from lakehouse_dagster.sql.worker_pool import Question, WorkerPool\n"
        "pool = WorkerPool()\n"
        f"pool.ask_all([Question('jobs', {question('SELECT 1').unit}, 's.sql', 8)], {_SETTING})\n"
        "print(pool._workers[0]._process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        reading = psutil.Process(int(asking.stdout.readline()))
        assert reading.is_running()
        asking.kill()
    reading.wait(timeout=60)
    assert not reading.is_running()


def test_without_a_python_to_start_it_is_said_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConfigurationError, match="cannot be started: No such file"):
        read_script("s.sql", text=_ORDINARY)


def test_without_sqlglot_it_is_said_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sqlglot.py").write_text("raise ImportError('an old one')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be started: ImportError: an old one"):
        read_script("s.sql", text=_ORDINARY)


@pytest.mark.usefixtures("hostile")
def test_an_unreadable_script_is_an_error_at_its_place_and_the_rest_of_the_project_is_known(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.sql").write_text("DIE")
    (tmp_path / "good.sql").write_text(_ORDINARY)
    project = read_project([tmp_path / "bad.sql", tmp_path / "good.sql"], base=tmp_path)
    (error,) = project.errors
    assert (str(error.location), error.severity) == ("bad.sql:1:1", Severity.ERROR)
    assert "the process that reads it ended each time" in error.message
    assert [table.name.key for table in project.tables] == ["a.b"]
    again = read_project([tmp_path / "bad.sql"], base=tmp_path)
    assert [str(p.location) for p in again.errors] == ["bad.sql:1:1"]

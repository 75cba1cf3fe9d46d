"""What was read is kept by content, and nothing is lost when it cannot be."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse_dagster.sql import cache, read_script
from lakehouse_dagster.sql.cache import ScriptCache, key_of
from lakehouse_dagster.sql.worker_pool import WorkerPool

_TEXT = "CREATE TABLE a.b (x INT);\nINSERT INTO a.b SELECT y FROM a.c;"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def entries(home: Path) -> Path:
    """The folder of the entries, with one script read."""
    read_script("s.sql", text=_TEXT)
    assert list((home / "scripts").glob("*.json"))
    return home / "scripts"


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_all(*_: object) -> None:
        raise AssertionError("a process was asked")

    monkeypatch.setattr(WorkerPool, "ask_all", ask_all)


def test_what_was_read_is_not_read_again(entries: Path, nothing_is_read: None) -> None:
    script = read_script("s.sql", text=_TEXT)
    assert [table.name.key for table in script.tables] == ["a.b"]
    assert [job.reads[0].key for job in script.jobs] == ["a.c"]


@pytest.mark.parametrize(
    ("path", "text", "catalog"),
    [
        ("s.sql", _TEXT + " ", "lake"),
        ("other.sql", _TEXT, "lake"),
        ("s.sql", _TEXT, "other"),
    ],
)
def test_another_text_path_or_catalog_is_read_anew(
    entries: Path, nothing_is_read: None, path: str, text: str, catalog: str
) -> None:
    with pytest.raises(AssertionError, match="a process was asked"):
        read_script(path, text=text, catalog=catalog)


def test_another_version_of_the_reader_reads_anew(
    entries: Path, nothing_is_read: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "reader_version", lambda: "another")
    with pytest.raises(AssertionError, match="a process was asked"):
        read_script("s.sql", text=_TEXT)


def test_the_version_follows_the_sources_of_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cache.py", "jobs.py"):
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "cache.py"))
    first = cache.reader_version.__wrapped__()
    assert cache.reader_version.__wrapped__() == first
    (tmp_path / "jobs.py").write_text("two")
    assert cache.reader_version.__wrapped__() != first


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\xff\xfe not JSON",
        lambda content: content.replace(b"a.b", b"a.x"),
        lambda content: content.partition(b"\n")[0] + b"\n" + b"[" * 100_000,
    ],
    ids=["cut off", "empty", "no JSON", "changed", "nested"],
)
def test_a_damaged_entry_is_read_anew_and_mended(entries: Path, damage: object) -> None:
    assert callable(damage)
    before = read_script("s.sql", text=_TEXT)
    whole = {path: path.read_bytes() for path in entries.iterdir()}
    for path, content in whole.items():
        path.write_bytes(damage(content))
    assert read_script("s.sql", text=_TEXT) == before
    assert {path: path.read_bytes() for path in entries.iterdir()} == whole


def test_an_entry_under_the_name_of_another_does_not_count(tmp_path: Path) -> None:
    kept = ScriptCache(tmp_path)
    one, other = key_of("one"), key_of("other")
    kept.put(one, {"a": 1})
    (tmp_path / f"{one}.json").rename(tmp_path / f"{other}.json")
    assert (kept.get(one), kept.get(other)) == (None, None)


def test_only_the_owner_may_read_entries_and_their_folder(entries: Path) -> None:
    assert entries.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in entries.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "secret",
    [
        "CREATE TABLE t (x INT) WITH ('connector' = 'jdbc', 'password' = 'hush-hush');",
        "CREATE TABLE t (x INT) WITH ('connector' = 'x', 'url' = 'mysql://me:hush-hush@db/x');",
        "CREATE TABLE t (x INT) WITH ('connector' = 'x' /* , 'password' = 'hush-hush' */);",
        "CREATE TABLE t (x INT) WITH ('a.secret-key' = '${KEY:-hush-hush}');",
        "SET 's3.secret-key' = 'hush-hush';",
        "SET s3.secret-key = hush-hush;",
    ],
)
def test_a_script_that_holds_a_secret_is_not_kept(home: Path, secret: str) -> None:
    read_script("s.sql", text=f"{secret}\n{_TEXT}")
    written = [path.read_text() for path in home.rglob("*") if path.is_file()]
    assert not any("hush-hush" in text for text in written)


def test_a_script_that_names_a_secret_is_kept(home: Path, entries: Path) -> None:
    before = len(list(entries.iterdir()))
    read_script("s.sql", text="CREATE TABLE t (x INT) WITH ('password' = '${PASSWORD}');")
    assert len(list(entries.iterdir())) > before


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert read_script("s.sql", text=_TEXT).tables[0].name.key == "a.b"


def test_a_full_disk_costs_nothing_but_time(home: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        script = read_script("s.sql", text=_TEXT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert script.tables[0].name.key == "a.b"
    assert list((home / "scripts").iterdir()) == []


def test_what_was_not_used_for_longest_is_removed_when_there_is_too_much(tmp_path: Path) -> None:
    kept = ScriptCache(tmp_path, largest_bytes=2_500)
    keys = [key_of(n) for n in range(4)]
    for age, key in enumerate(keys[:3]):
        kept.put(key, "x" * 1_000)
        os.utime(tmp_path / f"{key}.json", (1_000 + age, 1_000 + age))
    assert kept.get(keys[0])  # used: now it is the newest
    kept.put(keys[3], "x" * 1_000)
    kept.prune()
    assert [bool(kept.get(key)) for key in keys] == [True, False, False, True]


_READ_FOLDER = """
import json, pathlib, sys
from lakehouse_dagster.sql import read_project
from lakehouse_dagster.sql.transport import to_data
print(json.dumps(to_data(read_project(pathlib.Path(sys.argv[1]).iterdir(), base=sys.argv[1]))))
"""


def test_two_processes_read_and_write_one_folder_at_once(tmp_path: Path, home: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for n in range(40):
        (scripts / f"s{n}.sql").write_text(_TEXT.replace("a.", f"a{n}."))
    command = [sys.executable, "-c", _READ_FOLDER, str(scripts)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [json.loads(process.communicate()[0]) for process in running]
    assert told[0] == told[1] == told[2]
    assert len(told[0]["jobs"]) == 40
    assert all(path.suffix == ".json" for path in (home / "scripts").iterdir())


def test_a_project_that_is_known_needs_no_process_and_no_sqlglot(
    tmp_path: Path, home: Path
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for n in range(10):
        (scripts / f"s{n}.sql").write_text(_TEXT.replace("a.", f"a{n}."))
    nothing_starts = (
        "import subprocess, sys\n"
        "def refuse(*_, **__): raise AssertionError('a process was started')\n"
        "subprocess.Popen = refuse\n"
    )
    end = "assert 'sqlglot' not in sys.modules\n"
    told = [
        subprocess.run(
            [sys.executable, "-c", program, str(scripts)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for program in (_READ_FOLDER + end, nothing_starts + _READ_FOLDER + end)
    ]
    assert told[0] == told[1]

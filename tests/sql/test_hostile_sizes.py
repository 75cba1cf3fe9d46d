"""Files that are far larger than any script should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.sql import Severity, read_project

pytestmark = pytest.mark.usefixtures("in_a_process_of_its_own")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))


def test_ten_thousand_statements_are_read(tmp_path: Path) -> None:
    script = tmp_path / "many.sql"
    script.write_text("".join(f"CREATE TABLE a.t{n} (x INT);\n" for n in range(10_000)))
    project = read_project([script], base=tmp_path)
    assert [table.name.key for table in project.tables] == [f"a.t{n}" for n in range(10_000)]
    assert project.problems == ()


def test_a_file_of_five_megabytes_is_read(tmp_path: Path) -> None:
    script = tmp_path / "large.sql"
    rows = ",\n".join(f"  ({n}, '{'a long text ' * 350}')" for n in range(1_200))
    script.write_text(f"CREATE TABLE a.t (x INT, y STRING);\nINSERT INTO a.t VALUES\n{rows};\n")
    assert script.stat().st_size > 5_000_000
    project = read_project([script], base=tmp_path)
    assert [table.name.key for table in project.tables] == ["a.t"]
    assert project.errors == ()


def test_five_megabytes_of_noise_are_told_and_do_not_lose_the_other_script(tmp_path: Path) -> None:
    (tmp_path / "noise.sql").write_text("'`(((; /* " * 520_000)
    (tmp_path / "good.sql").write_text("CREATE TABLE a.t (x INT);")
    project = read_project(tmp_path.glob("*.sql"), base=tmp_path)
    assert [table.name.key for table in project.tables] == ["a.t"]
    assert {p.location.path for p in project.problems if p.severity is Severity.ERROR} == {
        "noise.sql"
    }


def test_a_file_that_is_too_large_for_a_script_is_not_opened(tmp_path: Path) -> None:
    with (tmp_path / "huge.sql").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    (problem,) = read_project([tmp_path / "huge.sql"], base=tmp_path).problems
    assert problem.message == "The file is too large for a script (64 MiB)."

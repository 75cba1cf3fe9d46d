"""What is wrong with a script is told with its place; reading never raises for content."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.sql import Severity, read_script
from lakehouse_dagster.sql.parsing import READER_FAILED
from lakehouse_dagster.sql.script_reader import read_jobs
from lakehouse_dagster.sql.unit import Deadline, Externals, ReadingContext, SourceText, Unit
from tests.sql.in_process import read_alone
from tests.sql.samples import DECLARATIONS, INSERTS
from tests.sql.test_statements import TEXTS

STATEMENTS = [*DECLARATIONS, *(sql for sql, *_ in INSERTS.values())]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("USE a;\nSELECT 'x; USE b", "2:8", "The string that begins here does not end."),
        ("USE a;\n\n /* x", "3:2", "The comment that begins here does not end."),
        ("SELECT `x", "1:8", "The quoted name that begins here does not end."),
        ("USE a;\n BEGIN STATEMENT SET; INSERT INTO a.b SELECT 1;", "2:2",
         "The statement set is not closed by END."),
        ("CREATE TABLE a.b (i INT);\nCREATE TABLE a.b (i BIGINT)", "2:1",
         "The table a.b is declared differently at s.sql:1:1."),
    ],
)  # fmt: skip
def test_errors_have_a_place_and_a_remedy(text: str, place: str, message: str) -> None:
    found = [p for p in read_alone(text, "s.sql").problems if p.severity is Severity.ERROR]
    assert [(str(p.location), p.message) for p in found] == [(f"s.sql:{place}", message)]
    assert all(p.remedy for p in found)


@pytest.mark.parametrize("text", ["", "-- nothing\n;;"])
def test_a_script_without_a_statement_is_a_warning(text: str) -> None:
    (problem,) = read_alone(text, "s.sql").problems
    assert str(problem) == (
        "s.sql:1:1: warning: The script holds no statement. Leave it out of the scripts."
    )


def test_declaring_a_table_twice_alike_is_no_problem() -> None:
    text = "CREATE TABLE a.b (i INT);\nCREATE TABLE IF NOT EXISTS a.b (i INTEGER) -- again"
    script = read_alone(text, "s.sql")
    assert script.problems == ()
    assert len(script.tables) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"SELECT 1;\0\0", "The file is binary, not SQL."),
        (b"USE a;\nSELECT '\xe9'", "The file is not UTF-8 text."),
    ],
)
def test_files_that_are_no_text_are_errors(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.sql"
    path.write_bytes(content)
    (problem,) = read_script(path).problems
    assert (problem.severity, problem.message) == (Severity.ERROR, message)


def test_a_byte_that_is_no_utf_8_is_pointed_at(tmp_path: Path) -> None:
    path = tmp_path / "s.sql"
    path.write_bytes(b"USE a;\nSELECT '\xe9'")
    (problem,) = read_script(path).problems
    assert (problem.location.line, problem.location.column) == (2, 9)


def test_a_missing_file_or_a_folder_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.sql", tmp_path):
        (problem,) = read_script(path).problems
        assert problem.severity is Severity.ERROR
        assert problem.message.startswith("The script cannot be opened: ")


def test_an_unknown_statement_is_a_warning_at_the_word_it_stumbled_on() -> None:
    script = read_script(
        "s.sql",
        text="USE a;\n  CREATE TABLE t (\n    a INT,\n    b INT UNSIGNED\n  );\nUSE b",
    )
    (problem,) = script.problems
    assert problem.severity is Severity.WARNING
    assert (problem.location.line, problem.location.column) == (4, 11)
    assert "found UNSIGNED" in problem.message
    assert problem.statement_start.startswith("CREATE TABLE t ( a INT")


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("CREATE TABLE a.s (a INT, b STRING", "1:34", "Expected ), but the statement ends."),
        ("USE a;\nSELEC 1", "2:1", "(did you mean SELECT?)"),
        ("INSERT INTO a.b SELECT x FROM WHERE y", "1:31", "Expected a name, found WHERE. Correct"),
        ("INSERT INTO a.b SELECT x FROM", "1:30", "Expected a table's name, but the statement"),
        ("INSERT INTO a.b SELECT x FROM a.c WHERE", "1:40", "Expected something more, but the"),
        ("INSERT INTO a.b SELECT x y z FROM a.c", "1:28", "Something else was expected here, "),
        ("INSERT INTO a.b SELECT (1", "1:26", "declare the job's dependencies by hand"),
    ],
)
def test_a_mistake_is_told_in_plain_words_at_its_place(text: str, place: str, reason: str) -> None:
    (problem,) = [p for p in read_alone(text, "s.sql").problems if reason in str(p)]
    assert str(problem.location) == f"s.sql:{place}"
    assert "Declare the missing tables" not in problem.remedy
    assert "<" not in problem.message


def test_one_bad_statement_does_not_lose_the_others() -> None:
    script = read_script(
        "s.sql",
        text="Flink SQL> CREATE TABLE a.x (i INT);\n# a comment of the shell\n"
        "CREATE TABLE a.y (i INT);\n$ bin/sql-client.sh -f x;\n"
        "CREATE TABLE a.z (i INT) STORED AS ORC;\nINSERT INTO a.y SELECT * FROM a.z",
    )
    assert [table.name.key for table in script.tables] == ["a.x", "a.y", "a.z"]
    assert [table.columns_known for table in script.tables] == [True, True, False]
    assert [job.name for job in script.jobs] == ["s"]
    assert sorted(p.location.line for p in script.problems) == [1, 2, 4, 5]
    assert {p.severity for p in script.problems} == {Severity.WARNING}


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO a.b SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "INSERT INTO a.b SELECT * FROM " + "(SELECT * FROM " * 400 + "t" + ")" * 400,
        "CREATE TABLE a.b (x " + "ARRAY<" * 3000 + "INT" + ">" * 3000 + ")",
        "INSERT INTO a.b " + " UNION ALL ".join(["SELECT * FROM t"] * 2000),
        "INSERT INTO a.b SELECT " + " + ".join(["1"] * 5000),
        "'" * 50_001,
        "/*" * 50_000,
        "`" * 50_001,
        "${" * 20_000,
        "(" * 50_000,
    ],
)
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    started = time.process_time()
    script = read_alone(text, "s.sql")
    assert time.process_time() - started < 5
    assert script.statements or script.problems


def test_what_was_read_in_time_is_kept_and_the_rest_is_a_problem_at_its_place() -> None:
    text = "CREATE TABLE a.b (x INT);\nINSERT INTO a.b SELECT 1;\nINSERT INTO a.b SELECT 2;"
    unit = Unit((SourceText("s.sql", text),))

    class Once(Deadline):
        asked = 0

        def check(self) -> bool:
            self.asked += 1
            self.is_over = self.asked > 2
            return self.is_over

    until = Once()
    (script,) = read_jobs(unit, ReadingContext(), Externals(), until).scripts
    assert [table.name.key for table in script.tables] == ["a.b"]
    assert [str(job.location) for job in script.jobs] == ["s.sql:2:1"]
    (error,) = [p for p in script.problems if p.severity is Severity.ERROR]
    assert str(error.location) == "s.sql:3:1"
    assert until.is_over


def test_three_hundred_statements_take_well_under_a_second() -> None:
    text = ";\n".join((STATEMENTS * 10)[:300])
    started = time.process_time()
    script = read_alone(text, "s.sql")
    assert time.process_time() - started < 1
    assert len(script.statements) == 300


@settings(deadline=None)
@given(TEXTS)
def test_no_text_makes_the_reader_fail(text: str) -> None:
    script = read_alone(text, "s.sql")
    assert not [p for p in script.problems if READER_FAILED in p.message]


@settings(deadline=None)
@given(st.sampled_from(STATEMENTS), st.data())
def test_no_damaged_statement_makes_the_reader_fail(statement: str, data: st.DataObject) -> None:
    words = statement.split()
    start = data.draw(st.integers(0, len(words)))
    end = data.draw(st.integers(start, len(words)))
    damaged = words[:start] + data.draw(st.sampled_from([[], ["("], [";"], ["END"]])) + words[end:]
    script = read_alone(" ".join(damaged), "s.sql")
    assert not [p for p in script.problems if READER_FAILED in p.message]
    assert all(p.location.line >= 1 and p.location.column >= 1 for p in script.problems)

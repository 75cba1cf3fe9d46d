"""Text in scripts that is no SQL is left out, told of, and loses nothing beside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from lakehouse_dagster.sql.model import Severity
from lakehouse_dagster.sql.noise import without_noise
from lakehouse_dagster.sql.script_text import statements_of
from tests.sql.test_statements import TEXTS


def texts(script: str) -> list[str]:
    return [" ".join(s.text.split()) for s in statements_of(script, "s.sql").statements]


def told(script: str) -> list[tuple[int, str]]:
    problems = statements_of(script, "s.sql").problems
    return [(p.location.line, p.message.split(" is no SQL")[0]) for p in problems]


def test_prompts_and_what_the_client_prints_are_left_out() -> None:
    script = (
        "Flink SQL> INSERT INTO b\n> SELECT i FROM a\n> WHERE i > 3;\n"
        "[INFO] Submitting SQL update statement to the cluster...\nJob ID: 1f\n\n"
        "Flink SQL> SELECT * FROM b;\n+---+\n| i |\n+---+\n1 row in set\n"
    )
    assert texts(script) == ["INSERT INTO b SELECT i FROM a WHERE i > 3", "SELECT * FROM b"]
    prompt, printed = "The prompt of the SQL client", "Printed output"
    assert told(script) == [(1, prompt), (4, printed), (7, prompt), (8, printed)]


def test_a_line_that_begins_with_a_comparison_is_no_prompt() -> None:
    assert texts("SELECT a\n> b FROM t") == ["SELECT a > b FROM t"]


@pytest.mark.parametrize(
    ("noise", "what"),
    [
        ("$ ./bin/sql-client.sh \\\n  -f 'x.sql", "A shell command"),
        ("root@taskmanager:/opt# echo don't", "A shell command"),
        ("# don't; do this", "A comment that begins with #"),
        ("#!/usr/bin/env sql-client.sh", "A comment that begins with #"),
        ("```bash\ndocker exec 'x\n```", "Markdown"),
        ("```sql", "Markdown"),
        ("| a | b |", "Printed output"),
    ],
)
def test_lines_that_are_no_sql_are_told_of_once(noise: str, what: str) -> None:
    script = f"USE a;\n{noise}\nUSE b;\n"
    assert texts(script) == ["USE a", "USE b"]
    assert told(script) == [(2, what)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '\n# no comment\n$ ls\n' FROM t",
        "/*\n# why\n```\n*/ SELECT 1",
        "SELECT a\n|| b FROM t",
        "SELECT a\n+ -1 FROM t",
        "-- # x\nSELECT 1",
        "SELECT $rowtime\n, `$x` FROM t",
    ],
)
def test_what_flink_takes_is_never_noise(text: str) -> None:
    assert without_noise(text) == (text, ())


def test_comments_of_a_shell_in_the_middle_of_a_statement_are_left_out() -> None:
    assert texts("CREATE TABLE t (\n  a INT,\n  # it's the key\n  b INT\n)") == [
        "CREATE TABLE t ( a INT, b INT )"
    ]


def test_prose_before_statements_is_one_unknown_statement() -> None:
    script = "This example makes a table.\nSee below\n\nCREATE TABLE a (i INT);\nUSE b;\nversion: 3"
    assert texts(script)[1:] == ["CREATE TABLE a (i INT)", "USE b", "version: 3"]


@settings(deadline=None)
@given(TEXTS)
def test_every_place_stays_what_it_was(text: str) -> None:
    kept, _ = without_noise(text)
    assert len(kept) == len(text)
    assert all(a == b or a == " " for a, b in zip(kept, text, strict=True))


def test_a_long_line_of_many_tokens_takes_time_that_grows_with_it() -> None:
    text = "# x\n" + "a " * 200_000 + "\n" + "# y\n" * 10_000
    assert len(without_noise(text)[1]) == 2
    assert all(p.severity is Severity.WARNING for p in statements_of("# x\nUSE a", "s").problems)

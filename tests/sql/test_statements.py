"""Splitting scripts into statements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.sql.model import Location, StatementKind
from lakehouse_dagster.sql.scanner import TokenKind, scan, significant_text
from lakehouse_dagster.sql.statements import (
    as_one_statement,
    chunks,
    is_closed_set,
    members,
    split,
)

PIECES = st.sampled_from(
    [
        "'", "''", "`", ";", "--", "//", "/*", "*/", "/*+", "\n", " ", "\\", "$", "{", "}", "${A}",
        "${A:-x;y}", "SELECT 1", "INSERT INTO t", "BEGIN", "STATEMENT", "SET", "END", "a",
        "é", "\r",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join))
INNER = st.text(alphabet='ab ;\n-/*`"\\{}$é', max_size=20)


def texts(script: str) -> list[str]:
    return [statement.text for statement in split(script)]


def test_statements_end_at_semicolons_and_keep_their_text() -> None:
    script = "-- first; comment\nCREATE TABLE a (x INT);;\n\n  SELECT\n 1 ; select 2"
    assert texts(script) == ["CREATE TABLE a (x INT)", "SELECT\n 1", "select 2"]


def test_places_are_lines_and_columns_from_one() -> None:
    found = split("/* é */ USE a;\n\n\t USE b; USE c", "s.sql")
    assert [s.location for s in found] == [
        Location("s.sql", 1, 9),
        Location("s.sql", 3, 3),
        Location("s.sql", 3, 10),
    ]


@pytest.mark.parametrize(
    "quoted",
    [
        "'a;b'",
        "'it''s; x'",
        "'\\'",
        "'-- ;'",
        "'/* ;'",
        "'x\n;y'",
        "`a;b`",
        "`a``;`",
        "/* ; ' */",
        "/*+ OPTIONS('a;b' = '*/;') */",
        "-- ; '\n",
        "// ; '\n",
        "${A:-b;c}",
    ],
)
def test_a_semicolon_in_quotes_comments_hints_or_variables_ends_nothing(quoted: str) -> None:
    assert len(texts(f"SELECT {quoted} FROM t")) == 1
    assert texts(f"SELECT 0{quoted}; SELECT 2")[1:] == ["SELECT 2"]


def test_a_backslash_is_an_ordinary_character() -> None:
    assert texts(r"SELECT '\'; SELECT '\\'") == [r"SELECT '\'", r"SELECT '\\'"]


def test_an_unquoted_address_is_no_comment() -> None:
    script = "SET state.dir = file:///tmp/x;\nSELECT 1"
    assert texts(script) == ["SET state.dir = file:///tmp/x", "SELECT 1"]


@pytest.mark.parametrize(
    "script",
    [
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END",
        "execute statement set\nbegin\ninsert into a select 1; insert into b select 2;\nend",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; /* ; */ ; INSERT INTO b SELECT 2; END",
        "BEGIN STATEMENT SET;\n"
        "INSERT INTO a SELECT CASE WHEN x THEN 1 ELSE 2 END;INSERT INTO b SELECT 2;END",
    ],
)
def test_a_statement_set_is_one_statement(script: str) -> None:
    before, found, after = split(f"SET 'a' = 'b'; {script}; USE x;")
    assert (before.text, after.text) == ("SET 'a' = 'b'", "USE x")
    assert found.text == script
    assert found.kind is StatementKind.STATEMENT_SET
    assert is_closed_set(found)


def test_members_of_a_statement_set_have_their_own_places() -> None:
    script = (
        "SET 'a' = 'b'; EXECUTE STATEMENT SET BEGIN INSERT INTO a\n SELECT 1;\n"
        "  INSERT INTO b SELECT 2; END;"
    )
    first, second = members(split(script)[1])
    assert (first.text, second.text) == ("INSERT INTO a\n SELECT 1", "INSERT INTO b SELECT 2")
    assert (first.location.line, first.location.column) == (1, 44)
    assert (second.location.line, second.location.column) == (3, 3)


def test_a_statement_set_without_end_does_not_take_the_settings_after_it() -> None:
    script = "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; SET 'x' = 'y'; INSERT INTO b SELECT 2"
    found = split(script)
    assert [s.kind for s in found] == [
        StatementKind.STATEMENT_SET,
        StatementKind.SET,
        StatementKind.INSERT,
    ]
    assert not is_closed_set(found[0])


def test_both_forms_of_a_statement_set_become_the_one_the_gateway_takes() -> None:
    begin = split("BEGIN STATEMENT /* x */ SET ;\nINSERT INTO a SELECT 1;\nEND")[0]
    execute = split("EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT 1;\nEND")[0]
    assert as_one_statement(begin) == execute.text
    assert as_one_statement(execute) == execute.text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("create or replace table t as select 1", StatementKind.CREATE_TABLE_AS),
        ("CREATE TABLE t WITH ('as' = 'select') AS\nWITH a AS (SELECT 1) SELECT 2",
         StatementKind.CREATE_TABLE_AS),
        ("CREATE TABLE t (a AS b + 1)", StatementKind.CREATE_TABLE),
        ("CREATE TEMPORARY TABLE t (a INT)", StatementKind.CREATE_TEMPORARY_TABLE),
        ("CREATE VIEW v AS SELECT 1", StatementKind.CREATE_VIEW),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", StatementKind.CREATE_TEMPORARY_VIEW),
        ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'x'", StatementKind.CREATE_FUNCTION),
        ("CREATE CATALOG c WITH ('type' = 'x')", StatementKind.CREATE_CATALOG),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", StatementKind.CREATE_OTHER),
        ("INSERT OVERWRITE t SELECT 1", StatementKind.INSERT),
        ("EXECUTE INSERT INTO t SELECT 1", StatementKind.INSERT),
        ("EXPLAIN STATEMENT SET BEGIN INSERT INTO t SELECT 1", StatementKind.QUERY),
        ("EXECUTE PLAN 'x'", StatementKind.ACTION),
        ("DROP TABLE t", StatementKind.DROP),
        ("DROP TEMPORARY VIEW t", StatementKind.DROP_TEMPORARY),
        ("ADD JAR 'x'", StatementKind.MODULE_OR_JAR),
        ("$ ./bin/sql-client.sh", StatementKind.UNKNOWN),
        ("`CREATE` TABLE t", StatementKind.UNKNOWN),
    ],
)  # fmt: skip
def test_what_a_statement_does_is_told_from_its_words(text: str, kind: StatementKind) -> None:
    assert split(text)[0].kind is kind


@settings(deadline=None)
@given(TEXTS)
def test_no_character_is_lost(text: str) -> None:
    assert "".join(token.text for token in scan(text)) == text
    assert "".join(t.text for chunk in chunks(text) for t in chunk.tokens) == text


@settings(deadline=None)
@given(TEXTS)
def test_splitting_loses_nothing_but_space_comments_and_semicolons(text: str) -> None:
    def words(of: str) -> list[str]:
        return [t.text for t in scan(of) if not t.is_trivia and t.kind is not TokenKind.SEMICOLON]

    assert [w for s in split(text) for w in words(s.text)] == words(text)


@settings(deadline=None)
@given(TEXTS)
def test_every_statement_stands_where_it_says(text: str) -> None:
    lines = text.split("\n")
    for statement in split(text):
        line = lines[statement.location.line - 1][statement.location.column - 1 :]
        assert line.startswith(statement.text.split("\n")[0])


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("'`c"), INNER), min_size=1, max_size=6))
def test_strings_names_and_comments_are_never_split(parts: list[tuple[str, str]]) -> None:
    written = []
    for kind, inner in parts:
        if kind == "c":
            text = inner.replace("*/", "").lstrip("+/").rstrip("*")
            written.append(f"a /*{' ' + text + ' '}*/")
        else:
            written.append(kind + inner.replace(kind, kind * 2) + kind)
    found = texts(" , ".join(written) + "; x")
    assert len(found) == 2
    assert found[1] == "x"


@settings(deadline=None)
@given(TEXTS)
def test_comparing_text_ignores_space_and_comments(text: str) -> None:
    once = significant_text(text)
    if not any(token.is_unterminated for token in scan(text)):
        assert significant_text(once) == once

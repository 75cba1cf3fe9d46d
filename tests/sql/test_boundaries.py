"""Statements are told apart where a semicolon was forgotten, and never where none is missing."""

from __future__ import annotations

import pytest

from lakehouse_dagster.sql import as_one_statement, split
from lakehouse_dagster.sql.model import Severity
from lakehouse_dagster.sql.script_text import statements_of
from lakehouse_dagster.sql.statements import members


def texts(script: str) -> list[str]:
    return [" ".join(s.text.split()) for s in split(script)]


@pytest.mark.parametrize(
    "statements",
    [
        ["SET 'a' = 'b'", "SET x.y-z = 3s", "RESET 'a'", "USE CATALOG c"],
        ["CREATE TABLE a (i INT) WITH ('x' = 'y')", "CREATE TEMPORARY VIEW v AS\nSELECT 1"],
        ["INSERT INTO a\nSELECT * FROM b", "INSERT OVERWRITE c\nSELECT 1", "DROP TABLE d"],
        ["CREATE TABLE a (i INT) WITH ('x' = 'y')", "SELECT * FROM a"],
        ["USE CATALOG c", "USE ods", "CREATE OR REPLACE TEMPORARY FUNCTION f AS 'x'"],
        ["INSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t", "EXECUTE STATEMENT SET BEGIN "
         "INSERT INTO b SELECT 1; END"],
        ["ALTER TABLE a SET ('x' = 'y')", "ALTER TABLE a ADD b INT"],
        ["prose, not SQL", "CREATE CATALOG c WITH ('type' = 'x')"],
    ],
)  # fmt: skip
def test_forgotten_semicolons_are_told(statements: list[str]) -> None:
    wanted = [" ".join(text.split()) for text in statements]
    assert texts("\n".join(statements)) == wanted
    problems = statements_of("\n".join(statements), "s.sql").problems
    assert [p.message for p in problems] == ["A semicolon is missing before this."] * (
        len(statements) - 1
    )
    assert {p.severity for p in problems} == {Severity.WARNING}
    assert statements_of(";\n".join(statements), "s.sql").problems == ()


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN\nINSERT INTO a SELECT 1",
        "EXPLAIN PLAN FOR\nINSERT INTO a SELECT 1",
        "COMPILE PLAN 'x' FOR\nINSERT INTO a SELECT 1",
        "EXECUTE\nINSERT INTO a SELECT 1",
        "SHOW\nCREATE TABLE a",
        "ALTER TABLE a\nSET ('x' = 'y')",
        "ALTER TABLE a\nDROP b",
        "UPDATE a\nSET b = 1",
        "CREATE TABLE a WITH ('x' = 'y') AS\nSELECT 1",
        "CREATE TABLE a WITH ('x' = 'y') AS (\nSELECT 1)",
        "CREATE VIEW v (a, b) AS\nSELECT 1, 2",
        "INSERT INTO a (x, y)\nSELECT 1, 2",
        "WITH x AS (SELECT 1)\nSELECT * FROM x",
        "SELECT 1\nUNION ALL\nSELECT 2",
        "CREATE FUNCTION f AS 'x'\nUSING JAR 'y'",
        "SELECT a FROM t WHERE x IN (\nSELECT b FROM u)",
        "SELECT 'x\nINSERT INTO a SELECT 1'",
    ],
)
def test_one_statement_stays_one(statement: str) -> None:
    assert len(split(statement)) == 1


def test_semicolons_forgotten_in_a_statement_set_are_told_and_added_at_submission() -> None:
    script = (
        "EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t\n"
        "INSERT INTO b SELECT 2 END;\nUSE x"
    )
    found, after = split(script)
    assert after.text == "USE x"
    assert [m.text for m in members(found)] == [
        "INSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t",
        "INSERT INTO b SELECT 2",
    ]
    assert as_one_statement(found) == (
        "EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t;\n"
        "INSERT INTO b SELECT 2;\nEND"
    )
    places = [str(p.location) for p in statements_of(script, "s").problems]
    assert places == ["s:3:1", "s:3:24"]


@pytest.mark.parametrize("rest", ["UNION ALL SELECT 2", "EXCEPT SELECT 2", "GROUP BY a"])
def test_a_stray_semicolon_in_a_query_is_an_error_at_what_it_cuts_off(rest: str) -> None:
    (problem,) = statements_of(f"INSERT INTO a SELECT 1;\n{rest};\nUSE b", "s.sql").problems
    assert problem.severity is Severity.ERROR
    assert str(problem.location) == "s.sql:2:1"
    assert problem.message.startswith("The semicolon before this ends the statement above")
    assert problem.statement_start == f"{rest[:-2]} …"

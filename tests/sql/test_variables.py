"""Environment variables in scripts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.errors import MissingVariableError
from lakehouse_dagster.sql import split, substitute, variables_in
from lakehouse_dagster.sql.scanner import TokenKind, scan

SCRIPT = "SELECT '${A}', ${B:-1}, `${C}` FROM t -- ${D}\n/* ${E} */"


def test_variables_are_found_outside_of_comments() -> None:
    assert variables_in(SCRIPT) == {"A", "B", "C"}


def test_values_and_defaults_are_filled_in_and_comments_left_alone() -> None:
    filled = substitute(SCRIPT, {"A": "x", "C": "col"})
    assert filled == "SELECT 'x', 1, `col` FROM t -- ${D}\n/* ${E} */"


def test_a_set_variable_wins_over_its_default_even_if_empty() -> None:
    assert substitute("'${A:-b}'", {"A": ""}) == "''"


def test_a_missing_variable_is_named_with_its_script() -> None:
    with pytest.raises(MissingVariableError) as caught:
        substitute("'${B} ${A} ${B}'", {}, path="sql/x.sql")
    assert "sql/x.sql needs the variables A, B" in str(caught.value)


def test_a_quote_in_a_value_does_not_end_the_literal() -> None:
    assert substitute("'p=${P}'", {"P": "a'b; DROP"}) == "'p=a''b; DROP'"
    assert substitute("`${P}`", {"P": "a`b"}) == "`a``b`"


@settings(deadline=None)
@given(st.text(max_size=30))
def test_a_value_in_a_string_stays_that_string(value: str) -> None:
    filled = substitute("SELECT '${P}'", {"P": value})
    strings = [t.text for t in scan(filled) if t.kind is TokenKind.STRING]
    assert [text[1:-1].replace("''", "'") for text in strings] == [value]
    assert len(split(filled)) == 1


def test_what_only_looks_like_a_variable_stays() -> None:
    text = "SELECT '$A {B} $.a ${} ${a b}'"
    assert variables_in(text) == frozenset()
    assert substitute(text, {}) == text

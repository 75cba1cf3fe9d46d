"""Environment variables in scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.errors import ConfigurationError, MissingVariableError
from lakehouse_dagster.sql import split, substitute
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.variables import fill_for_reading, missing_in, placeholder_in
from lakehouse_dagster.sql.variables_file import read_variables

SCRIPT = "SELECT '${A}', ${B:-1}, `${C}` FROM t -- ${D}\n/* ${E} */"


def test_variables_without_a_default_are_found_outside_of_comments() -> None:
    assert missing_in(SCRIPT, {}) == ("A", "C")


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
    assert missing_in(text, {}) == ()
    assert substitute(text, {}) == text


def test_a_file_of_variables_holds_lines_or_yaml(tmp_path: Path) -> None:
    lines = tmp_path / "prod.env"
    lines.write_text("# names\n\nexport DB = ods\nURL='a=b #c'\nEMPTY=\nTEXT=\"it's\"\n")
    assert read_variables(lines) == {"DB": "ods", "URL": "a=b #c", "EMPTY": "", "TEXT": "it's"}
    written = tmp_path / "prod.yaml"
    written.write_text("DB: ods\na: {b: 007}\n")
    assert read_variables(written) == {"DB": "ods", "a.b": "007"}


def test_a_line_that_is_no_variable_is_pointed_at_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "prod.env"
    path.write_text("A=b\nhush hush\n")
    with pytest.raises(ConfigurationError) as caught:
        read_variables(path)
    assert "prod.env:2 is no line of the form NAME=value." in str(caught.value)
    assert "hush" not in str(caught.value)


def test_double_braces_are_filled_in_like_the_others() -> None:
    assert substitute("'{{ a }}-{{b.c}}' FROM {{ t }}", {"a": "x'y", "b.c": "z", "t": "u"}) == (
        "'x''y-z' FROM u"
    )
    with pytest.raises(MissingVariableError, match="needs the variable a,"):
        substitute("{{ a }}", {})


def test_reading_fills_in_what_is_known_and_remembers_how_it_is_written() -> None:
    filled = fill_for_reading("'${A}' ${B:-'d'} {{ c }} '${D}' /* ${A} */", {"A": "x"})
    assert filled.text == "'x' ${B:-'d'} ${c} '${D}' /* ${A} */"
    assert filled.shown("x") == "${A}"
    block = fill_for_reading("WITH (${OPTIONS})", {"OPTIONS": "'password' = 'hush'"})
    assert (block.text, block.shown("hush")) == ("WITH ('password' = 'hush')", "****")


@pytest.mark.parametrize(
    ("name", "found"),
    [("a.${X}.b", "${X}"), ("$VAR", "$VAR"), ("a.%s", "%s"), ("{{ x | upper }}", "{{ x | upper }}"),
     ("t$ro", None), ("a.b", None)],
)  # fmt: skip
def test_placeholders_in_names(name: str, found: str | None) -> None:
    assert placeholder_in(name) == found

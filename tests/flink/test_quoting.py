"""A name or value is quoted so that it stays one token, or it is refused."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse_dagster.errors import UnsafeIdentifierError
from lakehouse_dagster.flink import (
    create_catalog,
    identifier,
    options_clause,
    qualified,
    string_literal,
    use_catalog,
)
from tests.flink.hostile import texts
from tests.flink.tokenizer import Token, tokens


def unprintable(text: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text)


@given(texts)
@example("a`b")
@example("`")
@example("x` AS SELECT 1; DROP TABLE t; --")
def test_a_name_is_one_token_with_its_own_value_or_refused(name: str) -> None:
    try:
        quoted = identifier(name)
    except UnsafeIdentifierError:
        assert unprintable(name) or not name.strip()
        return
    assert tokens(f"DROP TABLE {quoted} , x") == [
        *(Token("word", "DROP"), Token("word", "TABLE")),
        Token("name", name),
        *(Token("sign", ","), Token("word", "x")),
    ]


@given(texts)
@example("it's")
@example("'; DROP TABLE t; --")
@example("ends with a backslash \\")
def test_a_value_is_one_token_with_its_own_value_or_refused(value: str) -> None:
    try:
        quoted = string_literal(value)
    except UnsafeIdentifierError:
        assert unprintable(value)
        return
    assert tokens(f"SELECT {quoted} , x") == [
        Token("word", "SELECT"),
        Token("string", value),
        *(Token("sign", ","), Token("word", "x")),
    ]


@given(st.lists(texts, min_size=1, max_size=3))
def test_a_qualified_name_keeps_its_parts_apart(parts: list[str]) -> None:
    try:
        quoted = qualified(*parts)
    except UnsafeIdentifierError:
        return
    found = tokens(quoted)
    assert [t.value for t in found[::2]] == parts
    assert all(t == Token("sign", ".") for t in found[1::2])


@given(st.dictionaries(texts, texts, max_size=4))
def test_options_come_back_as_the_pairs_they_were(options: dict[str, str]) -> None:
    try:
        clause = options_clause(options)
    except UnsafeIdentifierError:
        return
    found = tokens(clause)
    assert (found[0].value, found[-1].value) == ("(", ")")
    strings = [t.value for t in found if t.kind == "string"]
    assert dict(zip(strings[::2], strings[1::2], strict=True)) == options
    assert {t.value for t in found[1:-1] if t.kind != "string"} <= {"=", ","}


def test_statements_read_as_flink_s_own() -> None:
    assert create_catalog("la`ke", {"type": "paimon", "warehouse": "s3://it's"}) == (
        "CREATE CATALOG `la``ke` WITH ('type'='paimon', 'warehouse'='s3://it''s')"
    )
    assert use_catalog("lake") == "USE CATALOG `lake`"
    assert qualified("lake", "dwd", "work.order") == "`lake`.`dwd`.`work.order`"
    assert options_clause({}) == "()"


@pytest.mark.parametrize(
    "name", ["", " ", "\t", "a\nb", "a\rb", "a\0b", "a\x1bb", "\u2028", "\ud800"]
)
def test_a_name_that_flink_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(UnsafeIdentifierError):
        identifier(name)


def test_a_refused_name_is_shown_escaped_and_with_the_place() -> None:
    with pytest.raises(UnsafeIdentifierError, match=r"'ab\\x00c' holds U\+0000 at position 3"):
        identifier("ab\0c")


def test_the_longest_name_is_counted_as_flink_counts() -> None:
    assert identifier("x" * 256) == "`" + "x" * 256 + "`"
    assert identifier("😀" * 128) == "`" + "😀" * 128 + "`"
    for too_long in ("x" * 257, "😀" * 129):
        with pytest.raises(UnsafeIdentifierError, match="256"):
            identifier(too_long)


def test_a_refused_value_is_not_shown_since_it_may_be_a_secret() -> None:
    with pytest.raises(UnsafeIdentifierError, match=r"'jdbc\.password'") as caught:
        options_clause({"jdbc.password": "hunter2\0"})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(UnsafeIdentifierError):
        qualified()
    with pytest.raises(UnsafeIdentifierError, match="blank"):
        options_clause({" ": "x"})

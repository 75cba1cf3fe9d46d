"""The dialect over all of Flink's grammar, without a Flink."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given, settings
from sqlglot import exp
from sqlglot.errors import ParseError

from tests.sql import generated, grammar

OPAQUE = ("ANALYZE", "DESC", "DESCRIBE", "SHOW", "STOP", "TRUNCATE")
READ = [
    *grammar.STATEMENTS,
    *grammar.ONLY_FROM_2_0,
    *grammar.ONLY_FROM_2_1,
    *grammar.READ_ALL_THE_SAME,
    *grammar.SIMPLIFIED,
]


def parsed(sql: str) -> exp.Expr:
    (tree,) = sqlglot.parse(sql, read="flink")
    assert tree is not None
    return tree


def assert_stable(sql: str) -> None:
    tree = parsed(sql)
    written = tree.sql("flink")
    assert parsed(written) == tree
    assert parsed(written).sql("flink") == written


@pytest.mark.parametrize("sql", READ)
def test_every_form_is_read_written_and_read_again(sql: str) -> None:
    assert_stable(sql)


@settings(max_examples=150, deadline=None)
@given(generated.STATEMENTS)
def test_made_up_statements_are_read_written_and_read_again(sql: str) -> None:
    assert_stable(sql)


@pytest.mark.parametrize("sql", READ)
def test_only_what_shows_or_stops_something_is_kept_as_text(sql: str) -> None:
    command = parsed(sql).find(exp.Command)
    assert command is None or sql.startswith(OPAQUE)


@pytest.mark.parametrize("sql", grammar.NOT_READ)
def test_what_flinks_planner_does_not_know_is_an_error(sql: str) -> None:
    with pytest.raises(ParseError):
        sqlglot.parse(sql, read="flink")


@pytest.mark.parametrize("sql", grammar.SIMPLIFIED)
def test_what_means_the_same_is_written_the_same(sql: str) -> None:
    assert parsed(sql).sql("flink") == grammar.SIMPLIFIED[sql]

"""Owners, tags and the like of tables: from comments and settings, never in the way of loading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster import TableSettings
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.table_settings import read_comment, settings_of


def test_annotations_are_taken_out_of_a_comment() -> None:
    read = read_comment(
        "Orders of all shops. @owner(team:data) @tag(domain=sales)\n@owner(ann@shop.com) @tag(pii)"
    )
    assert read.text == "Orders of all shops."
    assert read.settings == TableSettings(
        owners=("team:data", "ann@shop.com"), tags={"domain": "sales", "pii": ""}
    )
    assert read.problems == ()


def test_annotations_may_stand_in_the_middle_of_words_of_other_languages() -> None:
    read = read_comment("订单@owner(team:data)的状态")
    assert (read.text, read.settings.owners) == ("订单的状态", ("team:data",))


@pytest.mark.parametrize(
    "comment",
    [
        "mail ann@owner(x) about it",
        "the owner(s) of a shop",
        "@owner of the shop",
        "@owners(team:data)",
        "@Owner(team:data)",
        "see @@owner(team:data)",
        "price @ tag (x=y)",
        "@tag(\nx=y)",
        "a [owner: team:data]",
    ],
)
def test_an_ordinary_comment_stays_as_it_is(comment: str) -> None:
    read = read_comment(comment)
    assert (read.text, read.settings, read.problems) == (comment, TableSettings(), ())


@given(st.text())
def test_a_comment_of_any_kind_can_be_read(comment: str) -> None:
    read_comment(comment)
    read_comment(f"@owner({comment}) @tag({comment}={comment})")


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("a @owner(ann)", "@owner(ann): Invalid owner 'ann'"),
        ("a @owner(team:)", "'team:' names no team"),
        ("a @owner()", "Invalid owner ''"),
        ("a @tag(x y=z)", "invalid tag key"),
        ("a @tag(x=y z)", "Invalid tag value"),
        ("a @tag(=z)", "invalid tag key"),
    ],
)
def test_what_dagster_does_not_accept_in_a_comment_is_left_out_and_told(
    comment: str, said: str
) -> None:
    read = read_comment(f"{comment} @tag(good=1)")
    assert read.settings == TableSettings(tags={"good": "1"})
    assert read.text == "a"
    (problem,) = read.problems
    assert said in problem


def test_later_patterns_and_the_tables_own_name_win() -> None:
    settings = {
        "ods.orders": TableSettings(group="own"),
        "*": TableSettings(group="all", owners=("team:a",), tags={"a": "1", "b": "1"}),
        "ods.*": TableSettings(group="ods", tags={"b": "2"}),
        "kafka/*": TableSettings(group="topics"),
    }
    assert settings_of(settings, "ods.orders") == TableSettings(
        group="own", owners=("team:a",), tags={"a": "1", "b": "2"}
    )
    assert settings_of(settings, "ods.other").group == "ods"
    assert settings_of(settings, "dwd.other").group == "all"
    assert settings_of(settings, "kafka/orders") == TableSettings(group="topics")
    assert settings_of(settings, "mysql/shop/orders") == TableSettings()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"owners": ("ann",)}, "Invalid owner 'ann'"),
        ({"tags": {"a b": "c"}}, "invalid tag key"),
        ({"group": "a-b"}, "not a valid asset group name"),
        ({"key": ("a", "b c")}, "cannot have the part 'b c'"),
        ({"key": ()}, "empty"),
    ],
)
def test_settings_that_dagster_would_not_accept_are_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        TableSettings(**settings)

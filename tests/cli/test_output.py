"""Tables for people: however narrow the terminal is, nothing in them is cut."""

from __future__ import annotations

import click
import pytest

from lakehouse_dagster.cli.output import print_table

NAME = "ods.orders_of_a_shop_with_a_long_name"
WHY = "Old snapshots are kept for consumer report (needs snapshot 2)."
HEADERS = ("table", "snapshots", "tags", "")
ROWS = [(NAME, "1,234", "", WHY), ("ods.b", "7", "", "")]


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return click.unstyle(capsys.readouterr().out).splitlines()


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_what_another_program_reads_has_one_line_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(HEADERS, ROWS)
    head, long, short = printed(capsys)
    assert head.split() == ["table", "snapshots", "tags"]
    assert long.split() == [NAME, "1,234", *WHY.split()]
    assert long.index(WHY) > long.index("1,234") == short.index("7") == head.index("snapshots")


def test_where_there_is_no_room_the_text_stands_below_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 60)
    print_table(HEADERS, ROWS, show_empty=False)
    head, long, why, short = printed(capsys)
    assert head.split() == ["table", "snapshots"]  # nothing has tags
    assert (long.split(), why, short.split()) == ([NAME, "1,234"], f"    {WHY}", ["ods.b", "7"])


def test_a_text_is_broken_beside_its_row_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(monkeypatch, 100)
    print_table(HEADERS, ROWS, show_empty=False)
    _, long, rest, short = printed(capsys)
    beside = long.index("Old")
    assert long[beside:].split() + rest.split() == WHY.split()
    assert (rest.index(rest.split()[0]), short.split()) == (beside, ["ods.b", "7"])


@pytest.mark.parametrize("columns", [10, 40, 80])
def test_names_are_whole_at_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    terminal(monkeypatch, columns)
    print_table(HEADERS, ROWS)
    assert any(line.startswith(f"{NAME}  1,234") for line in printed(capsys))


def test_what_steers_a_terminal_is_shown_and_not_obeyed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("a",), [("x\n\x1b[31my",)])
    assert capsys.readouterr().out == "a\nx\\n\\x1b[31my\n"

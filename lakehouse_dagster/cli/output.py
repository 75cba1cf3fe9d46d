"""What every command shares: errors on stderr, JSON and tables on stdout."""

from __future__ import annotations

import base64
import functools
import json
import logging
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.sql.model import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

F = TypeVar("F", bound=Callable[..., Any])

_NEVER_WRAP = 10_000
_GAP = 2
_ROOM_FOR_TEXT = 40
"""With less, a text beside a table's other columns is hard to read."""


INTERRUPTED = 130
"""What shells give for a command that Ctrl-C ended."""


@contextmanager
def answers_ctrl_c(text: str) -> Iterator[None]:
    """Say at once, at the first Ctrl-C, what is done now; further ones do not break that off.

    The block sees a ``KeyboardInterrupt``, as without this.
    """
    asked = False

    def answer(*_: object) -> None:
        nonlocal asked
        if asked:
            click.echo("Still at it.", err=True)
            return
        asked = True
        click.echo(text, err=True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, answer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def reports_errors(function: F) -> F:
    """Turn a ``LakehouseError`` into its message on stderr and exit code 1."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LakehouseError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(1)

    return wrapped  # type: ignore[return-value]


def names_or_all(names: Sequence[str], every: bool, what: str) -> None:
    """Refuse a command that is given neither names nor ``--all``, or both."""
    if every == bool(names):
        both = f"Name the {what} or say --all, not both."
        raise click.UsageError(both if every else f"Name the {what}, or say --all.")


def print_json(value: Any) -> None:
    """One JSON document on stdout: times as ISO 8601, bytes as base64, decimals as text."""
    click.echo(json.dumps(_finite(value), default=_as_text, allow_nan=False))


def stdout_console() -> Console:
    """Where people look; what is read by another program is not broken into lines."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_NEVER_WRAP)


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str | Text]], *, show_empty: bool = True
) -> None:
    """One line a row; nothing in it is ever cut, however narrow the terminal is.

    Args:
        headers: of the columns. One without a header, if it is the last, is free text: it stands
            beside the others where there is room for it, else below its row.
        rows: their cells, one for each header.
        show_empty: whether there is a column for what no row has anything of.
    """
    from rich.text import Text

    console = stdout_console()
    table = [[_one_line(cell) for cell in row] for row in rows]
    texts = [row.pop() for row in table] if headers[-1] == "" else []
    named = range(len(headers) - bool(texts))
    full = show_empty or not table
    shown = [n for n in named if full or any(row[n].plain for row in table)]
    lines = [[_one_line(Text(headers[n], style="bold")) for n in shown]]
    lines += [[row[n] for n in shown] for row in table]
    widths = [max(line[n].cell_len for line in lines) for n in range(len(shown))]
    room = console.width - sum(widths) - _GAP * len(widths)
    beside = room >= min(_ROOM_FOR_TEXT, max((text.cell_len for text in texts), default=0))
    for cells, text in zip(lines, [Text(), *(texts or [Text()] * len(table))], strict=True):
        line = Text()
        for cell, width in zip(cells, widths, strict=True):
            line.append_text(cell).append(" " * (width - cell.cell_len + _GAP))
        told = list(text.wrap(console, room)) if beside else []
        _print(console, line.append_text(told[0]) if told else line)
        for rest in told[1:]:
            _print(console, Text(" " * (console.width - room)).append_text(rest))
        if text and not beside:
            _print(console, Text("    ").append_text(text))


def _one_line(cell: str | Text) -> Text:
    """Names come from outside, and may hold anything."""
    from rich.text import Text

    text = cell if isinstance(cell, Text) else Text(cell)
    return Text(printable(text.plain), style=text.style)


def _print(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, soft_wrap=True)


class _OnStderr(logging.Handler):
    """Shows what is being done; how it ended is said once, at the end."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            click.echo(record.getMessage(), err=True)


def show_progress() -> None:
    """Tell on stderr what the package says while it works."""
    logger = logging.getLogger("lakehouse_dagster")
    logger.setLevel(logging.INFO)
    logger.handlers = [_OnStderr()]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value.isoformat() if isinstance(value, date | time) else value)

"""What every command shares: errors on stderr, JSON on stdout."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from lakehouse_dagster.errors import LakehouseError

F = TypeVar("F", bound=Callable[..., Any])


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


def print_json(value: Any) -> None:
    """One JSON document on stdout; times as ISO 8601."""
    click.echo(json.dumps(value, default=str))

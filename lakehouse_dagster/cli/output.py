"""What every command shares: errors on stderr, JSON on stdout."""

from __future__ import annotations

import base64
import functools
import json
import logging
import math
import sys
from collections.abc import Callable
from datetime import date, time
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
    """One JSON document on stdout: times as ISO 8601, bytes as base64, decimals as text."""
    click.echo(json.dumps(_finite(value), default=_as_text, allow_nan=False))


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

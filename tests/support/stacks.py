"""Flink stacks of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse_dagster.local.stack import LocalStack


@contextmanager
def up(stack: LocalStack) -> Iterator[LocalStack]:
    """The stack, started; stopped with the block, also if not all of it came up."""
    try:
        stack.up()
        yield stack
    finally:
        stack.down()

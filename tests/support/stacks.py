"""Flink stacks of a test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse_dagster.local.stack import LocalStack


@contextmanager
def up(stack: LocalStack) -> Iterator[LocalStack]:
    """The stack, started; stopped with the block, also if not all of it came up.

    Also if this process is told to end (SIGTERM): that would end it without a word otherwise, and
    leave the stack behind. To be entered in the main thread.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
        signal.signal(signal.SIGTERM, before)

"""Flink stacks of a test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse_dagster.flink import FlinkCluster
from lakehouse_dagster.local.stack import LocalStack, StackStatus


@contextmanager
def up(stack: LocalStack) -> Iterator[LocalStack]:
    """The stack, started and warm; stopped with the block, also if not all of it came up.

    Also if this process is told to end (SIGTERM): that would end it without a word otherwise, and
    leave the stack behind. To be entered in the main thread.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = stack.up()
        _warm(status)
        yield stack
    finally:
        stack.down()
        signal.signal(signal.SIGTERM, before)


def _warm(status: StackStatus) -> None:
    """Let the gateway plan once: the first time may take longer than the tests' bounds allow."""
    with FlinkCluster(status.rest_url, status.sql_gateway_url).sql_gateway() as gateway:
        session = gateway.open_session("warm")
        session.execute("EXPLAIN SELECT COUNT(*) FROM (VALUES (1)) AS t (a)", timeout_seconds=180)
        session.delete()

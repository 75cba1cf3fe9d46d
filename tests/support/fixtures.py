"""Fixtures of the tests that act on a real cluster; a test module imports those that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningFlink
from tests.support.faults import FaultyProxy
from tests.support.laboratory import Laboratory


@pytest.fixture
def lab(flink_stack: RunningFlink, tmp_path: Path) -> Iterator[Laboratory]:
    """A lakehouse of its own on the shared cluster; what it started is cancelled at the end."""
    laboratory = Laboratory(tmp_path, flink_stack.rest_url, flink_stack.sql_gateway_url)
    try:
        yield laboratory
    finally:
        laboratory.clean_up()


@pytest.fixture
def gateway_proxy(flink_stack: RunningFlink) -> Iterator[FaultyProxy]:
    """A proxy in front of the shared SQL Gateway that does what it is told."""
    with FaultyProxy(flink_stack.sql_gateway_url) as proxy:
        yield proxy


@pytest.fixture
def rest_proxy(flink_stack: RunningFlink) -> Iterator[FaultyProxy]:
    """A proxy in front of the shared JobManager."""
    with FaultyProxy(flink_stack.rest_url) as proxy:
        yield proxy

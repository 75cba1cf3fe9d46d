"""Fixtures of the tests that act on a real cluster; a test module imports those that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import RunningFlink
from tests.support.faults import FaultyProxy
from tests.support.laboratory import Laboratory


class HasAddresses(Protocol):
    """A cluster that runs: the shared one, or a stack of a test's own."""

    @property
    def rest_url(self) -> str: ...

    @property
    def sql_gateway_url(self) -> str: ...


@contextmanager
def laboratory_on(cluster: HasAddresses, folder: Path) -> Iterator[Laboratory]:
    """A laboratory on that cluster; what it started is cancelled at the end."""
    laboratory = Laboratory(folder, cluster.rest_url, cluster.sql_gateway_url)
    try:
        yield laboratory
    finally:
        laboratory.clean_up()


@pytest.fixture
def lab(flink_stack: RunningFlink, tmp_path: Path) -> Iterator[Laboratory]:
    """A lakehouse of its own on the shared cluster; what it started is cancelled at the end."""
    with laboratory_on(flink_stack, tmp_path) as laboratory:
        yield laboratory


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

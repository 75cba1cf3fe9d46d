"""Fixtures shared by all tests: one Flink cluster an engine, own folders for each test."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from tests.support import engines

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that are marked ``every_engine`` run on all engines, others on the default one."""
    engines.parametrize(metafunc)


@pytest.hookimpl(trylast=True)  # after pytest's own grouping
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One engine after the other."""
    engines.select_and_order(config, items)


MAY_NOT_MOUNT = "a small file system cannot be mounted here"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failure: everything that a test needs is installed there.

    Only what no installation gives may be skipped: the right to mount a file system.
    """
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        if MAY_NOT_MOUNT not in str(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI: {reason}"
    return report


@dataclass(frozen=True)
class RunningFlink:
    """Where the shared cluster of an engine is; ``engine`` is a name in ``local.engines``."""

    rest_url: str
    sql_gateway_url: str
    folder: Path
    engine: str


@pytest.fixture(scope="session")
def flink_engine(request: pytest.FixtureRequest) -> str:
    """The engine that a test runs on; see ``tests/support/engines.py``."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def flink_stack(
    flink_engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFlink]:
    """A real JobManager, TaskManager and SQL Gateway, or the one that the environment names."""
    rest_url = os.environ.get("LAKEHOUSE_TEST_REST_URL")
    gateway_url = os.environ.get("LAKEHOUSE_TEST_GATEWAY_URL")
    folder = tmp_path_factory.mktemp("flink")
    if rest_url and gateway_url:
        yield RunningFlink(rest_url, gateway_url, folder, flink_engine)
        return
    from lakehouse_dagster.local.stack import LocalStack
    from tests.support.stacks import up

    # Flink caches what its REST API says for 3 s by default; tests ask all the time.
    quick = {
        "web.refresh-interval": "100ms",
        "rest.cache.checkpoint-statistics.timeout": "100ms",
    }
    stack = LocalStack(
        folder,
        flink_engine,
        slots=16,
        task_manager_memory_mib=1400,
        checkpoints_retained=10,  # half a second apart, some must outlive what a test does
        extra_config=quick,
    )
    with up(stack):
        status = stack.status()
        yield RunningFlink(status.rest_url, status.sql_gateway_url, folder, flink_engine)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """An empty warehouse folder that no other test sees."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder

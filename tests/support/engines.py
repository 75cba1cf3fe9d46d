"""On which engines a test runs: the default one, or all of them when it is marked so.

Engines come one after the other, and a cluster goes down before that of the next engine comes up.
``LAKEHOUSE_TEST_ENGINE`` keeps to one engine; with ``LAKEHOUSE_TEST_REST_URL`` and
``LAKEHOUSE_TEST_GATEWAY_URL`` it says which engine the cluster at those addresses is.
"""

from __future__ import annotations

import os

import pytest

from lakehouse_dagster.local.engines import DEFAULT_ENGINE, ENGINES, engine_named

MARKER = "every_engine"
FIXTURE = "flink_engine"
ENGINE_VARIABLE = "LAKEHOUSE_TEST_ENGINE"
IN_ORDER = tuple(sorted(ENGINES, key=lambda name: (name != DEFAULT_ENGINE, name)))
"""The default engine first."""


def wanted() -> tuple[str, ...]:
    """The engines that this session runs tests on."""
    only = os.environ.get(ENGINE_VARIABLE)
    if only:
        return (engine_named(only).name,)
    # A cluster that is named without its engine is one of the default engine.
    return (DEFAULT_ENGINE,) if os.environ.get("LAKEHOUSE_TEST_REST_URL") else IN_ORDER


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give every test that uses an engine one run for each engine that it is meant for."""
    if FIXTURE not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker(MARKER) is not None
    engines = IN_ORDER if marked else (DEFAULT_ENGINE,)
    metafunc.parametrize(FIXTURE, engines, indirect=True, scope="session")


def engine_of(item: pytest.Item) -> str | None:
    """The engine that a collected test runs on; None for a test that needs no engine."""
    call = getattr(item, "callspec", None)
    return call.params.get(FIXTURE) if call is not None else None


def select_and_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the engines that are not wanted, and run the engines one after the other."""
    engines = wanted()
    left_out = [item for item in items if engine_of(item) not in (None, *engines)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    kept = [item for item in items if engine_of(item) in (None, *engines)]
    items[:] = sorted(kept, key=lambda item: _place(engine_of(item)))


def _place(engine: str | None) -> int:
    return 0 if engine is None else IN_ORDER.index(engine)

"""The fixed part of the soak test: a minute of work, with one kill of each kind that matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_dagster.local.services import Service
from tests.soak.lake import DEDICATED, Place
from tests.soak.soak import MAINTAINER, Soak, soak_stack

pytestmark = pytest.mark.chaos


def test_maintenance_beside_three_writers_loses_nothing_and_leaves_nothing_behind(
    flink_engine: str, tmp_path: Path
) -> None:
    stack = soak_stack(str(tmp_path / "stack"), flink_engine)
    status = stack.up()
    place = Place(str(tmp_path / "lake"), status.rest_url, status.sql_gateway_url)
    place.path.mkdir()
    kills = (MAINTAINER, Service.TASK_MANAGER)
    try:
        outcome = Soak(stack, place, 0.8, kill_every_seconds=(10.0, 12.0), kills=kills).run()
    finally:
        stack.down()
    assert not outcome.violations, outcome
    assert outcome.figures["restarts without a kill"].get(DEDICATED) is None  # type: ignore[attr-defined]
    done = outcome.figures["actions"]
    assert any(what.startswith("snapshot expiry done") for what in done)  # type: ignore[attr-defined]

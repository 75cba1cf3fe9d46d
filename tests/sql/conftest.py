"""Tests of what the reader says run it in their own process; others start the process it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakehouse_dagster.sql import tasks
from lakehouse_dagster.sql.worker_pool import Question, WorkerPool


@pytest.fixture
def in_a_process_of_its_own() -> None:
    """The test reads as users do."""


@pytest.fixture(autouse=True)
def _reads_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare hundreds of tests a process each; ``in_a_process_of_its_own`` keeps it."""
    if "in_a_process_of_its_own" in request.fixturenames:
        return

    def ask_all(_: WorkerPool, questions: Sequence[Question], setting: Any) -> list[Any]:
        here = tasks.Tasks(setting)
        return [here.run(question.task, question.unit) for question in questions]

    monkeypatch.setattr(WorkerPool, "ask_all", ask_all)

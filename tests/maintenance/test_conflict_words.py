"""Which failures of compactions are conflicts, by what Flink says of their innermost cause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse_dagster.errors import MaintenanceConflictError
from lakehouse_dagster.maintenance.flink_calls import FlinkWork, _failure

WORK = FlinkWork("CALL sys.compact(`table` => 'a.b')", "ab" * 16, "maintenance: compact of a.b")


def failed(cause: str) -> Exception:
    told: Any = SimpleNamespace(exceptions=lambda _: [SimpleNamespace(root_cause=cause)])
    return _failure(WORK, told)


@pytest.mark.parametrize(
    "cause",
    [
        "RuntimeException: File deletion conflicts detected! Give up committing.",
        "IllegalStateException: Trying to delete file data-1-0.parquet for table b which is not "
        "previously added.",
    ],
)
def test_a_commit_that_lost_against_another_is_a_conflict(cause: str) -> None:
    error = failed(cause)
    assert isinstance(error, MaintenanceConflictError)
    assert "conflict" in str(error)
    assert cause in str(error)


def test_any_other_failure_is_none() -> None:
    assert not isinstance(failed("OutOfMemoryError: Java heap space"), MaintenanceConflictError)

"""What is made of a failure of a Flink job, by what Flink says of its innermost cause."""

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


def test_too_few_network_buffers_come_with_the_settings_that_help() -> None:
    said = str(failed("IOException: Insufficient number of network buffers: required 512, but …"))
    assert "taskmanager.memory.network.max" in said
    assert "taskmanager.network.sort-shuffle.min-buffers: 64" in said


def test_why_a_file_is_gone_is_not_guessed() -> None:
    said = str(
        failed(
            "FileNotFoundException: File 'file:/w/b.db/t/bucket-0/data-1-0.parquet' not found, "
            "Possible causes: 1.snapshot expires too fast, you can configure "
            "'snapshot.time-retained' option with a larger value. 2.consumption is too slow, …"
        )
    )
    assert said.endswith(
        "failed: FileNotFoundException: File 'file:/w/b.db/t/bucket-0/data-1-0.parquet' not found."
    )

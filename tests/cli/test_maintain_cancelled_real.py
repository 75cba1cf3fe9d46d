"""Ctrl-C in ``lakehouse maintain`` while a Flink job is at work: what is said, and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakehouse_dagster.flink import FlinkJobStatus
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord
from tests.maintenance.cases import T
from tests.maintenance.project import ROOT, ROWS, write_project
from tests.maintenance.tables import Tables
from tests.support.faults import HeldFile, is_cancelled_for_good
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink]


@pytest.fixture
def tables(lab: Laboratory) -> Tables:
    """A project whose table ``m.t`` has six small files, which are too many."""
    policy = "MaintenancePolicy(TablePolicy(compact=CompactSpec(small_files=2)))"
    return write_project(lab, "shop", policy)


@contextmanager
def maintaining(tables: Tables, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``lakehouse maintain`` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakehouse_dagster.cli", "maintain", "-m", "shop", T, *options],
        cwd=tables.lab.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def cancelled(
    tables: Tables, process: subprocess.Popen[str], file: HeldFile
) -> tuple[ActionRecord, str]:
    """Ctrl-C while the Flink job stands still; the first line that is said afterwards."""
    file.wait_until_wanted()
    (record,) = tables.keeper.actions.running()
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = next(line for line in process.stderr if line.startswith("Cancelling"))
    rest_url, job_id = tables.lab.rest_url, str(record.flink_job_id)
    until(lambda: is_cancelled_for_good(rest_url, job_id), "its cancelling")
    file.let_go()
    return record, said


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_is_answered_at_once_and_what_was_cancelled_is_told(
    tables: Tables, as_json: bool
) -> None:
    with HeldFile(next(tables.folder(T).glob("bucket-0/*.parquet"))) as file:
        file.take()
        with maintaining(tables, *(["--json"] if as_json else [])) as process:
            record, said = cancelled(tables, process, file)
            out, err = process.communicate(timeout=60)
    assert said == "Cancelling what runs, with its Flink jobs: this takes seconds.\n"
    assert process.returncode == 130
    if as_json:
        (done,) = json.loads(out)["done"]
        assert (done["table"], done["kind"], done["state"]) == (T, "compact", "cancelled")
    else:
        assert out == "m.t: compact: cancelled: nothing\n"
    assert err.splitlines()[-1] == (
        "Cancelled: the sensor leaves m.t alone for an hour; `lakehouse maintain` does not wait."
    )
    with tables.lab.cluster.job_manager() as job_manager:
        job = job_manager.job(str(record.flink_job_id))
    assert job is not None
    assert job.status is FlinkJobStatus.CANCELED
    assert (tables.facts(T).files, tables.rows(T)) == (6, ROWS)
    with maintaining(tables) as process:
        out, _ = process.communicate(timeout=120)
    assert (process.returncode, out.splitlines()[0][:19]) == (0, "m.t: compact: done:")
    assert (tables.facts(T).files, tables.rows(T)) == (1, ROWS)

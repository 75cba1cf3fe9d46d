"""What each job of ours would read again is known, or known to be unknown."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lakehouse_dagster.maintenance.read_again import read_again
from lakehouse_dagster.sql import transport
from lakehouse_dagster.streaming.runtime import Runtime, utc_now
from lakehouse_dagster.system_db import DesiredState, IncarnationState
from tests.support.laboratory import Laboratory

METADATA = Path(__file__).parents[1] / "flink" / "metadata"
SCRIPT = """\
SET 'pipeline.name' = 'reader';
SET 'execution.checkpointing.dir' = 'file://{folder}/checkpoints';
CREATE TABLE m.written (id INT, part INT) WITH ('bucket' = '-1');
CREATE TABLE m.looked_up (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE m.read (id INT) WITH ('bucket' = '-1');
INSERT INTO m.read SELECT id FROM m.written;
"""


NAME = "reader"


class Life:
    """A job of a lakehouse whose cluster is not there, and its only incarnation."""

    def __init__(self, folder: Path) -> None:
        lab = Laboratory(folder, "http://127.0.0.1:9", "http://127.0.0.1:9")
        script = folder / "reader.sql"
        script.write_text(SCRIPT.format(folder=folder))
        self.folder = folder
        self.flink_job_id = uuid4().hex
        self.runtime: Runtime = lab.runtime(script)

    def begin(self, desired: DesiredState = DesiredState.RUNNING, fingerprint: str = "") -> None:
        memory = self.runtime.memory
        memory.ensure(NAME)
        memory.set_desired(NAME, desired)
        memory.record(
            NAME,
            number=1,
            flink_job_id=self.flink_job_id,
            fingerprint=fingerprint or self.runtime.job(NAME).fingerprint,
            restored_from=None,
            fencing=1,
            session_handle=None,
        )

    def checkpoint(self, number: int, recorded: str) -> str:
        """Leave a checkpoint behind as Flink did; its path."""
        path = self.folder / "checkpoints" / self.flink_job_id / f"chk-{number}"
        path.mkdir(parents=True)
        shutil.copy(METADATA / recorded, path / "_metadata")
        return f"file:{path}"

    def savepoint(self, recorded: str) -> str:
        path = self.folder / "savepoints" / "savepoint-1"
        path.mkdir(parents=True)
        shutil.copy(METADATA / recorded, path / "_metadata")
        return f"file:{path}"

    def change(self, **values: Any) -> None:
        self.runtime.memory.update(NAME, 1, **values)

    def over(self, reason: str, **values: Any) -> None:
        self.change(state=IncarnationState.ENDED, ended_at=utc_now(), end_reason=reason, **values)

    @property
    def needs(self) -> dict[str, int | None] | None:
        found = read_again(self.runtime)
        assert len(found) <= 1
        return dict(found[0].tables) if found else None


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


PENDING = "flink-2.0-pending-savepoint"


def test_a_job_that_never_ran_needs_nothing(life: Life) -> None:
    assert life.needs is None
    life.runtime.memory.ensure(NAME)
    assert life.needs is None


def test_a_stopped_job_needs_what_its_savepoint_has_not_read(life: Life) -> None:
    life.begin(DesiredState.SUSPENDED)
    life.over("CANCELED", savepoint_path=life.savepoint(PENDING))
    assert life.needs == {"m.written": 2}


def test_a_running_job_needs_what_its_checkpoint_has_not_read(life: Life) -> None:
    life.begin()
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    assert life.needs == {"m.written": 2}


def test_a_checkpoint_that_flink_has_replaced_is_looked_for_beside_it(life: Life) -> None:
    life.begin()
    newer = life.checkpoint(8, PENDING)
    life.change(checkpoint_path=newer.replace("chk-8", "chk-7"), checkpoint_id=7)
    assert life.needs == {"m.written": 2}


def test_of_several_checkpoints_the_oldest_need_counts_and_an_unreadable_one_is_unknown(
    life: Life,
) -> None:
    life.begin()
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    damaged = Path(life.checkpoint(8, PENDING).removeprefix("file:")) / "_metadata"
    damaged.write_bytes(damaged.read_bytes()[:900])
    assert life.needs == {"m.written": None}


def test_a_running_job_of_which_nothing_is_known_may_need_everything(life: Life) -> None:
    life.begin()
    assert life.needs == {"m.written": None}


def test_a_job_cancelled_for_good_or_at_the_end_of_its_sources_needs_nothing(life: Life) -> None:
    life.begin(DesiredState.CANCELED)
    life.over("CANCELED", checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    assert life.needs is None
    life.runtime.memory.set_desired(NAME, DesiredState.RUNNING)
    assert life.needs == {"m.written": 2}
    life.change(end_reason="FINISHED")
    assert life.needs is None


def test_a_job_whose_script_is_not_known_may_read_any_table(life: Life) -> None:
    life.begin(fingerprint="of a script that holds a secret")
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    (found,) = read_again(life.runtime)
    assert (dict(found.tables), found.may_read_others) == ({}, True)
    assert found.writes == {"m.read"}  # as is declared


def test_a_writer_is_known_by_its_tables_its_user_and_its_oldest_restore_point(life: Life) -> None:
    life.begin()
    (unknown,) = read_again(life.runtime)
    assert (unknown.writes, unknown.commit_user) == ({"m.read"}, "reader_")
    assert unknown.oldest is None
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    (found,) = read_again(life.runtime)
    assert (found.writes, found.commit_user) == ({"m.read"}, "reader_")
    assert found.oldest is not None
    assert found.oldest.checkpoint_id == found.oldest.metadata.checkpoint_id
    assert utc_now() - found.oldest.completed_at < timedelta(minutes=1)


def test_an_edited_script_does_not_hide_what_the_running_one_reads(life: Life) -> None:
    ran = life.runtime.job(NAME)
    definition = json.dumps(transport.to_data(ran))
    life.runtime.memory.ensure(NAME)
    life.runtime.memory.save_version(NAME, ran.fingerprint, definition=definition, plan=None)
    life.begin()
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    edited = replace(ran, definition=replace(ran.definition, reads=(), settings={"a": "b"}))
    runtime = replace(life.runtime, jobs={NAME: edited})
    assert [dict(found.tables) for found in read_again(runtime)] == [{"m.written": 2}]


def test_a_source_of_a_table_that_no_script_names_may_be_of_any(life: Life) -> None:
    ran = life.runtime.job(NAME)
    blind = replace(ran, definition=replace(ran.definition, reads=(), dependencies_known=False))
    life.runtime = replace(life.runtime, jobs={NAME: blind})
    life.begin()
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    (found,) = read_again(life.runtime)
    assert (dict(found.tables), found.may_read_others) == ({}, True)


def test_tables_that_are_looked_up_are_not_held(life: Life) -> None:
    ran = life.runtime.job(NAME)
    (written,) = ran.definition.reads
    both = (written, replace(written, table="looked_up"))
    joins = replace(ran, definition=replace(ran.definition, reads=both))
    life.runtime = replace(life.runtime, jobs={NAME: joins})
    life.begin()
    life.change(checkpoint_path=life.checkpoint(7, PENDING), checkpoint_id=7)
    assert life.needs == {"m.written": 2}

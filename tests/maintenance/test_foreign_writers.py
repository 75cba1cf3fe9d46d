"""Streaming jobs that are not ours: told by their commits, for a day after the newest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakehouse_dagster.errors import NoRestorePointError
from lakehouse_dagster.flink import known_checkpoint_metadata
from lakehouse_dagster.maintenance.actions import ActionKind, Decision, Situation
from lakehouse_dagster.maintenance.decide import decide, matters_who_compacts
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import compact_now
from lakehouse_dagster.maintenance.needs import Readers
from lakehouse_dagster.maintenance.spec import ExpireSpec, MaintenancePolicy, TablePolicy
from lakehouse_dagster.maintenance.strangers import foreign_compactors
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.commits import not_older_than_its_commits
from lakehouse_dagster.streaming.foreign_commits import (
    ForeignWriter,
    foreign_writers,
    marks_of_ours,
)
from lakehouse_dagster.streaming.restore import RestoreChoice
from lakehouse_dagster.streaming.runtime import Clock, utc_now
from tests.maintenance.facts import NOW, bucket, table
from tests.maintenance.test_read_again import NAME, PENDING, Life
from tests.paimon.writing import Writer

DEFAULT = TablePolicy()
TABLE = "m.read"
MARKED = {"deletion-vectors.enabled": "true"}
WRITE_ONLY = {**MARKED, "write-only": "true"}
BY_BATCH = 2**63 - 1


def snapshot(number: int, user: str, identifier: int = 7, kind: str = "APPEND") -> Snapshot:
    at = NOW - timedelta(minutes=100 - number)
    return Snapshot(number, 0, user, identifier, kind, at, None, 0, None)


def newest_first(*snapshots: Snapshot) -> Iterable[Snapshot]:
    return sorted(snapshots, key=lambda one: -one.id)


def test_who_commits_with_the_numbers_of_checkpoints_and_no_mark_of_ours_is_a_foreign_writer() -> (
    None
):
    found = foreign_writers(
        newest_first(
            snapshot(1, "theirs", 3),
            snapshot(2, "theirs", 3, "COMPACT"),
            snapshot(3, "by hand", BY_BATCH),
            snapshot(4, "orders_1f", 12),
            snapshot(5, "compacting", 9, "COMPACT"),
            snapshot(6, "writing", 1),
        ),
        ["orders_", "events_"],
    )
    assert found == (
        ForeignWriter("writing", snapshot(6, "writing", 1), moves_rows=True),
        ForeignWriter("compacting", snapshot(5, "compacting", 9, "COMPACT"), compacts=True),
        ForeignWriter("theirs", snapshot(2, "theirs", 3, "COMPACT"), True, True),
    )
    assert foreign_writers([snapshot(1, "orders_1f")], []) != ()


# decisions

THEIRS = ForeignWriter("theirs", snapshot(98, "theirs"), moves_rows=True, compacts=True)
IN_WORDS = "commit user theirs, which last committed 2026-11-30 03:28:00 UTC"


def decided(facts: TableFacts, *, foreign: tuple[ForeignWriter, ...] = ()) -> Decision:
    return decide(facts, DEFAULT, Situation(foreign_compactors=foreign), NOW)


def test_the_reason_why_a_table_is_left_to_its_writers_names_the_foreign_one() -> None:
    facts = table(bucket(deleted_records=200), options=MARKED)
    assert decided(facts).held_back == (
        "full compaction is not done beside writers that compact the table themselves: rows that "
        "they mark as deleted meanwhile (deletion vectors) would come back. Give it a compaction "
        "job of its own (compaction: dedicated).",
    )
    told = decided(facts, foreign=(THEIRS,))
    assert told.actions == ()
    assert told.held_back == (
        "full compaction is not done beside writers that compact the table themselves, such as a "
        f"foreign one ({IN_WORDS}): rows that they mark as deleted meanwhile (deletion vectors) "
        "would come back. Give it a compaction job of its own (compaction: dedicated).",
    )


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (bucket(deleted_records=200), ActionKind.COMPACT_FULL),
        (bucket(files=31, level0_files=30), ActionKind.COMPACT),
    ],
)
def test_a_write_only_table_that_a_foreign_writer_compacts_is_not_compacted(
    state: Any, kind: ActionKind
) -> None:
    facts = table(state, options=WRITE_ONLY)
    assert [action.kind for action in decided(facts).actions] == [kind]
    told = decided(facts, foreign=(THEIRS,))
    assert told.actions == ()
    assert told.held_back == (
        f"{kind.value} is not done beside foreign writers that compact the table though it is "
        f"write-only ({IN_WORDS}): rows that they mark as deleted meanwhile (deletion vectors) "
        "would come back. Stop or restart them: they began before it was.",
    )


def test_who_else_compacts_is_asked_only_where_it_matters() -> None:
    def matters(facts: TableFacts, policy: TablePolicy = DEFAULT, **more: Any) -> bool:
        return matters_who_compacts(facts, policy, Situation(**more), NOW)

    due = table(bucket(deleted_records=200), options=MARKED)
    backlog = table(bucket(files=31, level0_files=30), options=WRITE_ONLY)
    assert matters(due)
    assert matters(backlog)
    # Not marked, corrupt, in shape, or not for us to compact.
    assert not matters(replace(due, options={}))
    assert not matters(replace(due, problem="a file is gone"))
    assert not matters(table(bucket(), options=MARKED))
    assert not matters(replace(backlog, options=MARKED))
    assert not matters(due, TablePolicy(compaction="off"))
    assert not matters(due, TablePolicy(compact=None))
    assert not matters(due, compacts_by_itself=True)
    assert not matters(due, compaction_job="compact-ods.orders")


# a table that is there


@dataclass
class Table:
    """The table that the job of a ``Life`` writes, made and written by pypaimon."""

    life: Life
    writer: Writer

    def stream(self, user: str, identifier: int) -> int:
        """Commit a row as a streaming job does; the snapshot."""
        builder = self.writer.catalog.get_table(TABLE).new_stream_write_builder()
        builder.commit_user = user
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.Table.from_pylist([{"id": 1}], schema=self.writer.columns))
        commit.commit(write.prepare_commit(identifier), identifier)
        write.close()
        commit.close()
        return self.newest

    def batch(self) -> int:
        self.writer.append([{"id": 1}])
        return self.newest

    @property
    def newest(self) -> int:
        return self.life.runtime.catalog.open().table(TABLE).latest_snapshot_id() or 0

    @property
    def keeper(self) -> Keeper:
        return Keeper(self.life.runtime)

    def compactors(self) -> list[str]:
        found = foreign_compactors(self.life.runtime, self.keeper.facts(TABLE))
        return [writer.commit_user for writer in found]

    def holders(self, keep_for: str = "1h") -> list[tuple[str, str, int | None]]:
        policy = TablePolicy(expire=ExpireSpec(keep_at_least=1, keep_for=keep_for))
        found = Readers(self.life.runtime).holders(self.keeper.facts(TABLE), policy)
        return [(h.kind, h.name, h.snapshot_id) for h in found if h.kind != "streaming job"]

    def later(self, by: timedelta) -> None:
        clock = Clock(now=lambda: utc_now() + by)
        self.life.runtime = replace(self.life.runtime, clock=clock)


def made(folder: Path, **options: str) -> Table:
    life = Life(folder)
    columns = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    given = {"bucket": "1", **options}
    writer = Writer(folder / "warehouse", TABLE, columns, primary_keys=("id",), options=given)
    return Table(life, writer)


def test_a_foreign_writer_counts_for_a_day_after_its_newest_commit(tmp_path: Path) -> None:
    marked = made(tmp_path, **MARKED)
    assert marks_of_ours(marked.life.runtime) == (f"{NAME}_",)
    marked.stream(f"{NAME}_0c", 4)
    marked.batch()
    assert marked.compactors() == []
    marked.stream("theirs", 4)
    marked.stream("also-theirs", 1)
    marked.stream(f"{NAME}_0c", 5)
    assert marked.compactors() == ["also-theirs", "theirs"]
    marked.later(timedelta(hours=23))
    assert marked.compactors() == ["also-theirs", "theirs"]
    marked.later(timedelta(hours=25))
    assert marked.compactors() == []


def test_writers_of_a_write_only_table_do_not_compact_it(tmp_path: Path) -> None:
    marked = made(tmp_path, **WRITE_ONLY)
    marked.stream("theirs", 4)
    assert marked.compactors() == []


def test_by_hand_it_is_refused_with_who_it_is_and_when_it_counts_as_gone(tmp_path: Path) -> None:
    marked = made(tmp_path, **MARKED)
    marked.stream("theirs", 4)
    newest = marked.life.runtime.catalog.open().table(TABLE).latest_snapshot()
    assert newest is not None
    at = newest.committed_at
    outcome = compact_now(marked.keeper, MaintenancePolicy(), [TABLE], holder="a test")
    assert outcome.done == ()
    (failure,) = outcome.failures
    assert failure.error.message == (
        f"{TABLE} is compacted by commit user theirs, which last committed "
        f"{at:%Y-%m-%d %H:%M:%S} UTC: rows that are marked as deleted during another compaction "
        "(deletion vectors) would come back."
    )
    assert failure.error.remedy == (
        "Stop what commits under a user that is none of our jobs', and try again after "
        f"{at + timedelta(days=1):%Y-%m-%d %H:%M} UTC: only then is it clear that it is gone."
    )


# what is held


def test_of_an_adopted_job_the_newest_commit_of_every_unmarked_user_is_held(tmp_path: Path) -> None:
    written = made(tmp_path)
    life = written.life
    life.begin(fingerprint="of a script that nobody knows")
    life.runtime.memory.set_operator_name(NAME, "")
    assert marks_of_ours(life.runtime) == ()
    point = Path(life.checkpoint(7, PENDING).removeprefix("file:"))
    written.stream("one", 1)
    both = [written.stream("one", 1), written.stream("other", 2)]
    written.batch()
    # Which of its checkpoints it would start from is not known.
    held = [("writer", NAME, number) for number in reversed(both)]
    assert written.holders() == held
    assert written.holders("1d") == held
    # It is known, and what was committed by an older one need not be found again.
    life.change(checkpoint_path=f"file:{point}", checkpoint_id=7)
    newest = written.stream("one", 10_000)
    assert written.holders("1d") == [("writer", NAME, newest)]
    assert written.holders() == [("writer", NAME, newest), ("foreign writer", "other", both[1])]


def test_of_a_foreign_writer_it_is_held_for_a_day_where_less_would_be_kept(tmp_path: Path) -> None:
    written = made(tmp_path)
    written.stream("theirs", 1)
    newest = written.stream("theirs", 2)
    written.stream(f"{NAME}_0c", 4)
    written.batch()
    assert written.holders() == [("foreign writer", "theirs", newest)]
    assert written.holders("1d") == []
    written.later(timedelta(hours=25))
    assert written.holders() == []


def test_a_start_of_an_adopted_job_is_not_refused_for_what_other_jobs_of_ours_committed(
    tmp_path: Path,
) -> None:
    written = made(tmp_path)
    life = written.life
    life.begin(fingerprint="of a script that nobody knows")
    life.runtime.memory.set_operator_name(NAME, "")
    life.runtime.memory.ensure("beside")
    path = life.checkpoint(7, PENDING)
    choice = RestoreChoice(path, "checkpoint 7", metadata=known_checkpoint_metadata(path))
    with life.runtime.hold(NAME, "a test") as held:
        written.stream("beside_0c", 10_000)
        assert not_older_than_its_commits(held, choice) == choice
        newest = written.stream("one", 10_000)  # nobody else's that we know of
        written.batch()
        with pytest.raises(NoRestorePointError, match=f"snapshot {newest} of {TABLE} was commit"):
            not_older_than_its_commits(held, choice)

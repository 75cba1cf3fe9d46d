"""What a writer must find again of its own commits is never removed while it may be restored."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.maintain import look, maintain
from lakehouse_dagster.maintenance.spec import ExpireSpec, MaintenancePolicy, TablePolicy
from lakehouse_dagster.streaming.adopt import adopt
from tests.maintenance.tables import Tables
from tests.support.by_hand import submit_by_hand
from tests.support.fixtures import lab
from tests.support.laboratory import TABLE, Laboratory, until

__all__ = ["lab"]

pytestmark = [pytest.mark.flink, pytest.mark.every_engine]

EXPIRING = MaintenancePolicy(
    TablePolicy(compact=None, expire=ExpireSpec(keep_at_least=1, keep_for="1ms"))
)


class Writing:
    """A writer that commits with its savepoints only, beside others that commit by hand."""

    def __init__(self, lab: Laboratory) -> None:
        self.lab = lab
        lab.write_script(interval="1h")
        self.tables = Tables(lab)
        self.keeper = Keeper(lab.runtime())

    def adopt(self) -> None:
        """Let it be one that a person has begun, and that is stopped by now."""
        job_id = submit_by_hand(self.lab)
        with self.lab.runtime().hold(self.lab.job, "adopt") as held:
            assert adopt(held).flink_job_id == job_id
        self.lab.running()
        self.lab.stop()

    def ids(self) -> Counter[object]:
        return Counter(row[0] for row in self.tables.rows(TABLE))

    def write(self, rows: int) -> None:
        """Run until so many more rows are committed, and stop with the savepoint that does it."""
        wanted = self.written + rows
        self.lab.source.write(rows)

        def committed() -> bool | None:
            self.lab.start()
            self.lab.stop()
            return self.written >= wanted or None

        until(committed, "the commit of a savepoint", seconds=120)
        assert self.written == wanted

    @property
    def written(self) -> int:
        if not self.lab.catalog.open().table(TABLE).exists():
            return 0
        return sum(number for id_, number in self.ids().items() if int(str(id_)) >= 0)

    def is_marked(self, snapshot: int | None) -> bool:
        """Whether it was committed by a user that tells whose job it is."""
        found = self.lab.catalog.open().table(TABLE).snapshot(snapshot or 0)
        assert found is not None
        return found.commit_user.startswith(f"{self.lab.job}_")

    def expire(self) -> int | None:
        """What the policy lets go; the oldest snapshot that is left."""
        outcome = maintain(self.keeper, EXPIRING, [TABLE], holder="a test")
        assert [record.error for record in outcome.done if record.error] == []
        assert outcome.failures == ()
        return self.tables.facts(TABLE).oldest_snapshot_id


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_stopped_writer_finds_its_last_commit_again_however_many_came_after_it(
    lab: Laboratory, is_adopted: bool
) -> None:
    writing = Writing(lab)
    if is_adopted:
        writing.adopt()
    writing.write(20)
    own = writing.tables.facts(TABLE).snapshot_id
    assert writing.is_marked(own) is not is_adopted
    by_hand = [f"INSERT INTO {TABLE} VALUES ({-n}, 'by hand', 0)" for n in range(1, 13)]
    writing.tables.run(*by_hand)
    assert writing.expire() == own
    (decision,) = look(writing.keeper, EXPIRING, [TABLE])[0]
    assert f"writer {lab.job} (needs snapshot {own})" in decision.held_back[0]

    writing.write(20)  # it is restored: what its savepoint holds is committed already
    assert set(writing.ids().values()) == {1}
    assert len(writing.ids()) == 52
    newer = writing.expire()
    assert own is not None
    assert newer is not None
    assert newer > own

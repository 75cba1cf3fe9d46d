"""Every kind of table gets the right action: fewer files, the same rows, and then nothing to do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakehouse_dagster.maintenance.maintain import maintain
from lakehouse_dagster.maintenance.spec import CompactSpec, MaintenancePolicy, TablePolicy
from lakehouse_dagster.paimon.file_facts import POSTPONED_BUCKETS, TableKind
from lakehouse_dagster.system_db.maintenance_actions import ActionState
from tests.maintenance.tables import Tables
from tests.support.fixtures import lab
from tests.support.laboratory import Laboratory

__all__ = ["lab"]

pytestmark = [pytest.mark.flink]

COMMITS = 7
POLICY = MaintenancePolicy(TablePolicy(compact=CompactSpec(level0_files=5, small_files=5)))
APPEND = "id INT, n INT"
KEYED = "id INT, n INT, PRIMARY KEY (id) NOT ENFORCED"


@dataclass(frozen=True)
class Kind:
    """A kind of table, and what ``(1, n), (10 + n, n)`` for n from 0 to 6 make of it."""

    columns: str
    expected: list[tuple[int, int]]
    options: dict[str, str] = field(default_factory=dict)
    action: str = "compact"


OTHERS = [(10 + n, n) for n in range(COMMITS)]
KINDS = {
    "append": Kind(APPEND, sorted([*((1, n) for n in range(COMMITS)), *OTHERS]), {"bucket": "-1"}),
    "append_fixed": Kind(
        APPEND,
        sorted([*((1, n) for n in range(COMMITS)), *OTHERS]),
        {"bucket": "1", "bucket-key": "id", "write-only": "true"},
    ),
    "keyed": Kind(KEYED, [(1, 6), *OTHERS], {"bucket": "1", "write-only": "true"}),
    "keyed_dynamic": Kind(KEYED, [(1, 6), *OTHERS], {"bucket": "-1", "write-only": "true"}),
    "first_row": Kind(
        KEYED,
        [(1, 0), *OTHERS],
        {"bucket": "1", "write-only": "true", "merge-engine": "first-row"},
    ),
    "aggregation": Kind(
        KEYED,
        [(1, 21), *OTHERS],
        {
            "bucket": "1",
            "write-only": "true",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
        },
    ),
    "deletion_vectors": Kind(
        KEYED,
        [(1, 6), *OTHERS],
        {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"},
    ),
    "postponed": Kind(KEYED, [(1, 6), *OTHERS], {"bucket": str(POSTPONED_BUCKETS)}),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_table_is_compacted_as_its_kind_needs(name: str, lab: Laboratory) -> None:
    kind, tables = KINDS[name], Tables(lab)
    table = tables.make(name, kind.columns, partitioned=False, **kind.options)
    tables.fill(table, lambda n: f"(1, {n}), ({10 + n}, {n})", COMMITS)
    before = tables.facts(table)
    assert before.files >= COMMITS
    outcome = maintain(tables.keeper, POLICY, [table], holder="a test")
    assert [(r.kind, r.state, r.error) for r in outcome.done] == [
        (kind.action, ActionState.DONE, None)
    ]
    after = tables.facts(table)
    assert after.files < before.files
    if after.kind is not TableKind.APPEND:  # whose files all are on level 0
        # What waited to be put into buckets is one new file there.
        assert max(bucket.level0_files for bucket in after.buckets) <= (name == "postponed")
    assert [bucket for bucket in after.buckets if bucket.bucket == POSTPONED_BUCKETS] == []
    assert sorted(tables.rows(table)) == kind.expected
    assert maintain(tables.keeper, POLICY, [table], holder="a test").done == ()

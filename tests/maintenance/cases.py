"""Every kind of action, each on a table of its own on which there is something to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.streaming.runtime import utc_now
from tests.maintenance.tables import Tables
from tests.paimon.writing import Writer

T, U = "m.t", "m.u"
_MANIFEST = "manifest/manifest-[!l]*"
_DAYS = ("20200101", "20200102", "29990101")


@dataclass(frozen=True)
class Case:
    """A kind of action that is to be carried out.

    Args:
        prepare: makes the tables; the actions that are due on them.
        stands_at: pattern of a file of the first table that the action cannot do without.
        is_done: whether the tables are as they are to be afterwards.
        stays: whether a row is still there then.
    """

    name: str
    prepare: Callable[[Tables], tuple[Action, ...]]
    stands_at: str
    is_done: Callable[[Tables], bool]
    stays: Callable[[tuple[object, ...]], bool] = lambda _: True


def _written(tables: Tables, table: str, *commits: list[dict[str, Any]], **how: Any) -> None:
    """A table of so many snapshots, made by pypaimon, which takes no second for each."""
    text = pa.string()
    columns = pa.schema([pa.field(name, text, nullable=False) for name in commits[0][0]])
    writer = Writer(tables.lab.folder / "warehouse", table, columns, **how)
    for rows in commits:
        writer.append(rows)


def small_files(tables: Tables, *names: str) -> None:
    """Append tables of one column, six rows and six files."""
    for table in names:
        commits = [[{"id": str(n)}] for n in range(6)]
        _written(tables, table, *commits, options={"bucket": "-1"})


def _files(tables: Tables, *names: str) -> list[int]:
    return [tables.facts(name).files for name in names]


def _compact(tables: Tables) -> tuple[Action, ...]:
    small_files(tables, T)
    return (Action(T, ActionKind.COMPACT, "a test"),)


def _compact_full(tables: Tables) -> tuple[Action, ...]:
    commits = [[{"id": str(n % 2), "v": f"x{n}"}] for n in range(4)]
    options = {"bucket": "1", "write-only": "true"}
    _written(tables, T, *commits, primary_keys=("id",), options=options)
    return (Action(T, ActionKind.COMPACT_FULL, "a test"),)


def _compact_together(tables: Tables) -> tuple[Action, ...]:
    small_files(tables, T, U)
    return tuple(Action(table, ActionKind.COMPACT_FULL, "a test") for table in (T, U))


def _expire_snapshots(tables: Tables) -> tuple[Action, ...]:
    small_files(tables, T)
    kind = ActionKind.EXPIRE_SNAPSHOTS
    return (Action(T, kind, "a test", keep=1, older_than=utc_now()),)


def _expire_changelogs(tables: Tables) -> tuple[Action, ...]:
    tables.make(
        "t",
        "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED",
        **{
            "bucket": "1",
            "changelog-producer": "input",
            "snapshot.num-retained.min": "2",
            "snapshot.num-retained.max": "2",
            "changelog.num-retained.min": "90",
            "changelog.num-retained.max": "99",
        },
    )
    tables.fill(T, lambda n: f"(1, {n})", 6)
    kind = ActionKind.EXPIRE_CHANGELOGS
    return (Action(T, kind, "a test", keep=2, older_than=utc_now() + timedelta(hours=1)),)


def _expire_tags(tables: Tables) -> tuple[Action, ...]:
    small_files(tables, T)
    names = ("a", "b", "c")
    tables.run(*(f"CALL sys.create_tag('{T}', '{name}')" for name in names))
    return (Action(T, ActionKind.EXPIRE_TAGS, "a test", names=names[:2]),)


def _expire_partitions(tables: Tables) -> tuple[Action, ...]:
    commits = [[{"id": str(n), "dt": day} for day in _DAYS] for n in range(3)]
    _written(tables, T, *commits, partition_keys=("dt",), options={"bucket": "-1"})
    old = tuple((("dt", day),) for day in _DAYS[:2])
    return (Action(T, ActionKind.EXPIRE_PARTITIONS, "a test", partitions=old),)


def _compact_manifests(tables: Tables) -> tuple[Action, ...]:
    small_files(tables, T)
    return (Action(T, ActionKind.COMPACT_MANIFESTS, "a test"),)


def _orphans(tables: Tables, kind: ActionKind) -> tuple[Action, ...]:
    small_files(tables, T)
    for number in range(3):
        orphan = tables.folder(T) / "bucket-0" / f"data-lost-{number}.parquet"
        orphan.write_bytes(b"x" * 100)
        os.utime(orphan, (time.time() - 9 * 86400,) * 2)
    return (Action(T, kind, "a test", older_than=utc_now() - timedelta(days=3)),)


def _orphans_left(tables: Tables) -> int:
    return len(list(tables.folder(T).glob("bucket-0/data-lost-*")))


def _found(tables: Tables) -> bool:
    """Whether a search has told of the orphans, and let them be."""
    newest = tables.keeper.actions.last_done(ActionKind.FIND_ORPHANS.value).get(T)
    return (
        newest is not None
        and '"orphan_files": 3' in (newest.after or "")
        and _orphans_left(tables) == 3
    )


BY_FLINK_JOBS = (
    Case("compact", _compact, "bucket-0/*.parquet", lambda t: _files(t, T) == [1]),
    Case("compact_full", _compact_full, "bucket-0/*.parquet", lambda t: _files(t, T) == [1]),
    Case(
        "compact_together",
        _compact_together,
        "bucket-0/*.parquet",
        lambda t: _files(t, T, U) == [1, 1],
    ),
)
BY_THE_GATEWAY = (
    Case(
        "expire_snapshots",
        _expire_snapshots,
        "snapshot/snapshot-3",
        lambda t: t.facts(T).snapshot_count == 1,
    ),
    Case(
        "expire_changelogs",
        _expire_changelogs,
        "changelog/changelog-3",
        lambda t: t.facts(T).changelog_count == 2,
    ),
    Case("expire_tags", _expire_tags, "tag/tag-b", lambda t: set(t.facts(T).tags) == {"c"}),
    Case(
        "expire_partitions",
        _expire_partitions,
        _MANIFEST,
        lambda t: {b.partition for b in t.facts(T).buckets} == {(("dt", _DAYS[2]),)},
        stays=lambda row: row[1] == _DAYS[2],
    ),
    Case(
        "compact_manifests",
        _compact_manifests,
        _MANIFEST,
        lambda t: t.facts(T).manifest_files < 6,
    ),
    Case(
        "find_orphans",
        lambda t: _orphans(t, ActionKind.FIND_ORPHANS),
        _MANIFEST,
        _found,
    ),
    Case(
        "remove_orphans",
        lambda t: _orphans(t, ActionKind.REMOVE_ORPHANS),
        _MANIFEST,
        lambda t: _orphans_left(t) == 0,
    ),
)

"""What is known about a table's files is what all of its manifests say, however it came about."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.errors import TableNotFoundError
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.paimon.bucket_facts import BucketSums, FactsDoNotAddUpError, fold
from lakehouse_dagster.paimon.file_facts import InMemory, StoredSums, TableFacts, TableKind
from lakehouse_dagster.paimon.reader import TableReader
from tests.paimon.writing import Writer

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string()),
        pa.field("text", pa.string()),
    ]
)


def written(warehouse: Path, **options: str) -> Writer:
    return Writer(warehouse, "ods.t", COLUMNS, partition_keys=("day",), options=options)


def reader(warehouse: Path) -> TableReader:
    return PaimonCatalog(str(warehouse)).open().table("ods.t")


def row(day: str | None, number: int = 1) -> dict[str, Any]:
    return {"id": number, "day": day, "text": "x" * number}


def whole(table: TableReader) -> TableFacts:
    """The facts as read from all manifests, without anything that was known before."""
    return table.facts(InMemory())


def test_files_are_summed_up_by_partition_and_bucket(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a"), row("b")])
    table.append([row("a", 2)])
    table.append([row(None)])
    facts = reader(tmp_path).facts(InMemory())
    assert {b.partition: (b.files, b.records) for b in facts.buckets} == {
        (("day", "a"),): (2, 2),
        (("day", "b"),): (1, 1),
        (("day", None),): (1, 1),
    }
    assert facts.size_bytes == table.data_bytes("**")
    assert (facts.kind, facts.snapshot_id, facts.snapshot_count) == (TableKind.APPEND, 3, 3)
    assert all(b.small_files == b.files for b in facts.buckets)


def test_what_is_small_follows_the_table_s_option(tmp_path: Path) -> None:
    table = written(tmp_path, **{"target-file-size": "100 b"})
    table.append([row("a")])
    assert [b.small_files for b in reader(tmp_path).facts(InMemory()).buckets] == [0]


def test_only_new_manifests_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, store = written(tmp_path), InMemory()
    for number in range(3):
        table.append([row("a", number + 1)])
    look = reader(tmp_path)
    look.facts(store)
    table.append([row("b")])
    for manifest in (table.folder / "manifest").glob("manifest-*"):
        if manifest.name not in _newest_manifests(table):
            manifest.unlink()
    assert {b.partition: b.files for b in look.facts(store).buckets} == {
        (("day", "a"),): 3,
        (("day", "b"),): 1,
    }


def _newest_manifests(table: Writer) -> set[str]:
    """The delta manifests of the newest snapshot, and the lists that are read anyhow."""
    import fastavro

    document = json.loads((table.folder / "snapshot" / "snapshot-4").read_text())
    names = {document["deltaManifestList"], document["baseManifestList"]}
    with (table.folder / "manifest" / document["deltaManifestList"]).open("rb") as file:
        names |= {entry["_FILE_NAME"] for entry in fastavro.reader(file)}  # type: ignore[index]
    return names


def test_an_overwritten_partition_loses_its_files(tmp_path: Path) -> None:
    table, store = written(tmp_path), InMemory()
    for _ in range(3):
        table.append([row("a"), row("b")])
    look = reader(tmp_path)
    assert look.facts(store).files == 6
    table.append([row("a")], overwrite={"day": "a"})
    assert {b.partition[0][1]: b.files for b in look.facts(store).buckets} == {"a": 1, "b": 3}


def test_history_that_was_rewritten_is_read_anew(tmp_path: Path) -> None:
    table, store = written(tmp_path), InMemory()
    table.append([row("a")])
    table.append([row("a")])
    look = reader(tmp_path)
    look.facts(store)
    table.expire(2)  # as a rollback to snapshot 1 leaves it
    (table.folder / "snapshot" / "LATEST").write_text("1")
    table.append([row("b")])
    assert look.facts(store) == whole(look)
    assert {b.partition[0][1]: b.files for b in look.facts(store).buckets} == {"a": 1, "b": 1}


def test_a_gap_is_read_anew(tmp_path: Path) -> None:
    table, store = written(tmp_path), InMemory()
    table.append([row("a")])
    look = reader(tmp_path)
    look.facts(store)
    for _ in range(3):
        table.append([row("a")])
    table.expire(2, 3)
    assert look.facts(store) == whole(look)


def test_sums_of_another_history_do_not_add_up(tmp_path: Path) -> None:
    entry = {"_KIND": 1, "_PARTITION": b"", "_BUCKET": 0}
    file = {"_FILE_SIZE": 5, "_LEVEL": 0, "_ROW_COUNT": 1}
    with pytest.raises(FactsDoNotAddUpError):
        fold({}, [{**entry, "_FILE": file}], 100)


def test_what_is_folded_in_leaves_the_sums_that_were_known_as_they_were() -> None:
    file = {"_FILE_SIZE": 5, "_LEVEL": 0, "_ROW_COUNT": 1}
    entries = [{"_KIND": 0, "_PARTITION": p, "_BUCKET": 0, "_FILE": file} for p in (b"a", b"b")]
    known: dict[tuple[str, int], BucketSums] = {}
    fold(known, entries, 100)
    later = dict(known)
    fold(later, entries[:1], 100)
    key, other = (b"a".hex(), 0), (b"b".hex(), 0)
    assert (known[key].files, known[key].files_of_level) == (1, {0: 1})
    assert (later[key].files, later[key].bytes_of_level) == (2, {0: 10})
    assert later[other] is known[other]


def test_partitions_that_come_and_go_are_told_by_their_values(tmp_path: Path) -> None:
    table, store = written(tmp_path), InMemory()
    look = reader(tmp_path)
    for day in ("a", "b"):
        table.append([row(day)])
        assert look.facts(store) == whole(look)
    table.truncate({"day": "a"})
    assert [b.partition for b in look.facts(store).buckets] == [(("day", "b"),)]
    stored = store.load("ods.t")
    assert stored is not None
    assert list(stored.partitions.values()) == [(("day", "b"),)]


def test_wrong_sums_are_noticed_by_the_snapshot_s_own_count(tmp_path: Path) -> None:
    table, store = written(tmp_path), InMemory()
    table.append([row("a")])
    look = reader(tmp_path)
    known = look.facts(store)
    stored = store.load("ods.t")
    assert stored is not None
    ((key, _),) = stored.sums.items()
    wrong = {key: BucketSums(records=99, files_of_level={0: 1}, bytes_of_level={0: 9}, files=1)}
    store.save(
        "ods.t",
        StoredSums(stored.snapshot_id, stored.fingerprint, stored.small_below_bytes, wrong),
    )
    table.append([row("a")])
    assert look.facts(store) == whole(look)
    assert look.facts(store).files == known.files + 1


def test_a_table_with_files_deleted_by_hand_has_a_problem_and_no_facts(tmp_path: Path) -> None:
    table = written(tmp_path)
    table.append([row("a")])
    for manifest in (table.folder / "manifest").glob("manifest-*"):
        manifest.unlink()
    facts = reader(tmp_path).facts(InMemory())
    assert facts.problem is not None
    assert "manifest" in facts.problem
    assert facts.buckets == ()


def test_a_table_without_snapshots_has_facts_and_one_that_is_not_there_has_none(
    tmp_path: Path,
) -> None:
    table = written(tmp_path)
    assert reader(tmp_path).facts(InMemory()).snapshot_id is None
    shutil.rmtree(table.folder)
    with pytest.raises(TableNotFoundError):
        reader(tmp_path).facts(InMemory())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["a", "b", None])),
        st.tuples(st.just("overwrite"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("expire"), st.just("")),
        st.tuples(st.just("look"), st.just("")),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(STEPS)
def test_facts_brought_forward_equal_a_full_reading_at_all_times(
    steps: list[tuple[str, str | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        table, store, look = written(warehouse), InMemory(), reader(warehouse)
        oldest, newest = 1, 0
        for what, day in steps:
            if what == "append":
                table.append([row(day)])
                newest += 1
            elif what == "overwrite" and newest:
                table.append([row(day)], overwrite={"day": day})
                newest += 1
            elif what == "expire" and oldest < newest:
                table.expire(oldest)
                oldest += 1
            elif what == "look":
                assert look.facts(store) == whole(look)
        assert look.facts(store) == whole(look)

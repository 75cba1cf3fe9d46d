"""How far a job has read, whether it got on, and what waits to be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.flink import ReadPosition, SourceKind
from lakehouse_dagster.flink.source_positions import operator_id, paimon_source_uid
from lakehouse_dagster.sql.model import TableName
from lakehouse_dagster.streaming.lag import JobLag, UpstreamLag
from lakehouse_dagster.streaming.positions import (
    ReadPositions,
    moved,
    positions_from_text,
    positions_to_text,
    read_positions,
    tables_of,
)

METADATA = Path(__file__).parent.parent / "flink" / "metadata"
COPIED = TableName("lake", "ods", "copied")


def paimon(following: int | None = 9, *, digest: str = "a", **values: object) -> ReadPosition:
    made = ReadPosition(
        operator_id(paimon_source_uid("copied", "ods.agg")),
        "Source: copied[7]",
        SourceKind.PAIMON,
        next_snapshot=following,
        pending_splits=0,
        exact=True,
        digest=digest,
    )
    return replace(made, **values)  # type: ignore[arg-type]


def kafka(**offsets: int) -> ReadPosition:
    of_partitions = {f"orders/{name[1:]}": offset for name, offset in offsets.items()}
    return ReadPosition("b" * 32, "Source: k[1]", SourceKind.KAFKA, offsets=of_partitions)


def positions(*found: ReadPosition, checkpoint: int = 7) -> ReadPositions:
    return ReadPositions(f"file:/ckpt/job/chk-{checkpoint}", checkpoint, found)


# -- positions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["flink-1.20", "flink-2.0"])
def test_positions_are_read_from_a_restore_point_and_kept_as_text(
    engine: str, tmp_path: Path
) -> None:
    folder = tmp_path / "chk-29"
    folder.mkdir()
    (folder / "_metadata").write_bytes((METADATA / f"{engine}-aggregate-checkpoint").read_bytes())
    read = read_positions(f"file:{folder}")
    assert read is not None
    assert [position.next_snapshot for position in read.positions] == [9]
    assert positions_from_text(positions_to_text(read)) == read
    assert tables_of(read.positions, [COPIED], "agg") == {
        read.positions[0].operator_id: "ods.copied"
    }
    assert read_positions(f"file:{tmp_path}/chk-30") is None


offsets = st.dictionaries(st.text(max_size=20), st.integers(0, 2**62), max_size=4)


@given(
    next_snapshot=st.one_of(st.none(), st.integers(0, 2**62)),
    offsets=offsets,
    exact=st.booleans(),
    name=st.one_of(st.none(), st.text(max_size=30)),
)
def test_any_position_comes_back_from_its_text(
    next_snapshot: int | None, offsets: dict[str, int], exact: bool, name: str | None
) -> None:
    position = replace(
        paimon(next_snapshot), offsets=offsets, exact=exact, source_name=name, digest="d"
    )
    assert positions_from_text(positions_to_text(positions(position))) == positions(position)


@pytest.mark.parametrize(
    "text", [None, "", "null", "[]", "{}", "{", '{"format":1}', '{"format":2,"positions":[]}', "7"]
)
def test_text_that_is_not_ours_gives_no_positions(text: str | None) -> None:
    assert positions_from_text(text) is None


@given(st.text())
def test_no_text_is_too_strange_to_be_refused(text: str) -> None:
    positions_from_text(text)


def test_a_source_is_matched_with_its_table_by_id_name_or_what_is_left() -> None:
    by_id = paimon(source_name=None)
    by_name = paimon(operator_id="1" * 32, source_name="Source: other[3]")
    monitor = paimon(operator_id="2" * 32, source_name="Source: lake.ods.third-Monitor")
    left = paimon(operator_id="3" * 32, source_name=None)
    reads = [COPIED, *(TableName("lake", "ods", t) for t in ("other", "third", "fourth"))]
    assert tables_of([by_id, by_name, monitor, left], reads, "agg") == {
        by_id.operator_id: "ods.copied",
        "1" * 32: "ods.other",
        "2" * 32: "ods.third",
        "3" * 32: "ods.fourth",
    }


def test_two_tables_of_one_name_are_told_apart_by_id_alone() -> None:
    reads = [COPIED, TableName("lake", "dwd", "copied")]
    assert tables_of([paimon()], reads, "agg") == {paimon().operator_id: "ods.copied"}
    # Of a job that was started by hand the ids say nothing.
    assert tables_of([paimon()], reads, "") == {}


def test_of_two_unknown_sources_none_is_guessed() -> None:
    left = [paimon(operator_id=c * 32, source_name=None) for c in "45"]
    reads = [TableName("lake", "ods", "x"), TableName("lake", "ods", "y")]
    assert tables_of(left, reads, "agg") == {}


@pytest.mark.parametrize(
    ("before", "after", "got_on"),
    [
        (paimon(9), paimon(9), False),
        (paimon(9), paimon(10), True),
        (paimon(9, digest="a"), paimon(9, digest="b"), True),  # on within a snapshot
        (kafka(p0=5, p1=7), kafka(p0=5, p1=7), False),
        (kafka(p0=5, p1=7), kafka(p0=5, p1=8), True),
        (kafka(p0=5), kafka(p0=5, p1=0), True),
    ],
)
def test_a_job_got_on_when_any_source_did(
    before: ReadPosition, after: ReadPosition, got_on: bool
) -> None:
    assert moved(positions(before), positions(after, checkpoint=8)) is got_on


# -- what waits to be read ----------------------------------------------------------------------


def test_what_is_not_known_is_not_taken_for_read() -> None:
    read = UpstreamLag("ods.copied", SourceKind.PAIMON, snapshots_behind=0, splits_being_read=0)
    unknown = UpstreamLag("files", SourceKind.OTHER, unknown="not told")
    lag = JobLag("job", (read, unknown))
    assert (lag.unread, lag.unknown) == ((), (unknown,))


def test_snapshots_splits_and_records_are_something_to_read() -> None:
    table = UpstreamLag("ods.copied", SourceKind.PAIMON, snapshots_behind=2, splits_being_read=0)
    begun = UpstreamLag("ods.agg", SourceKind.PAIMON, snapshots_behind=0, splits_being_read=3)
    topic = UpstreamLag("orders", SourceKind.KAFKA, records_behind=1200)
    assert JobLag("job", (table, begun, topic)).unread == (table, begun, topic)
    assert str(topic) == "orders: 1,200 records behind"

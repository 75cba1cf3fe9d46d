"""Every kind of state that Flink can write into its metadata is read over without losing the place.

The bytes are made here, field by field, as Flink's serializers write them: few jobs use them all.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lakehouse_dagster.errors import CheckpointMetadataError
from lakehouse_dagster.flink import SourceKind, file_access, read_checkpoint_metadata
from lakehouse_dagster.flink.byte_cursor import ForeignBytesError
from lakehouse_dagster.flink.checkpoint_metadata import parse_checkpoint_metadata

REAL = (Path(__file__).parent / "metadata" / "flink-2.0-files-savepoint").read_bytes()
PROPERTIES = REAL[REAL.rindex(b"\xac\xed\x00\x05") :]

i32 = struct.Struct(">i").pack
i64 = struct.Struct(">q").pack
NULL = b"\0"
NONE = i32(0)


def utf(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def inline(data: bytes) -> bytes:
    return b"\1" + utf("handle") + i32(len(data)) + data


def in_file(size: int, path: str = "file:/ckpt/file") -> bytes:
    return b"\2" + i64(size) + utf(path)


def beside(size: int, path: str) -> bytes:
    return b"\6" + utf(path) + i64(size)


def segment(size: int, path: str = "file:/ckpt/segment", offset: int = 0) -> bytes:
    return b"\x0f" + i64(offset) + i64(size) + i32(0) + utf(path) + utf("logical")


def groups(offsets: int = 0) -> bytes:
    return i32(0) + i32(offsets or 4) + b"".join(i64(n) for n in range(offsets))


def lists(states: dict[str, list[int]], stream: bytes, *, merged: bool = False) -> bytes:
    data = i32(1) + (b"\x11" if merged else b"\4") + i32(len(states))
    for name, offsets in states.items():
        data += utf(name) + b"\0" + i32(len(offsets)) + b"".join(map(i64, offsets))
    if merged:
        data += utf("file:/owned") + utf("file:/shared") + b"\0"
    return data + stream


def subtask(
    index: int = 0, *, managed: bytes = NONE, keyed: bytes = NULL, channels: bytes = NONE + NONE
) -> bytes:
    return i32(index) + managed + NONE + keyed + NULL + channels


def operator(
    *subtasks: bytes, version: int = 4, coordinator: bytes = NULL, identity: int = 1
) -> bytes:
    names = utf("an operator") + utf("") if version >= 5 else b""
    head = names + i64(identity) + i64(0) + i32(2) + i32(128) + coordinator
    return head + i32(len(subtasks)) + b"".join(subtasks)


def metadata(*operators: bytes, version: int = 4) -> bytes:
    head = struct.pack(">iiqi", 0x4960672D, version, 7, 0)
    body = head + i32(len(operators)) + b"".join(operators)
    return body + (PROPERTIES if version >= 4 else b"")


KEYED = {
    "whole": (b"\3" + groups(4) + in_file(100), 100),
    "of a savepoint": (b"\7" + groups(4) + in_file(100), 100),
    "whole, with an id": (b"\x0c" + groups(4) + in_file(100) + utf("id"), 100),
    "incremental": (
        b"\5"
        + i64(3)
        + utf("backend")
        + groups()
        + in_file(10)
        + i32(2)
        + utf("a.sst")
        + in_file(1000)
        + utf("b.sst")
        + in_file(2000)
        + i32(1)
        + utf("MANIFEST")
        + inline(b"x" * 5),
        3015,
    ),
    "incremental, with an id": (
        b"\x0b" + i64(3) + utf("b") + groups() + i64(-1) + in_file(10) + NONE + NONE + utf("id"),
        10,
    ),
    "in shared files": (
        b"\x0b"
        + i64(3)
        + utf("b")
        + groups()
        + i64(5)
        + segment(10)
        + i32(1)
        + utf("a.sst")
        + segment(90)
        + NONE
        + utf("id"),
        100,
    ),
    "changelog": (
        b"\x0e"
        + groups()
        + i64(9)
        + i32(1)
        + (b"\3" + groups(4) + in_file(100))
        + i32(1)
        + (b"\x0d" + groups() + i32(1) + i64(0) + in_file(50))
        + (i64(50) + i64(50) + utf("id") + utf("filesystem"))
        + i64(1)
        + i64(2)
        + utf("id"),
        150,
    ),
    "changelog in memory": (
        b"\x09" + groups() + i64(0) + i64(1) + i32(1) + i32(3) + i32(4) + b"abcd" + utf("id"),
        4,
    ),
}


@pytest.mark.parametrize("version", [3, 4, 5, 6])
@pytest.mark.parametrize("kind", KEYED)
def test_keyed_state_of_every_kind_is_measured(kind: str, version: int) -> None:
    keyed, size = KEYED[kind]
    first = operator(subtask(keyed=keyed), version=version)
    second = operator(
        subtask(1, managed=lists({"s": [0]}, inline(b"12345678"))), version=version, identity=2
    )
    read = parse_checkpoint_metadata(metadata(first, second, version=version), "made")
    assert [o.size_bytes for o in read.operators] == [size, 8]
    assert [o.has_keyed_state for o in read.operators] == [True, False]
    assert read.operators[1].list_states == ("s",)
    assert read.savepoint is (None if version == 3 else True)


def test_records_under_way_in_an_unaligned_checkpoint_are_counted() -> None:
    channel = i32(0) + i32(0) + i32(1) + i32(2) + i64(0) + i64(9) + i64(700) + in_file(700)
    old = subtask(channels=i32(1) + channel + i32(2) + channel + channel)
    assert parse_checkpoint_metadata(metadata(operator(old)), "made").size_bytes == 2100
    merged = b"\3" + i32(0) + i64(400) + in_file(400) + i32(3) + b"abc"
    new = subtask(channels=i32(2) + b"\1" + channel + merged + NONE)
    read = parse_checkpoint_metadata(metadata(operator(new, version=6), version=6), "made")
    assert read.size_bytes == 1100


def test_finished_subtasks_and_operators_are_told() -> None:
    done = i64(2) + i64(0) + i32(2) + i32(128) + NULL + i32(-1)
    half = operator(i32(-1), subtask(1, keyed=b"\3" + groups(2) + in_file(5)))
    read = parse_checkpoint_metadata(metadata(half, done), "made")
    assert [o.finished for o in read.operators] == [False, True]
    assert read.size_bytes == 5


@pytest.mark.parametrize(
    "broken",
    [
        operator(subtask(managed=i32(7))),
        operator(subtask(0), subtask(0)),
        operator(subtask(0), i32(-1)),
        operator(subtask(5)),
        operator(i32(-3)),
        operator(subtask(managed=lists({"s": [-1]}, inline(b"")))),
    ],
)
def test_what_flink_never_writes_is_refused(broken: bytes) -> None:
    with pytest.raises(CheckpointMetadataError, match="damaged"):
        parse_checkpoint_metadata(metadata(broken), "made")


@pytest.mark.parametrize(
    "foreign",
    [
        operator(subtask(keyed=b"\x2a")),
        operator(subtask(managed=i32(1) + b"\x2a")),
        operator(coordinator=b"\x2a"),
    ],
)
def test_a_kind_of_state_that_is_not_known_here_is_not_called_damage(foreign: bytes) -> None:
    with pytest.raises(CheckpointMetadataError, match="not known here") as caught:
        parse_checkpoint_metadata(metadata(foreign), "made")
    assert isinstance(caught.value.__cause__, ForeignBytesError)


def test_one_operator_twice_is_refused() -> None:
    with pytest.raises(CheckpointMetadataError, match="twice"):
        parse_checkpoint_metadata(metadata(operator(), operator()), "made")


def test_deep_nesting_is_refused() -> None:
    nested = b"\3" + groups(4) + in_file(1)
    for _ in range(200):
        nested = b"\x0e" + groups() + i64(0) + i32(1) + nested + NONE + i64(1) + i64(1) + utf("i")
    with pytest.raises(CheckpointMetadataError, match="nested"):
        parse_checkpoint_metadata(metadata(operator(subtask(keyed=nested))), "made")


# -- Kafka --------------------------------------------------------------------------------------


def enumerator(state: bytes, version: int) -> bytes:
    return inline(i32(1) + i32(version) + i32(len(state)) + state)


def kafka_enumerator(*partitions: tuple[str, int, int]) -> bytes:
    state = i32(len(partitions))
    for topic, partition, status in partitions:
        state += utf(topic) + i32(partition) + i32(status)
    return enumerator(state + b"\1", 2)


def reader_state(*splits: bytes, compressed: bool = False) -> tuple[list[int], bytes]:
    """Where each split begins, and the stream that holds them."""
    data = i32(6) + (b"\1" if compressed else b"\0") + b"meta"
    offsets = []
    for split in splits:
        offsets.append(len(data))
        element = i32(0) + i32(len(split)) + split
        data += i32(len(element)) + element
    return offsets, data


def kafka_split(topic: str, partition: int, offset: int) -> bytes:
    return utf(topic) + i32(partition) + i64(offset) + i64(-(2**63))


def source(coordinator: bytes, *splits: bytes, **options: bool) -> bytes:
    offsets, data = reader_state(*splits, **options)
    managed = lists({"SourceReaderState": offsets}, inline(data))
    return metadata(operator(subtask(managed=managed), coordinator=coordinator))


def test_kafka_offsets_of_all_partitions_are_read() -> None:
    data = source(
        kafka_enumerator(("orders", 0, 0), ("orders", 1, 0)),
        kafka_split("orders", 0, 17),
        kafka_split("orders", 1, 0),
    )
    (position,) = parse_checkpoint_metadata(data, "made").positions
    assert position.kind is SourceKind.KAFKA
    assert position.offsets == {"orders/0": 17, "orders/1": 0}
    assert (position.exact, position.pending_splits) == (True, 0)


@pytest.mark.parametrize(
    ("partitions", "splits", "waiting"),
    [
        ([("o", 0, 0), ("o", 1, 1)], [("o", 0, 5)], 1),  # not given to a reader yet
        ([("o", 0, 0), ("o", 1, 0)], [("o", 0, 5)], 0),  # given to one, which has not said so
        ([("o", 0, 0)], [("o", 0, -2)], 0),  # "from the earliest", not looked up yet
    ],
)
def test_offsets_that_are_not_all_known_are_not_exact(
    partitions: list[tuple[str, int, int]], splits: list[tuple[str, int, int]], waiting: int
) -> None:
    data = source(kafka_enumerator(*partitions), *(kafka_split(*split) for split in splits))
    (position,) = parse_checkpoint_metadata(data, "made").positions
    assert position.kind is SourceKind.KAFKA
    assert not position.exact
    assert position.pending_splits == waiting
    assert all(offset >= 0 for offset in position.offsets.values())


def test_compressed_state_is_unknown_and_not_empty() -> None:
    data = source(kafka_enumerator(("o", 0, 0)), kafka_split("o", 0, 5), compressed=True)
    (position,) = parse_checkpoint_metadata(data, "made").positions
    assert (position.offsets, position.exact, position.pending_splits) == ({}, False, None)


def test_a_paimon_source_with_splits_in_flight_is_an_upper_bound() -> None:
    split = utf("1") + b"\xac\xed\x00\x05sr\x00&org.apache.paimon.table.source.DataSplit" + i64(0)
    state = i32(1) + i32(len(split)) + split + i64(12)
    (position,) = parse_checkpoint_metadata(source(enumerator(state, 1), split), "made").positions
    assert position.kind is SourceKind.PAIMON
    assert (position.next_snapshot, position.pending_splits, position.exact) == (12, 2, False)
    unplanned = source(enumerator(i32(0) + i64(-1), 1))
    (position,) = parse_checkpoint_metadata(unplanned, "made").positions
    assert (position.next_snapshot, position.pending_splits, position.exact) == (None, 0, False)


def test_splits_of_another_source_are_not_taken_for_paimons() -> None:
    (position,) = parse_checkpoint_metadata(
        source(enumerator(i32(0) + i64(12), 1), b"something else"), "made"
    ).positions
    assert position.kind is SourceKind.OTHER
    assert position.next_snapshot is None


# -- state in other files -----------------------------------------------------------------------


@pytest.fixture(params=["local", "arrow"])
def files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "local":
        return
    from pyarrow import fs

    from lakehouse_dagster.flink import checkpoint_metadata

    arrow = file_access.ArrowFiles(fs.LocalFileSystem())
    monkeypatch.setattr(checkpoint_metadata, "files_at", lambda path: (arrow, path))


def restore_point(folder: Path, stream: bytes, offsets: list[int]) -> Path:
    managed = lists({"SourceReaderState": offsets}, stream)
    coordinator = kafka_enumerator(("orders", 0, 0))
    data = metadata(operator(subtask(managed=managed), coordinator=coordinator))
    (folder / "_metadata").write_bytes(data)
    return folder


@pytest.mark.usefixtures("files")
def test_splits_that_are_kept_in_a_file_of_their_own_are_read_too(tmp_path: Path) -> None:
    offsets, data = reader_state(kafka_split("orders", 0, 17))
    (tmp_path / "state").write_bytes(data)
    (tmp_path / "shared").write_bytes(b"of others" + data + b"of others")
    for stream in (
        beside(len(data), "state"),
        in_file(len(data), str(tmp_path / "state")),
        segment(len(data), str(tmp_path / "shared"), offset=9),
    ):
        folder = restore_point(tmp_path, stream, offsets)
        (position,) = read_checkpoint_metadata(str(folder)).positions
        assert position.offsets == {"orders/0": 17}
        assert position.exact


@pytest.mark.usefixtures("files")
def test_splits_in_a_file_that_is_gone_or_cut_short_are_unknown(tmp_path: Path) -> None:
    offsets, data = reader_state(kafka_split("orders", 0, 17))
    (tmp_path / "short").write_bytes(data[:-3])
    for stream in (
        beside(len(data), "gone"),
        beside(len(data), "short"),
    ):
        folder = restore_point(tmp_path, stream, offsets)
        (position,) = read_checkpoint_metadata(str(folder)).positions
        assert position.kind is SourceKind.KAFKA
        assert (position.offsets, position.exact, position.pending_splits) == ({}, False, None)


def test_splits_at_an_address_that_cannot_be_reached_are_unknown(tmp_path: Path) -> None:
    offsets, data = reader_state(kafka_split("orders", 0, 17))
    folder = restore_point(tmp_path, in_file(len(data), "unheard-of://host/state"), offsets)
    (position,) = read_checkpoint_metadata(str(folder)).positions
    assert (position.offsets, position.exact, position.pending_splits) == ({}, False, None)


def test_reader_state_of_another_shape_is_unknown_and_the_restore_point_sound() -> None:
    data = source(kafka_enumerator(("o", 0, 0)), kafka_split("o", 0, 5))
    offset = data.index(utf("SourceReaderState")) + len(utf("SourceReaderState")) + 5
    moved = data[:offset] + i64(1 << 40) + data[offset + 8 :]
    (position,) = parse_checkpoint_metadata(moved, "made").positions
    assert (position.offsets, position.exact) == ({}, False)

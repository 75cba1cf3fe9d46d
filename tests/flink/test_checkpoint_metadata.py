"""What stands in ``_metadata`` files of both engines, and that damage is never read as data."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_dagster.errors import CheckpointMetadataError, ConfigurationError
from lakehouse_dagster.flink import (
    CheckpointMetadata,
    SourceKind,
    known_checkpoint_metadata,
    read_checkpoint_metadata,
)
from lakehouse_dagster.flink.checkpoint_metadata import parse_checkpoint_metadata
from lakehouse_dagster.flink.source_positions import operator_id, paimon_source_uid

FOLDER = Path(__file__).parent / "metadata"
ENGINES = ("flink-1.20", "flink-2.0")
KINDS = ("checkpoint", "savepoint")
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".md")
SOURCE = operator_id(paimon_source_uid("copied", "agg"))

each_engine = pytest.mark.parametrize("engine", ENGINES)
each_kind = pytest.mark.parametrize("kind", KINDS)


def parsed(name: str) -> CheckpointMetadata:
    return parse_checkpoint_metadata((FOLDER / name).read_bytes(), name)


@each_engine
@each_kind
def test_a_paimon_source_is_read_up_to_the_last_snapshot(engine: str, kind: str) -> None:
    metadata = parsed(f"{engine}-aggregate-{kind}")
    (position,) = metadata.positions
    assert position.operator_id == SOURCE
    assert position.kind is SourceKind.PAIMON
    assert (position.next_snapshot, position.pending_splits, position.exact) == (9, 0, True)


@each_engine
def test_splits_that_were_not_read_tell_the_first_snapshot_that_is_still_needed(
    engine: str,
) -> None:
    (position,) = parsed(f"{engine}-pending-savepoint").positions
    assert position.kind is SourceKind.PAIMON
    assert (position.next_snapshot, position.pending_splits, position.exact) == (3, 9, False)
    # The splits are of the second snapshot, the newest when the job began.
    assert (position.oldest_pending_snapshot, position.first_needed_snapshot) == (2, 2)


def test_what_is_needed_is_unknown_when_a_split_does_not_tell() -> None:
    position = replace(parsed("flink-2.0-pending-savepoint").positions[0])
    assert replace(position, oldest_pending_snapshot=None).first_needed_snapshot is None
    assert replace(position, pending_splits=None).first_needed_snapshot == 2
    unknown = replace(position, pending_splits=None, oldest_pending_snapshot=None)
    assert unknown.first_needed_snapshot is None
    assert replace(position, pending_splits=0).first_needed_snapshot == 3


@each_engine
@each_kind
def test_a_consumers_position_is_exact(engine: str, kind: str) -> None:
    (position,) = parsed(f"{engine}-consumer-{kind}").positions
    assert position.kind is SourceKind.PAIMON
    assert (position.next_snapshot, position.pending_splits, position.exact) == (9, 0, True)


@each_engine
@each_kind
def test_of_a_folder_of_files_no_position_is_made_up(engine: str, kind: str) -> None:
    (position,) = parsed(f"{engine}-files-{kind}").positions
    assert position.kind is SourceKind.OTHER
    assert (position.next_snapshot, position.pending_splits) == (None, None)
    assert not position.offsets
    assert not position.exact
    # Nothing was read between the checkpoint and the savepoint.
    other = "savepoint" if kind == "checkpoint" else "checkpoint"
    assert parsed(f"{engine}-files-{other}").positions[0].digest == position.digest


@each_engine
@each_kind
def test_the_state_of_an_aggregate_is_found_by_its_operator(engine: str, kind: str) -> None:
    metadata = parsed(f"{engine}-aggregate-{kind}")
    (aggregate,) = [operator for operator in metadata.operators if operator.has_keyed_state]
    assert aggregate.id == "3bb0c4d3773febbfa3269ef0f8f539d9"
    assert aggregate.size_bytes > 5000
    assert aggregate.has_state
    committer = operator_id("Global Committer_per_amount_agg")
    (found,) = [operator for operator in metadata.operators if operator.id == committer]
    assert found.list_states == ("commit_user_state", "streaming_committer_raw_states")
    assert not found.has_keyed_state
    assert metadata.size_bytes == sum(operator.size_bytes for operator in metadata.operators)


@each_engine
@each_kind
def test_a_savepoint_is_told_from_a_checkpoint(engine: str, kind: str) -> None:
    assert parsed(f"{engine}-aggregate-{kind}").savepoint is (kind == "savepoint")


def test_names_and_uids_are_there_from_flink_2_on() -> None:
    new, old = parsed("flink-2.0-aggregate-savepoint"), parsed("flink-1.20-aggregate-savepoint")
    assert (old.version, new.version) == (4, 5)
    (source,) = [operator for operator in new.operators if operator.is_source]
    assert source.uid == paimon_source_uid("copied", "agg")
    assert source.name is not None
    assert source.name.startswith("Source: copied")
    assert {operator.name for operator in old.operators} == {None}
    # The ids are the same on both engines, so an upgrade of the engine can keep the state.
    assert {o.id for o in old.operators} == {o.id for o in new.operators}


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in [*range(0, len(data), 7), *range(len(data) - 100, len(data))]:
        with pytest.raises(CheckpointMetadataError):
            parse_checkpoint_metadata(data[:length], path.name)


def test_a_file_with_something_behind_its_end_is_refused() -> None:
    with pytest.raises(CheckpointMetadataError, match="too many"):
        parse_checkpoint_metadata(FILES[0].read_bytes() + b"\0", "longer")


@settings(max_examples=400, deadline=2000)
@given(
    path=st.sampled_from(FILES),
    places=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4),
    patch=st.binary(min_size=1, max_size=8),
)
def test_damage_is_refused_or_harmless_and_never_hangs(
    path: Path, places: list[float], patch: bytes
) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        at = int(place * len(data))
        data[at : at + len(patch)] = patch
    try:
        metadata = parse_checkpoint_metadata(bytes(data), "damaged")
    except CheckpointMetadataError:
        return
    # Whatever got through has the shape of a checkpoint.
    ids = [operator.id for operator in metadata.operators]
    assert len(set(ids)) == len(ids)
    for position in metadata.positions:
        assert position.operator_id in ids
        assert position.next_snapshot is None or position.next_snapshot >= 0
        assert not position.exact or position.pending_splits == 0
        assert all(offset >= 0 for offset in position.offsets.values())


@settings(max_examples=300, deadline=2000)
@given(path=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_flipped_bit_in_the_structure_is_noticed(path: Path, place: float, bit: int) -> None:
    whole = path.read_bytes()
    at = int(place * len(whole))
    data = bytearray(whole)
    data[at] ^= 1 << bit
    try:
        damaged = parse_checkpoint_metadata(bytes(data), "damaged")
    except CheckpointMetadataError:
        return
    sound = parse_checkpoint_metadata(whole, path.name)
    # A bit in a value (an id without uid, an offset) cannot be noticed; the frame must stand.
    assert len(damaged.operators) == len(sound.operators)
    assert damaged.version == sound.version


@given(noise=st.binary(max_size=300), version=st.integers(3, 6))
def test_noise_behind_a_sound_header_is_refused(noise: bytes, version: int) -> None:
    data = struct.pack(">ii", 0x4960672D, version) + noise
    if version == 3 and noise[8:] == bytes(8):
        return  # an empty checkpoint of version 3 is just that
    with pytest.raises(CheckpointMetadataError):
        parse_checkpoint_metadata(data, "noise")


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**20, 500_000])
def test_an_absurd_count_is_refused_before_anything_is_made_of_it(claimed: int) -> None:
    head = struct.pack(">iiq", 0x4960672D, 4, 7)
    for data in (
        head + struct.pack(">i", claimed),
        head + struct.pack(">ii", 0, claimed),
        head + struct.pack(">iiqqiii", 0, 1, 1, 1, 1, 128, claimed) + bytes(4000),
    ):
        with pytest.raises(CheckpointMetadataError):
            parse_checkpoint_metadata(data, "absurd")


@pytest.mark.parametrize("version", [0, 1, 2, 7, 4711, -1])
def test_a_foreign_version_is_unknown(version: int) -> None:
    data = bytearray((FOLDER / "flink-2.0-aggregate-savepoint").read_bytes())
    data[4:8] = struct.pack(">i", version)
    with pytest.raises(CheckpointMetadataError, match=f"version {version}"):
        parse_checkpoint_metadata(bytes(data), "foreign")


def test_an_operator_id_that_its_uid_contradicts_is_refused() -> None:
    data = (FOLDER / "flink-2.0-aggregate-savepoint").read_bytes()
    changed = data.replace(b"Source_copied_agg", b"Source_copied_agh")
    assert changed != data
    with pytest.raises(CheckpointMetadataError, match="Source_copied_agh"):
        parse_checkpoint_metadata(changed, "changed")


# -- files --------------------------------------------------------------------------------------


def placed(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "_metadata").write_bytes(content)
    return folder


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_the_folder_or_the_file_in_it_can_be_named(prefix: str, tmp_path: Path) -> None:
    content = (FOLDER / "flink-2.0-aggregate-savepoint").read_bytes()
    folder = placed(tmp_path / "savepoint-1", content)
    metadata = read_checkpoint_metadata(f"{prefix}{folder}")
    assert metadata == read_checkpoint_metadata(f"{prefix}{folder}/_metadata")
    assert metadata.positions[0].next_snapshot == 9


def test_what_is_not_complete_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "chk-1").mkdir()
    with pytest.raises(CheckpointMetadataError, match="does not exist"):
        read_checkpoint_metadata(str(tmp_path / "chk-1"))
    assert known_checkpoint_metadata(str(tmp_path / "chk-1")) is None
    assert known_checkpoint_metadata(str(tmp_path / "nowhere")) is None
    assert known_checkpoint_metadata(str(placed(tmp_path / "chk-2", b"")) or "") is None


def test_a_file_larger_than_the_bound_is_not_read(tmp_path: Path) -> None:
    content = (FOLDER / "flink-2.0-aggregate-savepoint").read_bytes()
    folder = str(placed(tmp_path / "chk-1", content))
    assert known_checkpoint_metadata(folder, largest_bytes=len(content) - 1) is None
    assert known_checkpoint_metadata(folder, largest_bytes=len(content)) is not None
    sparse = tmp_path / "chk-2"
    sparse.mkdir()
    with (sparse / "_metadata").open("wb") as file:
        file.truncate(200 * 1024**3)
    assert known_checkpoint_metadata(str(sparse)) is None


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "chk-1").mkdir()
    os.mkfifo(tmp_path / "chk-1" / "_metadata")
    assert known_checkpoint_metadata(str(tmp_path / "chk-1")) is None


def test_an_empty_path_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigurationError):
        known_checkpoint_metadata(" ")

"""What stands in a savepoint's or checkpoint's ``_metadata``: operators, and how far sources read.

The file is read field by field as Flink writes it; every length and count is checked, and what
does not add up, or is of a version that is not known here, is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakehouse_dagster.errors import CheckpointMetadataError, ConfigurationError, FlinkError
from lakehouse_dagster.flink.byte_cursor import (
    ByteCursor,
    DamagedBytesError,
    ForeignBytesError,
)
from lakehouse_dagster.flink.file_access import METADATA_FILE, as_given, files_at, unreadable
from lakehouse_dagster.flink.java_objects import walk_object
from lakehouse_dagster.flink.source_positions import (
    ReadPosition,
    SourceKind,
    operator_id,
    position_of,
)
from lakehouse_dagster.flink.state_handles import (
    OperatorHandles,
    StreamHandle,
    read_master_states,
    read_operator,
)

__all__ = [
    "CheckpointMetadata",
    "OperatorState",
    "ReadPosition",
    "SourceKind",
    "known_checkpoint_metadata",
    "parse_checkpoint_metadata",
    "read_checkpoint_metadata",
]

MAGIC = 0x4960672D
"""The first four bytes of every ``_metadata`` (``Checkpoints.HEADER_MAGIC_NUMBER``)."""
VERSIONS = range(3, 7)
"""Written by Flink 1.11 (3), 1.16 to 1.20 (4), 2.0 (5, which has names) and 2.1 (6)."""
LARGEST_BYTES = 50 * 1024 * 1024
_LARGEST_STATE_BYTES = 16 * 1024 * 1024
_PROPERTIES = "org.apache.flink.runtime.checkpoint.CheckpointProperties"
_SAVEPOINT = "org.apache.flink.runtime.checkpoint.SavepointType"


@dataclass(frozen=True)
class OperatorState:
    """One operator in a restore point.

    ``name`` and ``uid`` are None where the version does not have them (before 5) or the operator
    has none. ``size_bytes`` is all its state, wherever it is kept. ``finished`` says that all its
    subtasks had ended.
    """

    id: str
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    size_bytes: int
    has_keyed_state: bool
    list_states: tuple[str, ...]
    is_source: bool
    finished: bool

    @property
    def has_state(self) -> bool:
        """Whether anything would be lost if the operator were gone from the job."""
        return bool(self.size_bytes or self.has_keyed_state)


@dataclass(frozen=True)
class CheckpointMetadata:
    """A complete restore point. ``savepoint`` is None where the version does not tell."""

    checkpoint_id: int
    version: int
    savepoint: bool | None
    operators: tuple[OperatorState, ...]
    positions: tuple[ReadPosition, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all state."""
        return sum(operator.size_bytes for operator in self.operators)

    def position(self, operator: str) -> ReadPosition | None:
        """The position of the source with this operator id."""
        return next((p for p in self.positions if p.operator_id == operator), None)


def read_checkpoint_metadata(
    path: str, *, largest_bytes: int = LARGEST_BYTES
) -> CheckpointMetadata:
    """Read what a restore point holds.

    Args:
        path: its folder or the ``_metadata`` file in it, as Flink names it; any address that
            ``newest_complete_checkpoint`` takes.
        largest_bytes: a larger file is not read.

    Raises:
        CheckpointMetadataError: there is none, it is too large, damaged, or of another version.
        FlinkError: it cannot be read, so nothing is known about it.
        ConfigurationError: the kind of address is not known.
    """
    file = _metadata_file(path)
    data = _read(file, largest_bytes)
    if data is None:
        raise CheckpointMetadataError(
            f"{file} does not exist, is empty, or is larger than {largest_bytes:,} bytes.",
            remedy="Take another restore point: without its metadata this one cannot be used.",
        )
    return parse_checkpoint_metadata(data, file, read_state=_reader_of_files(file))


def known_checkpoint_metadata(
    path: str, *, largest_bytes: int = LARGEST_BYTES
) -> CheckpointMetadata | None:
    """What a restore point holds; None when it cannot be known, for whatever reason."""
    try:
        return read_checkpoint_metadata(path, largest_bytes=largest_bytes)
    except FlinkError:
        return None


def parse_checkpoint_metadata(
    data: bytes,
    name: str,
    *,
    read_state: Callable[[StreamHandle], memoryview | None] | None = None,
) -> CheckpointMetadata:
    """Read the content of a ``_metadata`` file.

    Args:
        data: the whole file.
        name: how to call it in an error.
        read_state: reads state that is kept in other files; without it such state is not known.

    Raises:
        CheckpointMetadataError: it is damaged (its cause is a ``DamagedBytesError``), or of another
            version, or holds something that is not known here.
    """
    try:
        return _parsed(_Parts.of(ByteCursor(data)), read_state or _only_inline)
    except _ForeignVersionError as error:
        raise CheckpointMetadataError(
            f"{name} is of version {error.version}, which is not known here "
            f"({VERSIONS[0]} to {VERSIONS[-1]} are).",
            remedy="Flink itself may still be able to restore from it.",
        ) from error
    except ForeignBytesError as error:
        raise CheckpointMetadataError(
            f"{name} holds something that is not known here: {error}.",
            remedy="Flink itself may still be able to restore from it.",
        ) from error
    except DamagedBytesError as error:
        raise CheckpointMetadataError(
            f"{name} is damaged or not written by Flink: {error}.",
            remedy="Take another restore point.",
        ) from error


class _ForeignVersionError(Exception):
    def __init__(self, version: int) -> None:
        self.version = version


@dataclass
class _Parts:
    version: int
    checkpoint_id: int
    operators: list[OperatorHandles] = field(default_factory=list)
    savepoint: bool | None = None

    @classmethod
    def of(cls, cursor: ByteCursor) -> _Parts:
        if cursor.int32() != MAGIC:
            raise cursor.damaged("not the first bytes of a checkpoint's metadata")
        version = cursor.int32()
        if version not in VERSIONS:
            raise _ForeignVersionError(version)
        parts = cls(version, cursor.size())
        read_master_states(cursor)
        for _ in range(cursor.count(smallest=29)):
            parts.operators.append(read_operator(cursor, version))
        if version >= 4:
            parts.savepoint = _is_savepoint(cursor)
        cursor.at_end()
        parts.check(cursor)
        return parts

    def check(self, cursor: ByteCursor) -> None:
        """What must hold of any checkpoint, whatever is in it."""
        ids = {operator.operator_id for operator in self.operators}
        if len(ids) != len(self.operators):
            raise cursor.damaged("one operator twice")
        for operator in self.operators:
            if operator.uid is not None and operator_id(operator.uid) != operator.operator_id:
                raise cursor.foreign(f"an operator id that its uid {operator.uid!r} does not give")


def _is_savepoint(cursor: ByteCursor) -> bool:
    properties = walk_object(cursor)
    if properties.class_name != _PROPERTIES:
        raise cursor.foreign("something else than checkpoint properties")
    return _SAVEPOINT in properties.class_names


def _parsed(
    parts: _Parts, read_state: Callable[[StreamHandle], memoryview | None]
) -> CheckpointMetadata:
    positions = [
        position
        for operator in parts.operators
        if (position := position_of(operator, parts.checkpoint_id, read_state)) is not None
    ]
    sources = {position.operator_id for position in positions}
    return CheckpointMetadata(
        parts.checkpoint_id,
        parts.version,
        parts.savepoint,
        tuple(_operator(handles, sources) for handles in parts.operators),
        tuple(positions),
    )


def _operator(handles: OperatorHandles, sources: set[str]) -> OperatorState:
    subtasks = handles.subtasks.values()
    size = handles.coordinator.size_bytes + sum(
        subtask.operator_bytes + subtask.keyed_bytes + subtask.channel_bytes for subtask in subtasks
    )
    lists = {name for s in subtasks for states in s.list_states for name in states.offsets}
    return OperatorState(
        id=handles.operator_id,
        name=handles.name,
        uid=handles.uid,
        parallelism=handles.parallelism,
        max_parallelism=handles.max_parallelism,
        size_bytes=size,
        has_keyed_state=any(subtask.has_keyed_state for subtask in subtasks),
        list_states=tuple(sorted(lists)),
        is_source=handles.operator_id in sources,
        finished=handles.fully_finished,
    )


# -- files --------------------------------------------------------------------------------------


def _metadata_file(path: str) -> str:
    path = as_given(path)
    return path if path.rpartition("/")[2] == METADATA_FILE else f"{path}/{METADATA_FILE}"


def _read(file: str, largest_bytes: int, offset: int = 0, size: int | None = None) -> bytes | None:
    try:
        files, local_path = files_at(file)
        return files.read(local_path, largest_bytes, offset=offset, size=size)
    except OSError as error:
        raise unreadable(file, error) from error


def _only_inline(handle: StreamHandle) -> memoryview | None:
    return handle.inline


def _reader_of_files(file: str) -> Callable[[StreamHandle], memoryview | None]:
    """Reads operator state from the files beside ``_metadata``, or where the handle says."""
    folder = file.rpartition("/")[0]

    def read_state(handle: StreamHandle) -> memoryview | None:
        if handle.inline is not None or handle.path is None:
            return handle.inline
        if handle.size_bytes > _LARGEST_STATE_BYTES:
            return None
        path = f"{folder}/{handle.path}" if handle.relative else handle.path
        try:
            data = _read(path, LARGEST_BYTES, handle.offset, handle.size_bytes)
        except (FlinkError, ConfigurationError):
            return None  # the rest of the restore point is known all the same
        return None if data is None or len(data) != handle.size_bytes else memoryview(data)

    return read_state

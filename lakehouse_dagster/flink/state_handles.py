"""The structure of a checkpoint's ``_metadata``: operators, and the handles of their state.

(Source: Flink's ``MetadataV2V3SerializerBase``, ``MetadataV3Serializer`` to
``MetadataV6Serializer`` and ``ChannelStateHandleSerializer``; 1.20.5 writes version 4,
2.0.2 version 5.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse_dagster.flink.byte_cursor import ByteCursor

_MASTER_STATE_MAGIC = -915728746
_VERSION_WITH_NAMES = 5
_VERSION_WITH_MERGED_CHANNELS = 6
_MOST_PARALLEL = 32768  # Transformation.UPPER_BOUND_MAX_PARALLELISM
_DEEPEST = 8


@dataclass(frozen=True)
class StreamHandle:
    """Where bytes of state are: here (``inline``), in a file (``path``), or nowhere (both None).

    ``relative`` says that the path is relative to the restore point's folder; ``offset`` is where
    the state begins in its file.
    """

    size_bytes: int = 0
    inline: memoryview | None = field(default=None, repr=False)
    path: str | None = None
    relative: bool = False
    offset: int = 0


@dataclass(frozen=True)
class ListStates:
    """The operator state of one subtask: where each element of each named list begins."""

    offsets: Mapping[str, tuple[int, ...]]
    handle: StreamHandle


@dataclass(frozen=True)
class SubtaskState:
    """What one subtask keeps; sizes in bytes."""

    list_states: tuple[ListStates, ...] = ()
    operator_bytes: int = 0
    keyed_bytes: int = 0
    channel_bytes: int = 0
    has_keyed_state: bool = False


@dataclass(frozen=True)
class OperatorHandles:
    """One operator of the checkpoint."""

    operator_id: str
    name: str | None
    uid: str | None
    parallelism: int
    max_parallelism: int
    coordinator: StreamHandle
    subtasks: Mapping[int, SubtaskState]
    fully_finished: bool


@dataclass(frozen=True)
class _Keyed:
    size_bytes: int
    present: bool


def read_master_states(cursor: ByteCursor) -> int:
    """Read over the states of master hooks; how many there are."""
    count = cursor.count(smallest=8)
    for _ in range(count):
        if cursor.int32() != _MASTER_STATE_MAGIC:
            raise cursor.damaged("no master state")
        cursor.skip(cursor.int32())
    return count


def read_operator(cursor: ByteCursor, version: int) -> OperatorHandles:
    """Read one operator; raises ``DamagedBytesError``, and ``ForeignBytesError`` for new kinds."""
    name = uid = None
    if version >= _VERSION_WITH_NAMES:
        name, uid = cursor.text() or None, cursor.text() or None
    operator_id = bytes(cursor.take(16)).hex()
    parallelism = _positive(cursor, "a parallelism")
    max_parallelism = _positive(cursor, "a maximal parallelism")
    coordinator = _stream(cursor)
    count = cursor.int32()
    if count < 0:
        if count != -1:
            raise cursor.damaged(f"a count of {count}")
        return OperatorHandles(
            operator_id, name, uid, parallelism, max_parallelism, coordinator, {}, True
        )
    if count > parallelism or count * 4 > cursor.left:
        raise cursor.damaged(f"{count} subtasks of {parallelism}")
    subtasks: dict[int, SubtaskState] = {}
    finished: set[int] = set()
    for _ in range(count):
        index = cursor.int32()
        done = index < 0
        index = -index - 1 if done else index
        if index >= parallelism or index in subtasks or index in finished:
            raise cursor.damaged(f"subtask {index} of {parallelism}")
        if done:
            finished.add(index)
        else:
            subtasks[index] = _subtask(cursor, version)
    return OperatorHandles(
        operator_id,
        name,
        uid,
        parallelism,
        max_parallelism,
        coordinator,
        subtasks,
        False,
    )


def _positive(cursor: ByteCursor, what: str) -> int:
    value = cursor.int32()
    if not 0 < value <= _MOST_PARALLEL:
        raise cursor.damaged(f"{what} of {value}")
    return value


def _subtask(cursor: ByteCursor, version: int) -> SubtaskState:
    # Managed, then raw; raw operator and keyed state is what timers of old operators use.
    lists = [_list_states(cursor) for _ in range(2) if _is_there(cursor)]
    keyed = [_keyed(cursor), _keyed(cursor)]
    channels = sum(_channel(cursor, version) for _ in range(2) for _ in range(cursor.count(17)))
    return SubtaskState(
        list_states=tuple(found for found in lists if found is not None),
        operator_bytes=sum(found.handle.size_bytes for found in lists if found is not None),
        keyed_bytes=sum(state.size_bytes for state in keyed),
        channel_bytes=channels,
        has_keyed_state=any(state.present for state in keyed),
    )


def _is_there(cursor: ByteCursor) -> bool:
    value = cursor.int32()
    if value not in (0, 1):
        raise cursor.damaged(f"neither one state nor none ({value})")
    return value == 1


def _list_states(cursor: ByteCursor) -> ListStates | None:
    kind = cursor.byte()
    if kind == 0:
        return None
    if kind not in (4, 17):
        raise cursor.foreign(f"an unknown kind of operator state ({kind})")
    offsets: dict[str, tuple[int, ...]] = {}
    for _ in range(cursor.count(smallest=7)):
        name = cursor.text()
        if name in offsets or cursor.byte() > 2:
            raise cursor.damaged(f"a wrong operator state {name!r}")
        offsets[name] = tuple(cursor.size() for _ in range(cursor.count(smallest=8)))
    if kind == 17:  # many subtasks share files: their two folders, and whether there is state
        cursor.text()
        cursor.text()
        cursor.flag()
    return ListStates(offsets, _stream(cursor))


def _stream(cursor: ByteCursor, depth: int = 0) -> StreamHandle:
    kind = cursor.byte()
    if kind in (0, 16):
        return StreamHandle()
    if kind == 1:
        cursor.text()
        inline = cursor.take(cursor.int32())
        return StreamHandle(len(inline), inline=inline)
    if kind == 2:
        size = cursor.size()
        return StreamHandle(size, path=cursor.text())
    if kind == 6:
        path = cursor.text()
        return StreamHandle(cursor.size(), path=path, relative=True)
    if kind == 3 and depth < _DEEPEST:
        _key_groups(cursor, with_offsets=True)
        return StreamHandle(_stream(cursor, depth + 1).size_bytes)
    if kind == 15:
        offset, size = cursor.size(), cursor.size()
        if cursor.int32() not in (0, 1):
            raise cursor.damaged("a wrong scope of state")
        path = cursor.text()
        cursor.text()  # the logical file's id
        return StreamHandle(size, path=path, offset=offset)
    raise cursor.foreign(f"an unknown kind of state handle ({kind})")


def _key_groups(cursor: ByteCursor, *, with_offsets: bool) -> None:
    first, count = cursor.int32(), cursor.int32()
    if first < 0 or count < 0 or first + count > _MOST_PARALLEL:
        raise cursor.damaged(f"key groups {first} to {first + count}")
    if with_offsets:
        cursor.skip(8 * count)


def _keyed(cursor: ByteCursor, depth: int = 0) -> _Keyed:
    kind = cursor.byte()
    if kind == 0:
        return _Keyed(0, False)
    if depth > _DEEPEST:
        raise cursor.damaged("keyed state nested too deeply")
    if kind in (3, 7, 12):
        _key_groups(cursor, with_offsets=True)
        size = _stream(cursor).size_bytes
        if kind == 12:
            cursor.text()
    elif kind in (5, 11):
        size = _incremental(cursor, named=kind == 11)
    elif kind in (8, 14):
        size = _changelog(cursor, depth, with_checkpoint_id=kind == 14)
    elif kind == 9:
        size = _changelog_in_memory(cursor)
    elif kind in (10, 13):
        size = _changelog_files(cursor, with_storage=kind == 13)
    else:
        raise cursor.foreign(f"an unknown kind of keyed state ({kind})")
    return _Keyed(size, True)


def _incremental(cursor: ByteCursor, *, named: bool) -> int:
    cursor.size()  # checkpoint id
    cursor.text()  # the state backend's id
    _key_groups(cursor, with_offsets=False)
    if named:
        cursor.int64()  # how much of it is new in this checkpoint; -1 when unknown
    size = _stream(cursor).size_bytes
    for _ in range(2):  # shared, then private files
        for _ in range(cursor.count(smallest=3)):
            cursor.text()
            size += _stream(cursor).size_bytes
    if named:
        cursor.text()
    return size


def _changelog(cursor: ByteCursor, depth: int, *, with_checkpoint_id: bool) -> int:
    _key_groups(cursor, with_offsets=False)
    cursor.int64()
    size = 0
    for _ in range(2):  # materialised, then not yet
        size += sum(_keyed(cursor, depth + 1).size_bytes for _ in range(cursor.count(smallest=1)))
    cursor.int64()
    if with_checkpoint_id:
        cursor.int64()
    cursor.text()
    return size


def _changelog_in_memory(cursor: ByteCursor) -> int:
    _key_groups(cursor, with_offsets=False)
    cursor.skip(16)
    size = 0
    for _ in range(cursor.count(smallest=8)):
        cursor.skip(4)
        size += len(cursor.take(cursor.int32()))
    cursor.text()
    return size


def _changelog_files(cursor: ByteCursor, *, with_storage: bool) -> int:
    _key_groups(cursor, with_offsets=False)
    for _ in range(cursor.count(smallest=9)):
        cursor.skip(8)
        _stream(cursor)
    size = cursor.size()
    cursor.int64()
    cursor.text()
    if with_storage:
        cursor.text()
    return size


def _channel(cursor: ByteCursor, version: int) -> int:
    """Records that were under way in an unaligned checkpoint; their size in bytes."""
    merged = False
    if version >= _VERSION_WITH_MERGED_CHANNELS:
        kind = cursor.byte()
        if not 1 <= kind <= 4:
            raise cursor.foreign(f"an unknown kind of channel state ({kind})")
        merged = kind >= 3
    cursor.skip(4)  # subtask
    if merged:
        size = cursor.size()
        _stream(cursor)
        cursor.skip(cursor.int32())
        return size
    cursor.skip(8)  # which channel
    cursor.skip(8 * cursor.count(smallest=8))
    size = cursor.size()
    _stream(cursor)
    return size

"""How far the sources of a checkpoint had read: Paimon's snapshots and Kafka's offsets.

(Source: Flink's ``SourceCoordinator``, ``SourceOperator``, ``OperatorBackendSerializationProxy``;
Paimon's ``PendingSplitsCheckpointSerializer`` and ``MonitorSource``; the Kafka connector's
``KafkaSourceEnumStateSerializer`` and ``KafkaPartitionSplitSerializer``.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lakehouse_dagster.flink.byte_cursor import ByteCursor, DamagedBytesError
from lakehouse_dagster.flink.operator_ids import murmur3_128
from lakehouse_dagster.flink.state_handles import OperatorHandles, StreamHandle

ReadState = Callable[[StreamHandle], "memoryview | None"]
"""Gives the bytes of a handle; None when they are not at hand."""

_READER_STATE = "SourceReaderState"
_PROXY_VERSIONS = range(4, 7)
_PROXY_VERSION_WITH_COMPRESSION = 6
_DATA_SPLIT = (-2394839472490812314).to_bytes(8, "big", signed=True)
"""What Paimon's splits begin with (``DataSplit.MAGIC``); then a version and the snapshot's id."""
_MONITOR = re.compile(r"2CS(?P<next>\d{1,18})|3NSS(?P<checkpoint>\d{1,18}):(?P<then>\d{1,18})")


class SourceKind(str, Enum):
    """Whose source it is; of ``OTHER`` no position is known, only whether it moved."""

    PAIMON = "paimon"
    KAFKA = "kafka"
    OTHER = "other"


@dataclass(frozen=True)
class ReadPosition:
    """How far one source had read when the checkpoint was taken.

    ``next_snapshot`` is the first of the table's snapshots that was not handed out yet;
    ``pending_splits`` are parts of earlier ones that were not read to their end, and
    ``oldest_pending_snapshot`` is the first that one of them is of. ``offsets`` maps
    ``topic/partition`` to the next record to read. ``exact`` says that everything before the
    position is in the checkpoint and nothing from it on: without it the position is an upper
    bound. ``digest`` changes whenever the source moves, also within a snapshot.
    """

    operator_id: str
    source_name: str | None
    kind: SourceKind
    next_snapshot: int | None = None
    pending_splits: int | None = None
    oldest_pending_snapshot: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict, hash=False)
    exact: bool = False
    digest: str = ""

    @property
    def first_needed_snapshot(self) -> int | None:
        """The first of a Paimon table's snapshots that would be read again; None if unknown."""
        if self.pending_splits == 0 or self.next_snapshot is None:
            return self.next_snapshot
        if self.oldest_pending_snapshot is None:
            return None
        return min(self.next_snapshot, self.oldest_pending_snapshot)


def operator_id(uid: str) -> str:
    """The id (32 hexadecimal digits) of an operator that has a uid."""
    return murmur3_128(uid.encode()).hex()


def paimon_source_uid(table: str, suffix: str) -> str:
    """The uid of Paimon's source of a table (its name without the database).

    ``suffix`` is the option ``source.operator-uid.suffix``. (Source: Paimon's
    ``FlinkConnectorOptions.generateCustomUid`` and ``FlinkSourceBuilder``, 1.3.1 and 2.0.0.)
    """
    return f"Source_{table}_{suffix}"


@dataclass(frozen=True)
class _Enumerator:
    """The state of a source's coordinator: which splits it has, what comes next."""

    version: int
    state: memoryview


def position_of(
    operator: OperatorHandles, checkpoint_id: int, read_state: ReadState
) -> ReadPosition | None:
    """The position of an operator that is a source; None when it is none.

    State that is not as expected gives an unknown position, never an error: whether the restore
    point can be used is for Flink to say.
    """
    enumerator = _enumerator(operator)
    if enumerator is None:
        return None
    splits = _reader_splits(operator, read_state)
    start = ReadPosition(
        operator.operator_id,
        operator.name,
        SourceKind.OTHER,
        digest=_digest(enumerator, splits or ()),
    )
    for recognised in (_of_paimon, _of_paimon_monitor, _of_kafka):
        found = recognised(start, enumerator, splits, operator, checkpoint_id)
        if found is not None:
            return found
    return start


def _enumerator(operator: OperatorHandles) -> _Enumerator | None:
    if operator.coordinator.inline is None:
        return None
    cursor = ByteCursor(operator.coordinator.inline)
    if cursor.left < 12 or cursor.int32() != 1:
        return None  # the coordinator of something else than a source
    version, length = cursor.int32(), cursor.int32()
    if length != cursor.left or not 0 <= version < 100:
        return None
    return _Enumerator(version, cursor.take(length))


# -- the readers' splits ------------------------------------------------------------------------


def _reader_splits(
    operator: OperatorHandles, read_state: ReadState
) -> tuple[memoryview, ...] | None:
    """The splits that readers had not finished; None when their state cannot be read."""
    splits: list[memoryview] = []
    for index in sorted(operator.subtasks):
        for lists in operator.subtasks[index].list_states:
            offsets = lists.offsets.get(_READER_STATE, ())
            if not offsets:
                continue
            data = read_state(lists.handle)
            try:
                if data is None or not _is_readable(data):
                    return None
                splits.extend(_split_at(data, offset) for offset in offsets)
            except DamagedBytesError:
                return None
    return tuple(splits)


def _is_readable(data: memoryview) -> bool:
    """Whether the state backend wrote it plainly: a known version, not compressed."""
    cursor = ByteCursor(data)
    version = cursor.int32()
    if version not in _PROXY_VERSIONS:
        return False
    return version < _PROXY_VERSION_WITH_COMPRESSION or not cursor.flag()


def _split_at(data: memoryview, offset: int) -> memoryview:
    if offset > len(data):
        raise DamagedBytesError(f"a split at {offset}, behind the end of its state")
    cursor = ByteCursor(data, offset)
    element = ByteCursor(cursor.take(cursor.int32()))
    element.skip(4)  # the serializer's version
    split = element.take(element.int32())
    element.at_end()
    return split


def _digest(enumerator: _Enumerator, splits: Sequence[memoryview]) -> str:
    digest = hashlib.sha256(enumerator.state)
    for split in sorted(bytes(split) for split in splits):
        digest.update(split)
    return digest.hexdigest()[:16]


# -- Paimon -------------------------------------------------------------------------------------


def _of_paimon(
    start: ReadPosition,
    enumerator: _Enumerator,
    splits: Sequence[memoryview] | None,
    operator: OperatorHandles,
    checkpoint_id: int,
) -> ReadPosition | None:
    """Splits that nobody reads yet, then the next snapshot (-1: none was looked at yet)."""
    if enumerator.version != 1:
        return None
    try:
        cursor = ByteCursor(enumerator.state)
        pending = [cursor.take(cursor.int32()) for _ in range(cursor.count(smallest=4))]
        following = cursor.int64()
        cursor.at_end()
    except DamagedBytesError:
        return None
    if following < -1 or not all(_is_paimon_split(split) for split in [*pending, *(splits or ())]):
        return None
    in_flight = None if splits is None else len(pending) + len(splits)
    snapshots = [_snapshot_of_split(split) for split in [*pending, *(splits or ())]]
    return replace(
        start,
        kind=SourceKind.PAIMON,
        next_snapshot=following if following >= 0 else None,
        pending_splits=in_flight,
        oldest_pending_snapshot=_oldest(snapshots) if in_flight else None,
        exact=in_flight == 0 and following >= 0,
    )


def _is_paimon_split(split: memoryview) -> bool:
    """Its id, then a Java object of Paimon, then the number of records to skip."""
    try:
        cursor = ByteCursor(split)
        cursor.text()
        if cursor.uint16() != 0xACED:
            return False
        return b"org.apache.paimon." in bytes(cursor.take(min(cursor.left, 512)))
    except DamagedBytesError:
        return False


def _snapshot_of_split(split: memoryview) -> int | None:
    """The snapshot whose files a split is of; None when it is of a kind that does not tell."""
    data = bytes(split)
    found = data.find(_DATA_SPLIT)
    at = found + len(_DATA_SPLIT) + 4  # behind the version, which every one so far has
    if found < 0 or at + 8 > len(data):
        return None
    number = int.from_bytes(data[at : at + 8], "big", signed=True)
    return number if number > 0 else None


def _oldest(snapshots: Sequence[int | None]) -> int | None:
    known = [snapshot for snapshot in snapshots if snapshot is not None]
    return min(known) if len(known) == len(snapshots) else None


def _of_paimon_monitor(
    start: ReadPosition,
    enumerator: _Enumerator,
    splits: Sequence[memoryview] | None,
    operator: OperatorHandles,
    checkpoint_id: int,
) -> ReadPosition | None:
    """A source with ``consumer-id``: texts ``2CS<next>`` and ``3NSS<checkpoint>:<next>``.

    It keeps no splits: whoever reads them downstream is done before the checkpoint is.
    """
    if len(enumerator.state) or not splits:
        return None
    values: dict[int | None, int] = {}
    for split in splits:
        found = _MONITOR.fullmatch(_monitor_text(split))
        if found is None:
            return None
        if found["next"]:
            values[None] = int(found["next"])
        else:
            values[int(found["checkpoint"])] = int(found["then"])
    following = values.get(None, values.get(checkpoint_id))
    # A restored monitor keeps what it knew of earlier checkpoints: ours must agree with itself.
    agrees = values.get(checkpoint_id, following) == following
    return replace(
        start,
        kind=SourceKind.PAIMON,
        next_snapshot=following if agrees else None,
        pending_splits=0,
        exact=following is not None and agrees,
        digest=str(following),  # the texts carry ids that are new with every checkpoint
    )


def _monitor_text(split: memoryview) -> str:
    """The value of a ``SimpleSourceSplit``, which follows its id; empty when it is none."""
    try:
        cursor = ByteCursor(split)
        cursor.skip(cursor.int32())
        value = bytes(cursor.take(cursor.int32()))
        cursor.at_end()
        return value.decode("ascii")
    except (DamagedBytesError, UnicodeDecodeError):
        return ""


# -- Kafka --------------------------------------------------------------------------------------


def _of_kafka(
    start: ReadPosition,
    enumerator: _Enumerator,
    splits: Sequence[memoryview] | None,
    operator: OperatorHandles,
    checkpoint_id: int,
) -> ReadPosition | None:
    try:
        assigned, waiting = _kafka_partitions(enumerator)
    except DamagedBytesError:
        return None
    try:
        found = dict(_kafka_split(split) for split in splits or ())
    except DamagedBytesError:
        return None
    # Negative numbers stand for "earliest", "latest" and the like: not looked up yet.
    offsets = {name: offset for name, offset in found.items() if offset >= 0}
    known = splits is not None
    return replace(
        start,
        kind=SourceKind.KAFKA,
        pending_splits=len(waiting) if known else None,
        offsets=offsets,
        exact=known and not waiting and bool(assigned) and assigned == set(offsets),
    )


def _kafka_partitions(enumerator: _Enumerator) -> tuple[set[str], set[str]]:
    """The partitions that have a reader, and those that do not yet."""
    if enumerator.version not in (1, 2):
        raise DamagedBytesError("no enumerator of Kafka")
    cursor = ByteCursor(enumerator.state)
    assigned: set[str] = set()
    waiting: set[str] = set()
    for _ in range(cursor.count(smallest=6)):
        name = _topic_partition(cursor)
        status = cursor.int32() if enumerator.version == 2 else 0
        if status not in (0, 1):
            raise cursor.damaged("an unknown status of a partition")
        (waiting if status else assigned).add(name)
    if enumerator.version == 2:
        cursor.flag()
    cursor.at_end()
    return assigned, waiting


def _kafka_split(split: memoryview) -> tuple[str, int]:
    cursor = ByteCursor(split)
    name, offset = _topic_partition(cursor), cursor.int64()
    cursor.skip(8)  # where to stop
    cursor.at_end()
    return name, offset


def _topic_partition(cursor: ByteCursor) -> str:
    topic, partition = cursor.text(), cursor.int32()
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or partition < 0:
        raise cursor.damaged("no topic and partition of Kafka")
    return f"{topic}/{partition}"

"""How far a job's sources had read at a checkpoint: read, kept as text, compared, told by table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse_dagster.flink import ReadPosition, SourceKind, known_checkpoint_metadata
from lakehouse_dagster.flink.source_positions import operator_id, paimon_source_uid
from lakehouse_dagster.sql.model import TableName
from lakehouse_dagster.streaming import settings as job_settings

LARGEST_METADATA_BYTES = 2 * 1024 * 1024
"""A larger ``_metadata`` is not read in a supervisor's tick: its positions stay unknown."""
_FORMAT = 1


@dataclass(frozen=True)
class ReadPositions:
    """How far a job's sources had read at one checkpoint (``path``, as Flink names it)."""

    path: str
    checkpoint_id: int
    positions: tuple[ReadPosition, ...]


def read_positions(checkpoint_path: str) -> ReadPositions | None:
    """How far a job's sources had read at a checkpoint; None when it cannot be known.

    One small file is read: made for asking about many jobs in turn. A checkpoint that Flink has
    replaced meanwhile is one that cannot be known.
    """
    metadata = known_checkpoint_metadata(checkpoint_path, largest_bytes=LARGEST_METADATA_BYTES)
    if metadata is None:
        return None
    return ReadPositions(checkpoint_path, metadata.checkpoint_id, metadata.positions)


def positions_to_text(positions: ReadPositions) -> str:
    """The positions as JSON, for the ``read_positions`` of an incarnation."""
    document = {
        "format": _FORMAT,
        "path": positions.path,
        "checkpoint_id": positions.checkpoint_id,
        "positions": [
            {**vars(position), "kind": position.kind.value, "offsets": dict(position.offsets)}
            for position in positions.positions
        ],
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def positions_from_text(text: str | None) -> ReadPositions | None:
    """The positions that ``positions_to_text`` wrote; None for anything else."""
    try:
        document = json.loads(text or "null")
        if not isinstance(document, dict) or document["format"] != _FORMAT:
            return None
        return ReadPositions(
            str(document["path"]),
            int(document["checkpoint_id"]),
            tuple(_position(entry) for entry in document["positions"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _position(entry: Mapping[str, Any]) -> ReadPosition:
    return ReadPosition(**{**entry, "kind": SourceKind(entry["kind"])})


def moved(previous: ReadPositions, present: ReadPositions) -> bool:
    """Whether any source got on between two checkpoints, in either direction or within a split."""
    before = {position.operator_id: _mark(position) for position in previous.positions}
    after = {position.operator_id: _mark(position) for position in present.positions}
    return before != after


def _mark(position: ReadPosition) -> tuple[object, ...]:
    return position.next_snapshot, position.digest, tuple(sorted(position.offsets.items()))


def tables_of(
    positions: Iterable[ReadPosition], reads: Sequence[TableName], operator_name: str
) -> dict[str, str]:
    """Which table (``database.table``) each Paimon source reads, by operator id.

    By the id, which follows from the table's name where the ids are ours; else by the source's
    name; else, when one source and one table are left over, those belong together.
    """
    paimon = [position for position in positions if position.kind is SourceKind.PAIMON]
    by_id: dict[str, set[str]] = {}
    by_name: dict[str, set[str]] = {}
    for table in reads:
        uid = paimon_source_uid(table.table, job_settings.uid_suffix(table, operator_name))
        by_id.setdefault(operator_id(uid), set()).add(table.key)
        by_name.setdefault(table.table, set()).add(table.key)
        by_name.setdefault(table.key, set()).add(table.key)
    found: dict[str, str] = {}
    for position in paimon:
        tables = by_id.get(position.operator_id) or by_name.get(_table_in(position), set())
        if len(tables) == 1:
            found[position.operator_id] = next(iter(tables))
    left = [position for position in paimon if position.operator_id not in found]
    tables_left = {table.key for table in reads} - set(found.values())
    if len(left) == len(tables_left) == 1:
        found[left[0].operator_id] = tables_left.pop()
    return found


def _table_in(position: ReadPosition) -> str:
    """The table that a source's name names: ``Source: t[7]``, ``Source: cat.db.t-Monitor``."""
    name = (position.source_name or "").removeprefix("Source: ")
    monitored = re.fullmatch(r"[^.]+\.(.+)-Monitor", name)
    return monitored[1] if monitored else re.sub(r"\[\d+\]$", "", name)

"""From an action to the CALLs that carry it out, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakehouse_dagster.flink.procedures import call, call_positional
from lakehouse_dagster.flink.quoting import string_literal
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Partition
from lakehouse_dagster.maintenance.budget import COMPACTIONS, ActionGroup
from lakehouse_dagster.maintenance.expire import EXPIRIES
from lakehouse_dagster.streaming.partitions import DEFAULT_PARTITION

_LONGEST_CHOICE = 16_000
"""Characters of the partitions that one CALL names."""
_PLAIN_VALUE = re.compile(r"[^,;='\\]+")
_TIME_ZONES_DIFFER = timedelta(hours=14)
"""The gateway reads a point in time in the time zone of its JVM, which nobody tells us: files are
taken for orphans only if they are old enough in every time zone."""


@dataclass(frozen=True)
class Call:
    """One CALL.

    Args:
        starts_job: whether a Flink job does the work; else the gateway does it by itself.
    """

    text: str
    starts_job: bool


def calls_of(group: ActionGroup) -> tuple[Call, ...]:
    """The CALLs that carry out what the group's actions are due for, in order.

    None for expiries, whose CALLs are worked out one by one (``expire.py``).

    Args:
        group: one action, or compactions of one kind.
    """
    if len(group.actions) > 1:
        text = compact_together(group.tables, _strategy(group.actions[0]))
        return (Call(text, starts_job=True),)
    (action,) = group.actions
    if action.kind in COMPACTIONS:
        return tuple(_compactions(action))
    if action.kind is ActionKind.EXPIRE_PARTITIONS:
        return tuple(_drop_partitions(action))
    if action.kind in EXPIRIES:
        return ()
    if action.kind is ActionKind.EXPIRE_TAGS:
        return tuple(
            Call(call("delete_tag", table=action.table, tag=name), starts_job=False)
            for name in action.names
        )
    if action.kind is ActionKind.COMPACT_MANIFESTS:
        return (Call(call("compact_manifest", table=action.table), starts_job=False),)
    return (_orphans(action),)


def _compactions(action: Action) -> Iterator[Call]:
    arguments: dict[str, str] = {"table": action.table, "compact_strategy": _strategy(action)}
    if action.partitions is None:
        yield Call(call("compact", **arguments), starts_job=True)
        return
    for some in _in_parts(action.partitions):
        yield Call(call("compact", **arguments, **_chosen(some)), starts_job=True)


def _in_parts(partitions: Sequence[Partition]) -> Iterator[list[Partition]]:
    """The partitions, as many at a time as one statement may well name."""
    part: list[Partition] = []
    size = 0
    for partition in partitions:
        written = len(_as_condition(partition))
        if part and size + written > _LONGEST_CHOICE:
            yield part
            part, size = [], 0
        part.append(partition)
        size += written
    if part:
        yield part


def compact_together(tables: Sequence[str], strategy: str | None = None) -> str:
    """The CALL that compacts several tables by one Flink job: once, or always if it streams."""
    databases = sorted({table.split(".", 1)[0] for table in tables})
    return call(
        "compact_database",
        including_databases="|".join(map(_literally, databases)),
        including_tables="|".join(map(_literally, tables)),
        mode="combined",
        compact_strategy=strategy,
    )


def _strategy(action: Action) -> str:
    return "full" if action.kind is ActionKind.COMPACT_FULL else "minor"


def _literally(name: str) -> str:
    """The name as a regular expression of Java's that fits nothing else."""
    return re.sub(r"([\\.\[\]{}()*+\-?^$|#&~\s])", r"\\\1", name)


def _chosen(partitions: Sequence[Partition]) -> dict[str, str]:
    """The argument that chooses partitions; values that its own syntax would cut need SQL."""
    if all(map(is_plain, partitions)):
        return {"partitions": ";".join(map(_as_spec, partitions))}
    return {"where": " OR ".join(f"({_as_condition(partition)})" for partition in partitions)}


def partition_spec(partition: Partition) -> str | None:
    """The partition as procedures take it; None where their syntax would cut a value."""
    return _as_spec(partition) if is_plain(partition) else None


def is_plain(partition: Partition) -> bool:
    """Whether it can be written as ``column=value,…`` without being read as something else."""
    return all(value is None or _PLAIN_VALUE.fullmatch(value) for _, value in partition)


def _as_spec(partition: Partition) -> str:
    return ",".join(f"{c}={DEFAULT_PARTITION if v is None else v}" for c, v in partition)


def _as_condition(partition: Partition) -> str:
    return " AND ".join(
        f"{column} IS NULL" if value is None else f"{column} = {string_literal(value)}"
        for column, value in partition
    )


def _drop_partitions(action: Action) -> Iterator[Call]:
    for some in _in_parts(action.partitions or ()):
        text = call_positional("drop_partition", action.table, *map(_as_spec, some))
        yield Call(text, starts_job=False)


def _orphans(action: Action) -> Call:
    older_than = (action.older_than or datetime.min) - _TIME_ZONES_DIFFER
    text = call(
        "remove_orphan_files",
        table=action.table,
        older_than=f"{older_than:%Y-%m-%d %H:%M:%S}",
        dry_run=action.kind is ActionKind.FIND_ORPHANS,
        mode="local",
    )
    return Call(text, starts_job=False)

"""From an action to the CALLs that carry it out, as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakehouse_dagster.flink.procedures import call, call_positional
from lakehouse_dagster.flink.quoting import string_literal
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Partition
from lakehouse_dagster.maintenance.budget import ActionGroup

_ALL = 2_147_483_647
_PLAIN_VALUE = re.compile(r"[^,;='\\]+")
_TIME_ZONES_DIFFER = timedelta(hours=14)
"""The gateway reads a point in time in the time zone of its JVM, which nobody tells us: files are
taken for orphans only if they are old enough in every time zone."""

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Call:
    """One CALL.

    Args:
        starts_job: whether a Flink job does the work; else the gateway does it by itself.
        until_nothing: it does a bounded part each time, and is called until nothing is left.
    """

    text: str
    starts_job: bool
    until_nothing: bool = False


def calls_of(group: ActionGroup, now: datetime) -> tuple[Call, ...]:
    """The CALLs that carry out what the group's actions are due for, in order.

    Args:
        group: one action, or compactions of one kind.
        now: the time, aware: what is old enough follows from it.
    """
    if len(group.actions) > 1:
        return (_compact_together(group.actions),)
    (action,) = group.actions
    if action.kind in (ActionKind.COMPACT, ActionKind.COMPACT_FULL):
        return (_compact(action),)
    if action.kind is ActionKind.EXPIRE_SNAPSHOTS:
        return (_expire_snapshots(action, now),)
    if action.kind is ActionKind.EXPIRE_CHANGELOGS:
        text = call(
            "expire_changelogs", table=action.table, retain_max=action.keep, retain_min=action.keep
        )
        return (Call(text, starts_job=False, until_nothing=True),)
    if action.kind is ActionKind.EXPIRE_PARTITIONS:
        return (_drop_partitions(action),)
    if action.kind is ActionKind.EXPIRE_TAGS:
        return tuple(
            Call(call("delete_tag", table=action.table, tag=name), starts_job=False)
            for name in action.names
        )
    if action.kind is ActionKind.COMPACT_MANIFESTS:
        return (Call(call("compact_manifest", table=action.table), starts_job=False),)
    return (_orphans(action),)


def _compact(action: Action) -> Call:
    arguments: dict[str, str] = {"table": action.table, "compact_strategy": _strategy(action)}
    if action.partitions is not None:
        arguments |= _chosen(action.partitions)
    return Call(call("compact", **arguments), starts_job=True)


def _compact_together(actions: Sequence[Action]) -> Call:
    databases = sorted({action.table.split(".", 1)[0] for action in actions})
    text = call(
        "compact_database",
        including_databases="|".join(map(literally, databases)),
        including_tables="|".join(literally(action.table) for action in actions),
        mode="combined",
        compact_strategy=_strategy(actions[0]),
    )
    return Call(text, starts_job=True)


def _strategy(action: Action) -> str:
    return "full" if action.kind is ActionKind.COMPACT_FULL else "minor"


def literally(name: str) -> str:
    """The name as a regular expression of Java's that fits nothing else."""
    return re.sub(r"([\\.\[\]{}()*+\-?^$|#&~\s])", r"\\\1", name)


def _chosen(partitions: Sequence[Partition]) -> dict[str, str]:
    """The argument that chooses partitions; values that its own syntax would cut need SQL."""
    plain = all(
        value is None or _PLAIN_VALUE.fullmatch(value)
        for partition in partitions
        for _, value in partition
    )
    if plain:
        return {"partitions": ";".join(map(_as_spec, partitions))}
    return {"where": " OR ".join(f"({_as_condition(partition)})" for partition in partitions)}


def partition_spec(partition: Partition) -> str | None:
    """The partition as procedures take it; None where their syntax would cut a value."""
    if not all(value is None or _PLAIN_VALUE.fullmatch(value) for _, value in partition):
        return None
    return _as_spec(partition)


def _as_spec(partition: Partition) -> str:
    return ",".join(f"{c}={DEFAULT_PARTITION if v is None else v}" for c, v in partition)


def _as_condition(partition: Partition) -> str:
    return " AND ".join(
        f"{column} IS NULL" if value is None else f"{column} = {string_literal(value)}"
        for column, value in partition
    )


def _drop_partitions(action: Action) -> Call:
    specs = [_as_spec(partition) for partition in action.partitions or ()]
    return Call(call_positional("drop_partition", action.table, *specs), starts_job=False)


def _expire_snapshots(action: Action, now: datetime) -> Call:
    """What is old enough is told by an age, which no time zone changes."""
    age = now - (action.older_than or now)
    text = call(
        "expire_snapshots",
        table=action.table,
        retain_min=action.keep or 1,
        retain_max=_ALL,
        options=f"snapshot.time-retained={int(age.total_seconds() * 1000)} ms",
    )
    return Call(text, starts_job=False, until_nothing=True)


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

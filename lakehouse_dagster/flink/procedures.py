"""Paimon's procedures as the engines have them, and the CALL that runs one.

An argument that a procedure does not know is silently ignored by the engine (run on both), so a
name is checked here against the list that the tests read out of the engines' own classes.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.flink.quoting import string_literal

Argument = str | int | bool

PROCEDURES: Mapping[str, tuple[str, ...]] = {
    "compact": (
        "table",
        "partitions",
        "order_strategy",
        "order_by",
        "options",
        "where",
        "partition_idle_time",
        "compact_strategy",
    ),
    "compact_database": (
        "including_databases",
        "mode",
        "including_tables",
        "excluding_tables",
        "table_options",
        "partition_idle_time",
        "compact_strategy",
    ),
    "compact_manifest": ("table", "options"),
    "expire_snapshots": (
        "table",
        "retain_max",
        "retain_min",
        "older_than",
        "max_deletes",
        "options",
    ),
    "expire_changelogs": (
        "table",
        "retain_max",
        "retain_min",
        "older_than",
        "max_deletes",
        "delete_all",
    ),
    "expire_partitions": (
        "table",
        "expiration_time",
        "timestamp_formatter",
        "timestamp_pattern",
        "expire_strategy",
        "max_expires",
        "options",
    ),
    "delete_tag": ("table", "tag"),
    "remove_orphan_files": ("table", "older_than", "dry_run", "parallelism", "mode"),
    "rescale": ("table", "bucket_num", "partition", "scan_parallelism", "sink_parallelism"),
}
"""Names and arguments of the procedures that are used, alike in Paimon 1.3.1 and 2.0.0."""


def call(procedure: str, **arguments: Argument | None) -> str:
    """The text of a CALL with named arguments; those that are None are left out.

    Args:
        procedure: its name, without ``sys.``.
        arguments: by name.

    Raises:
        UnsupportedByEngineError: the procedure has no such argument.
    """
    known = PROCEDURES[procedure]
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise UnsupportedByEngineError(
            f"Paimon's procedure {procedure} has no argument {', '.join(unknown)}.",
            remedy=f"Its arguments are {', '.join(known)}.",
        )
    given = (f"`{n}` => {_literal(value)}" for n, value in arguments.items() if value is not None)
    return f"CALL sys.{procedure}({', '.join(given)})"


def call_positional(procedure: str, *arguments: str) -> str:
    """The text of a CALL of a procedure that takes any number of arguments, without names."""
    return f"CALL sys.{procedure}({', '.join(map(_literal, arguments))})"


def _literal(value: Argument) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else string_literal(value)

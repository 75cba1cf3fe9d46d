"""``SET`` and ``RESET``: read as text, because a bare value is no SQL expression.

The SQL Client takes ``SET 'key' = 'value'`` and, from older versions, ``SET key = value``
(Flink's ``SetOperationParseStrategy``).
"""

from __future__ import annotations

import difflib
import re

from lakehouse_dagster.sql.scanner import scan

_QUOTED = r"'(?:[^']|'')*'"
_SET = re.compile(rf"SET\s+({_QUOTED}|[^\s='`]+)\s*=\s*({_QUOTED}|[^\s'][^']*)?\s*", re.I)
_RESET = re.compile(rf"RESET(?:\s+({_QUOTED}|[^\s'`]+))?\s*", re.I)

# Options that scripts set often, where a slip of the pen would go unnoticed. Keys that resemble
# another one of Flink's are left out together with it.
_COMMON_OPTIONS = (
    "pipeline.name",
    "pipeline.object-reuse",
    "pipeline.operator-chaining.enabled",
    "execution.runtime-mode",
    "execution.checkpointing.interval",
    "execution.checkpointing.timeout",
    "execution.checkpointing.mode",
    "execution.checkpointing.min-pause",
    "execution.checkpointing.unaligned.enabled",
    "execution.checkpointing.max-concurrent-checkpoints",
    "execution.checkpointing.externalized-checkpoint-retention",
    "execution.savepoint.path",
    "parallelism.default",
    "restart-strategy.type",
    "state.backend.type",
    "state.checkpoints.dir",
    "state.savepoints.dir",
    "sql-client.execution.result-mode",
    "table.sql-dialect",
    "table.local-time-zone",
    "table.dynamic-table-options.enabled",
    "table.dml-sync",
    "table.exec.state.ttl",
    "table.exec.resource.default-parallelism",
    "table.exec.source.idle-timeout",
    "table.exec.sink.upsert-materialize",
    "table.exec.sink.not-null-enforcer",
    "table.exec.mini-batch.enabled",
    "table.exec.mini-batch.allow-latency",
    "table.exec.mini-batch.size",
    "table.optimizer.agg-phase-strategy",
    "table.optimizer.distinct-agg.split.enabled",
    "table.optimizer.join-reorder-enabled",
    "table.optimizer.reuse-source-enabled",
    "table.optimizer.reuse-sub-plan-enabled",
)


def parse_set(statement: str) -> tuple[str, str] | None:
    """Return key and value of a SET statement, or None if it has another form."""
    match = _SET.fullmatch(_without_comments(statement))
    return (_unquoted(match[1]), _unquoted(match[2] or "")) if match else None


def parse_reset(statement: str) -> str | None:
    """Return the key of a RESET statement, or None if it resets all (or has another form)."""
    match = _RESET.fullmatch(_without_comments(statement))
    return _unquoted(match[1]) if match and match[1] else None


def misspelt_option(key: str) -> str | None:
    """Return the option that a key is probably meant to be, if it is none but nearly one."""
    if key in _COMMON_OPTIONS:
        return None
    close = difflib.get_close_matches(key, _COMMON_OPTIONS, n=1, cutoff=0.9)
    # Options in families differ by whole words; a slip changes few letters of one.
    return close[0] if close and key.count(".") == close[0].count(".") else None


def _without_comments(text: str) -> str:
    return "".join(" " if t.is_trivia else t.text for t in scan(text)).strip()


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text

"""What could be better in scripts that work, each with its reason and place.

For ``lakehouse plan``; loading a project never asks for it.

The figures are those of Paimon's own defaults (its page "Configurations") and of pipelines that
run with checkpoints every one to two minutes and about 1 GB a bucket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse_dagster.sizes import bytes_of
from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import (
    JobDefinition,
    Location,
    Problem,
    Project,
    Script,
    Severity,
    Statement,
    StatementKind,
    TableDefinition,
    TableName,
)
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.settings import parse_set
from lakehouse_dagster.sql.statements import place_in

_INTERVAL = "execution.checkpointing.interval"
_MANY_BUCKETS = 64
_MEBIBYTE = 1024**2
_WRITE_BUFFER = (256 * _MEBIBYTE, 1024 * _MEBIBYTE)
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.I)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class _OptionRule:
    """When an option's value gets advice; ``low`` and ``high`` are the bounds it should keep."""

    low: float | None
    high: float | None
    when_low: str
    when_high: str
    remedy: str


_COUNT_RULES = {
    "bucket": _OptionRule(
        None,
        _MANY_BUCKETS,
        "",
        "every partition has so many buckets, and each gets files at every checkpoint",
        "Aim at about 1 GB a bucket.",
    ),
    "num-sorted-run.compaction-trigger": _OptionRule(
        5,
        5,
        "compaction runs more often and rewrites more bytes",
        "more sorted runs pile up before compaction, so reading gets slower",
        "Leave it at its default, 5.",
    ),
    "num-sorted-run.stop-trigger": _OptionRule(
        8,
        None,
        "writing stops for compaction earlier, and the job's checkpoints with it",
        "",
        "Leave it at its default.",
    ),
    "snapshot.num-retained.min": _OptionRule(
        10,
        None,
        "a reader that lags, and whoever looks into yesterday, may find its snapshot gone",
        "",
        "Leave it at its default, 10.",
    ),
}
_SIZE_RULES = {
    "write-buffer-size": _OptionRule(
        *_WRITE_BUFFER,
        "every full buffer becomes a file of its own: small files",
        "every writer of a bucket may use so much memory",
        "Leave it at its default, 256 mb.",
    ),
}
_DURATION_RULES = {
    "snapshot.time-retained": _OptionRule(
        3600,
        86400,
        "a reader that lags may find its snapshot gone",
        "files of old snapshots stay, and planning a read gets slower",
        "Leave it at its default, 1 h; keep what must stay readable as a tag.",
    ),
}
_CHECKPOINT_RULE = _OptionRule(
    60,
    120,
    "each checkpoint writes at least one file a bucket: small files, dear compaction",
    "data becomes visible with a checkpoint only, so readers see it that late",
    "One to two minutes do well.",
)


def advise(project: Project) -> tuple[Problem, ...]:
    """Return advice on a project's jobs, settings and tables, by place."""
    found = [
        *_on_jobs(project),
        *_on_tables(project),
        *_on_changelogs(project),
        *_on_writers(project),
    ]
    order = {script.path: number for number, script in enumerate(project.scripts)}
    return tuple(
        sorted(
            found,
            key=lambda p: (order.get(p.location.path, 0), p.location.line, p.location.column),
        )
    )


# jobs and their settings


def _on_jobs(project: Project) -> Iterator[Problem]:
    intervals = {script.path: _intervals(script) for script in project.scripts}
    told: set[Location | str] = set()
    for job in project.jobs:
        if not job.name_is_explicit:
            yield _advice(
                job.statement,
                f"The job has no name of its own; {job.name!r} is made of the file's.",
                "SET 'pipeline.name' before it, so that it keeps its name when files move.",
            )
        yield from _on_checkpoints(job, intervals.get(job.location.path, ()), told)


def _on_checkpoints(
    job: JobDefinition, intervals: Sequence[Statement], told: set[Location | str]
) -> Iterator[Problem]:
    """Advice on what sets the interval of a job's checkpoints, or on its file where nothing does.

    Args:
        intervals: The statements of its file that set it.
        told: What was told of before; what is told of now is added.
    """
    value = job.settings.get(_INTERVAL)
    if value is None:
        if job.location.path not in told:
            told.add(job.location.path)
            yield _advice(
                job.statement,
                f"Nothing sets {_INTERVAL}: without checkpoints Paimon never commits, unless the "
                "cluster has a default.",
                f"SET '{_INTERVAL}' = '1 min' before it.",
            )
        return
    found = _outside(_INTERVAL, value, _seconds(value), _CHECKPOINT_RULE)
    if found is None:
        return
    before = [s for s in intervals if _place(s.location) < _place(job.location)]
    at = before[-1] if before else job.statement
    if at.location not in told:
        told.add(at.location)
        yield _advice(at, *found)


def _intervals(script: Script) -> list[Statement]:
    return [
        statement
        for statement in script.statements
        if statement.kind is StatementKind.SET
        and (parse_set(statement.text) or ("",))[0] == _INTERVAL
    ]


def _place(location: Location) -> tuple[int, int]:
    return location.line, location.column


# tables


def _on_tables(project: Project) -> Iterator[Problem]:
    statements = {s.location: s for script in project.scripts for s in script.statements}
    for table in project.tables:
        statement = statements.get(table.location)
        if statement is None:
            continue
        yield from _on_options(table, statement)
        outside = [key for key in table.partition_keys if key not in table.primary_key]
        if table.primary_key and outside:
            yield _advice(
                statement,
                f"The primary key of {table.name.key} lacks {', '.join(outside)}, by which it is "
                "partitioned: Paimon must find each key's partition, with an index in the "
                "writer's state.",
                "Add the partition's columns to the primary key, if a row never moves.",
            )


def _on_options(table: TableDefinition, statement: Statement) -> Iterator[Problem]:
    for key, value in table.options.items():
        found = None
        if key in _COUNT_RULES:
            found = _outside(key, value, _number(value), _COUNT_RULES[key])
        elif key in _SIZE_RULES:
            found = _outside(key, value, bytes_of(value), _SIZE_RULES[key])
        elif key in _DURATION_RULES:
            found = _outside(key, value, _seconds(value), _DURATION_RULES[key])
        if found is not None:
            yield _advice(statement, *found, location=_option_place(statement, key))


def _option_place(statement: Statement, key: str) -> Location:
    for token in scan(statement.text):
        if token.kind is TokenKind.STRING and token.text == f"'{key}'":
            return place_in(statement, token.offset)
    return statement.location


# what only the whole project shows


def _on_changelogs(project: Project) -> Iterator[Problem]:
    statements = {s.location: s for script in project.scripts for s in script.statements}
    readers = _by_table((job, job.reads) for job in project.jobs)
    for table in project.tables:
        without = table.options.get("changelog-producer", "none").lower() == "none"
        reading = readers.get(table.name, ())
        if table.location in statements and table.primary_key and without and reading:
            yield _advice(
                statements[table.location],
                f"{_named(reading)} read{'s' if len(reading) == 1 else ''} {table.name.key} as a "
                "stream, but it keeps no changelog: Flink holds the whole table in state to work "
                "out what changed.",
                "Set 'changelog-producer', to 'input' where the writer's input is a complete "
                "changelog, else to 'lookup'.",
            )


def _on_writers(project: Project) -> Iterator[Problem]:
    tables = {table.name: table for table in project.tables}
    for name, jobs in _by_table((job, job.sinks) for job in project.jobs).items():
        table = tables.get(name)
        if len(jobs) < 2 or table is None or not table.columns_known or not table.primary_key:
            continue
        if table.options.get("bucket", "-1") == "-1":
            yield _advice(
                jobs[1].statement,
                f"{_named(jobs)} write {name.key}, whose buckets are dynamic: two jobs give one "
                "key different buckets, so rows are doubled.",
                "Give the table a fixed number of buckets, or write it by one job.",
            )
        elif table.options.get("write-only", "false").lower() != "true":
            yield _advice(
                jobs[1].statement,
                f"{_named(jobs)} write {name.key}, and each compacts it: they restart each other "
                "by conflicts.",
                "Set 'write-only' = 'true' and compact it by a job of its own, or write it by one "
                "job.",
            )


def _by_table(
    pairs: Iterable[tuple[JobDefinition, tuple[TableName, ...]]],
) -> Mapping[TableName, Sequence[JobDefinition]]:
    found: dict[TableName, list[JobDefinition]] = {}
    for job, tables in pairs:
        for table in tables:
            found.setdefault(table, []).append(job)
    return found


def _named(jobs: Sequence[JobDefinition]) -> str:
    names = [job.name for job in jobs]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# values


def _outside(
    key: str, written: str, value: float | None, rule: _OptionRule
) -> tuple[str, str] | None:
    """Return message and remedy for a value outside the rule's bounds."""
    if value is None or value < 0:
        return None
    reason = ""
    if rule.low is not None and value < rule.low:
        reason = rule.when_low
    elif rule.high is not None and value > rule.high:
        reason = rule.when_high
    return (f"{key} is {written}: {reason}.", rule.remedy) if reason else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    """Read a duration as Flink does: a bare number is milliseconds (``TimeUtils``)."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].lower()
    each = 0.001 if unit in ("", "ms") or unit.startswith("milli") else _SECONDS.get(unit[0])
    return None if each is None else int(match[1]) * each


def _advice(
    statement: Statement, message: str, remedy: str, *, location: Location | None = None
) -> Problem:
    return Problem(
        location or statement.location, Severity.ADVICE, message, remedy, beginning(statement)
    )

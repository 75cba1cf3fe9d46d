"""What only the whole project shows: jobs that get in each other's way, tables nobody declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import (
    JobDefinition,
    Location,
    Problem,
    Script,
    Severity,
    Statement,
    TableDefinition,
    TableName,
    unique,
)
from lakehouse_dagster.sql.scanner import TokenKind, scan
from lakehouse_dagster.sql.statements import place_in
from lakehouse_dagster.sql.variables import missing_in

_SHARED_ENGINES = ("partial-update", "aggregation")


def same_name(known: JobDefinition, job: JobDefinition) -> Problem:
    """The error of a job that has the name of another."""
    return Problem(
        location=job.location,
        severity=Severity.ERROR,
        message=f"Two jobs are named {job.name}; the other is at {known.location}.",
        remedy="SET 'pipeline.name' to another name before one of them.",
        statement_start=beginning(job.statement),
    )


def undeclared(
    jobs: Iterable[JobDefinition], tables: Mapping[TableName, TableDefinition]
) -> Iterator[Problem]:
    """Tables of the lake that jobs name and no script declares."""
    for job in jobs:
        unknown = [name for name in unique((*job.reads, *job.sinks)) if name not in tables]
        if unknown:
            places = _PlacesOfTables(job.statement)
            for name in unknown:
                verb = "reads" if name in job.reads else "writes"
                yield _warning(
                    job,
                    f"The job {job.name} {verb} {name.key}, which no script declares.",
                    "Add its CREATE TABLE IF NOT EXISTS to a script, if it is not made elsewhere.",
                    places.find(name),
                )


def several_writers(
    jobs: Iterable[JobDefinition], tables: Mapping[TableName, TableDefinition]
) -> Iterator[Problem]:
    """Tables that several jobs write though their merge engine is not made for it."""
    writers: dict[TableName, JobDefinition] = {}
    for job in jobs:
        for name in job.sinks:
            first = writers.setdefault(name, job)
            table = tables.get(name)
            if first is job or table is None:
                continue
            if table.options.get("merge-engine", "").lower() not in _SHARED_ENGINES:
                yield _warning(
                    job,
                    f"The jobs {first.name} and {job.name} both write {name.key}.",
                    "Put both INSERTs into one statement set, or UNION ALL them, unless each has "
                    "rows of its own.",
                )


def cycles(jobs: Sequence[JobDefinition]) -> Iterator[Problem]:
    """Jobs that read what they write, directly or by way of others: each table in one cycle."""
    upstream: dict[TableName, dict[TableName, JobDefinition]] = {}
    for job in jobs:
        if job.reads_itself:
            own = ", ".join(flow.sink.key for flow in job.flows if flow.sink and flow.reads_itself)
            yield _warning(
                job,
                f"The job {job.name} reads {own}, which it writes.",
                "It is no dependency of the asset on itself; see that the job comes to an end "
                "with what it feeds to itself.",
            )
        for flow in job.flows:
            if flow.sink is not None:
                upstream.setdefault(flow.sink, {}).update(dict.fromkeys(flow.reads, job))
    told: set[TableName] = set()
    for start, circle in _in_circles(upstream).items():
        if start in told:
            continue
        cycle = _cycle_through(start, upstream, circle)
        told.update(cycle)
        job = upstream[cycle[0]][cycle[1]]
        names = " <- ".join(name.key for name in (*cycle, cycle[0]))
        yield _warning(
            job,
            f"Tables are made from each other: {names}.",
            "One of these dependencies is left out of the asset graph.",
        )


_Upstream = Mapping[TableName, Mapping[TableName, JobDefinition]]


def _in_circles(upstream: _Upstream) -> dict[TableName, frozenset[TableName]]:
    """Each table that is made from itself by way of others, with all that it is in circles with.

    Tarjan's strongly connected components, without recursion: chains may be thousands long.
    """
    found: dict[TableName, frozenset[TableName]] = {}
    order: dict[TableName, int] = {}
    lowest: dict[TableName, int] = {}
    open_: dict[TableName, None] = {}
    for start in upstream:
        if start in order:
            continue
        order[start] = lowest[start] = len(order)
        open_[start] = None
        way = [(start, iter(upstream[start]))]
        while way:
            table, above = way[-1]
            following = next(above, None)
            if following is None:
                way.pop()
                if way:
                    below = way[-1][0]
                    lowest[below] = min(lowest[below], lowest[table])
                if lowest[table] == order[table]:
                    circle = [open_.popitem()[0]]
                    while circle[-1] != table:
                        circle.append(open_.popitem()[0])
                    if len(circle) > 1:
                        found |= dict.fromkeys(circle, frozenset(circle))
            elif following not in order:
                order[following] = lowest[following] = len(order)
                open_[following] = None
                way.append((following, iter(upstream.get(following, ()))))
            elif following in open_:
                lowest[table] = min(lowest[table], order[following])
    return {table: found[table] for table in upstream if table in found}


def _cycle_through(
    start: TableName, upstream: _Upstream, circle: frozenset[TableName]
) -> tuple[TableName, ...]:
    """The shortest way from a table upstream back to it, within its circle."""
    below: dict[TableName, TableName] = {}
    waiting = [start]
    for table in waiting:
        for above in upstream[table]:
            if above == start and table != start:
                cycle = [table]
                while cycle[-1] != start:
                    cycle.append(below[cycle[-1]])
                return tuple(reversed(cycle))
            if above in circle and above not in below and above != start:
                below[above] = table
                waiting.append(above)
    raise AssertionError("A circle leads back to where it began.")


def missing_variables(scripts: Iterable[Script], known: frozenset[str]) -> Iterator[Problem]:
    """Variables that nobody gives a value: told once for each script."""
    values = dict.fromkeys(known, "")
    for script in scripts:
        told: set[str] = set()
        for statement in script.statements:
            for name in missing_in(statement.text, values):
                if name in told:
                    continue
                told.add(name)
                yield Problem(
                    _place_of_variable(name, statement),
                    Severity.WARNING,
                    f"Neither the environment nor the project gives {name}.",
                    "Set it where jobs are started; without it none of this script can be.",
                    beginning(statement),
                )


def _place_of_variable(name: str, statement: Statement) -> Location:
    written = re.compile(rf"\$\{{{re.escape(name)}\}}|\{{\{{\s*{re.escape(name)}\s*\}}\}}")
    comments = [t for t in scan(statement.text) if t.is_trivia]
    for match in written.finditer(statement.text):
        if not any(t.offset <= match.start() < t.offset + len(t.text) for t in comments):
            return place_in(statement, match.start())
    return statement.location


_BEFORE_TABLES = frozenset({"FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", ",", "EXISTS"})


class _PlacesOfTables:
    """Where a statement names tables."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._offsets: dict[str, int] = {}
        tokens = [token for token in scan(statement.text) if not token.is_trivia]
        for number, token in enumerate(tokens):
            if token.kind not in (TokenKind.WORD, TokenKind.NAME):
                continue
            start = number
            while start > 1 and tokens[start - 1].text == ".":
                start -= 2
            if start > 0 and tokens[start - 1].text.upper() in _BEFORE_TABLES:
                self._offsets.setdefault(token.content, tokens[start].offset)

    def find(self, name: TableName) -> Location | None:
        """The place of the first mention; None where it is read by way of a view."""
        offset = self._offsets.get(name.table)
        return None if offset is None else place_in(self._statement, offset)


def _warning(
    job: JobDefinition, message: str, remedy: str, location: Location | None = None
) -> Problem:
    place = location or job.location
    return Problem(place, Severity.WARNING, message, remedy, beginning(job.statement))

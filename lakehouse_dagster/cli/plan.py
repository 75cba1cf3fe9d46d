"""``lakehouse plan``: what scripts define, without a cluster or a catalog."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakehouse_dagster.cli.output import print_json, reports_errors, stdout_console
from lakehouse_dagster.sql.advice import advise
from lakehouse_dagster.sql.catalog_names import paimon_catalogs
from lakehouse_dagster.sql.model import (
    Certainty,
    ColumnLineage,
    ColumnOrigin,
    Flow,
    JobDefinition,
    Problem,
    Project,
    Severity,
    SourceDefinition,
    TableDefinition,
    TableName,
    printable,
    unique,
)
from lakehouse_dagster.sql.reader import read_project
from lakehouse_dagster.sql.script_files import find_scripts

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

_PLAIN_NAME = re.compile(r"[\w$-]+")
_PROGRESS_SECONDS = 5.0
_MOST_OF_A_KIND = 100
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--session",
    multiple=True,
    metavar="FILE",
    help="A script that runs before each of the others, such as one that creates catalogs.",
)
@click.option(
    "--catalog",
    help="What the scripts call the lake's Paimon catalog "
    "[default: the one Paimon catalog that they create, else lake].",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document: see docs/plan.md.")
@reports_errors
def plan(
    paths: tuple[str, ...], session: tuple[str, ...], catalog: str | None, as_json: bool
) -> None:
    """Show what scripts define: tables, jobs, dependencies, column lineage, advice.

    PATH is a script, a folder of .sql files, or a pattern. Exits with 1 if a script has an error.
    """
    scripts = find_scripts(paths)
    sessions = [Path(name) for name in session]
    name = catalog or _paimon_catalog((*sessions, *scripts)) or "lake"
    with _progress(len(scripts)):
        project = read_project(scripts, catalog=name, session=sessions, base=Path.cwd())
    problems = sorted((*project.problems, *advise(project)), key=_place)
    if as_json:
        print_json({"scripts": _documents(project, problems)})
    else:
        _show(project, problems)
    if project.errors:
        sys.exit(1)


@contextmanager
def _progress(scripts: int) -> Iterator[None]:
    """Tell on stderr, now and then, that reading goes on."""
    done = threading.Event()
    started = time.monotonic()

    def tell() -> None:
        while not done.wait(_PROGRESS_SECONDS):
            passed = time.monotonic() - started
            click.echo(f"Reading {scripts} scripts: {passed:.0f} s so far.", err=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _paimon_catalog(paths: Iterable[Path]) -> str | None:
    """The name of the one Paimon catalog that the scripts create, if it is one."""
    found = {
        name
        for path in paths
        if path.is_file()
        for name in paimon_catalogs(path.read_text("utf-8", "replace"))
    }
    return found.pop() if len(found) == 1 else None


def _place(problem: Problem) -> tuple[int, int]:
    return problem.location.line, problem.location.column


# JSON


def _documents(project: Project, problems: Sequence[Problem]) -> list[dict[str, Any]]:
    documents = []
    scripts = {script.path: script for script in project.scripts}
    for path in unique((*scripts, *(p.location.path for p in problems))):
        script = scripts.get(path)
        documents.append(
            {
                "path": path,
                "tables": [_table(table) for table in (script.tables if script else ())],
                "sources": [_source(source) for source in (script.sources if script else ())],
                "jobs": [_job(job) for job in project.jobs if job.location.path == path],
                "problems": [_problem(p) for p in problems if p.location.path == path],
            }
        )
    return documents


def _table(table: TableDefinition) -> dict[str, Any]:
    return {
        "name": str(table.name),
        "columns": [
            {
                "name": column.name,
                "type": column.type or None,
                "nullable": column.nullable,
                "comment": column.comment,
            }
            for column in table.columns
        ],
        "columns_known": table.columns_known,
        "primary_key": list(table.primary_key),
        "partition_keys": list(table.partition_keys),
        "options": dict(table.options),
        "comment": table.comment,
        "filled_by": _filled_by(table),
    }


def _filled_by(table: TableDefinition) -> dict[str, Any] | None:
    """What CREATE TABLE … AS fills a table from, once."""
    flow = table.filled_by
    if flow is None:
        return None
    return {
        "reads": _reads(flow),
        "dependencies_known": flow.dependencies_known,
        "column_lineage": {
            column: [[origin.relation, origin.column] for origin in lineage.origins]
            for column, lineage in _columns([flow]).items()
        },
    }


def _source(source: SourceDefinition) -> dict[str, Any]:
    return {
        "name": source.name.table,
        "connector": source.connector,
        "asset_key": list(source.asset_key),
    }


def _job(job: JobDefinition) -> dict[str, Any]:
    written = _by_sink(job.flows)
    return {
        "name": job.name,
        "name_is_explicit": job.name_is_explicit,
        "sinks": list(written),
        "reads": _reads(job),
        "reads_itself": job.reads_itself,
        "dependencies_known": job.dependencies_known,
        "column_lineage": {
            sink: {
                column: [[origin.relation, origin.column] for origin in lineage.origins]
                for column, lineage in _columns(flows).items()
            }
            for sink, flows in written.items()
        },
        "not_exact": {
            sink: uncertain for sink, flows in written.items() if (uncertain := _uncertain(flows))
        },
        "row_filters": {
            sink: [[origin.relation, origin.column] for origin in _row_filters(flows)]
            for sink, flows in written.items()
        },
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "line": problem.location.line,
        "column": problem.location.column,
        "severity": problem.severity.value,
        "message": problem.message,
        "remedy": problem.remedy,
        "statement": problem.statement_start,
    }


# what flows into a sink


def _by_sink(flows: Iterable[Flow]) -> Mapping[str, tuple[Flow, ...]]:
    found: dict[str, tuple[Flow, ...]] = {}
    for flow in flows:
        sink = str(flow.sink) if flow.sink is not None else "/".join(flow.external_sink or ())
        if sink:
            found[sink] = (*found.get(sink, ()), flow)
    return found


def _columns(flows: Iterable[Flow]) -> dict[str, ColumnLineage]:
    """Of each column, what all flows together make it from."""
    found: dict[str, ColumnLineage] = {}
    for lineage in (column for flow in flows for column in flow.columns or ()):
        known = found.get(lineage.column)
        if known is not None:
            worse = max(known.certainty, lineage.certainty, key=list(Certainty).index)
            origins = unique((*known.origins, *lineage.origins))
            lineage = ColumnLineage(lineage.column, origins, worse)
        found[lineage.column] = lineage
    return found


def _uncertain(flows: tuple[Flow, ...]) -> dict[str, str]:
    """The columns whose origins are not exact, and how far they can be trusted."""
    if any(flow.columns is None for flow in flows):
        return {"*": Certainty.UNKNOWN.value}
    return {
        column: lineage.certainty.value
        for column, lineage in _columns(flows).items()
        if lineage.certainty is not Certainty.EXACT
    }


def _row_filters(flows: Iterable[Flow]) -> tuple[Any, ...]:
    return unique(origin for flow in flows for origin in flow.row_filters)


def _reads(job: JobDefinition | Flow) -> list[str]:
    return [*map(str, job.reads), *("/".join(key) for key in job.sources)]


# the tree


def _show(project: Project, problems: Sequence[Problem]) -> None:
    from rich.tree import Tree

    console = stdout_console()
    jobs = _by_path(project.jobs)
    said = _by_path(problems)
    scripts = {script.path: script for script in project.scripts}
    for path in unique((*scripts, *said)):
        tree = Tree(_line(path, style="bold"))
        script = scripts.get(path)
        for source in script.sources if script else ():
            key = "/".join(source.asset_key)
            tree.add(_line(f"source {key}  ({source.name.table}, {source.connector})"))
        for table in script.tables if script else ():
            _show_table(tree, table)
        for job in jobs.get(path, ()):
            _show_job(tree, job)
        shown, more = _bounded(said.get(path, ()))
        for problem in shown:
            place = f"{problem.location.line}:{problem.location.column}"
            text = _line(f"{problem.severity.value} {place}", style=_STYLES[problem.severity])
            message = printable(f"  {problem.message} {problem.remedy}")
            tree.add(text.append(message, style="default"))
        for remedy, count in more.items():
            tree.add(_line(f"and {count} more of: {remedy} (--json has all)", style="dim"))
        console.print(tree)
    console.print(_line(_summary(project, problems)))


L = TypeVar("L", JobDefinition, Problem)


def _by_path(located: Iterable[L]) -> dict[str, list[L]]:
    found: dict[str, list[L]] = {}
    for one in located:
        found.setdefault(one.location.path, []).append(one)
    return found


def _bounded(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """The first problems of each kind, told apart by what helps, and how many more there are."""
    counted: Counter[str] = Counter()
    shown = []
    for problem in problems:
        counted[problem.remedy] += 1
        if counted[problem.remedy] <= _MOST_OF_A_KIND:
            shown.append(problem)
    return shown, Counter(
        {k: n - _MOST_OF_A_KIND for k, n in counted.items() if n > _MOST_OF_A_KIND}
    )


def _line(text: str, style: str = "") -> Text:
    """A line of the tree: names come from outside, and may hold anything."""
    from rich.text import Text

    return Text(printable(text), style=style)


def _show_table(tree: Tree, table: TableDefinition) -> None:
    said = []
    if table.primary_key:
        said.append(f"primary key {', '.join(table.primary_key)}")
    if table.partition_keys:
        said.append(f"partitioned by {', '.join(table.partition_keys)}")
    details = f"  ({'; '.join(said)})" if said else ""
    branch = tree.add(_line(f"table {_name(table.name)}{details}"))
    if not table.columns_known and not table.columns:
        branch.add(_line("columns not known", style="dim"))
    origins = {} if table.filled_by is None else _columns([table.filled_by])
    for column in table.columns:
        suffix = "" if column.nullable else " NOT NULL"
        comment = f"  {column.comment}" if column.comment else ""
        shown = f"{column.name} {column.type}{suffix}".rstrip()
        made = f" ← {_origins(origins[column.name])}" if column.name in origins else ""
        branch.add(_line(f"{shown}{made}{comment}", style="dim"))
    if table.filled_by is not None:
        branch.add(_line(f"filled once from {', '.join(_sources(table.filled_by)) or 'nothing'}"))


def _show_job(tree: Tree, job: JobDefinition) -> None:
    known = "" if job.dependencies_known else "  (not all that it reads or writes is known)"
    branch = tree.add(_line(f"job {job.name}{known}"))
    read = [*_sources(job), *(["itself"] if job.reads_itself else [])]
    branch.add(_line(f"reads {', '.join(read) or 'nothing'}"))
    for flows in _by_sink(job.flows).values():
        sink = flows[0].sink
        shown = _name(sink) if sink is not None else "/".join(flows[0].external_sink or ())
        writes = branch.add(_line(f"writes {shown}"))
        uncertain = _uncertain(flows)
        for column, lineage in _columns(flows).items():
            mark = f"  ({uncertain[column]})" if column in uncertain else ""
            writes.add(_line(f"{column} ← {_origins(lineage)}{mark}", style="dim"))
        if "*" in uncertain:
            writes.add(_line("columns not known", style="dim"))
        if filters := ", ".join(map(_origin, _row_filters(flows))):
            writes.add(_line(f"rows ← {filters}", style="dim"))


def _origins(lineage: ColumnLineage) -> str:
    return ", ".join(map(_origin, lineage.origins)) or "no column"


def _origin(origin: ColumnOrigin) -> str:
    relation = origin.relation if origin.table is None else _name(origin.table)
    return f"{relation}.{_quoted(origin.column)}"


def _sources(read: JobDefinition | Flow) -> list[str]:
    return [*map(_name, read.reads), *("/".join(key) for key in read.sources)]


def _name(name: TableName) -> str:
    return ".".join(map(_quoted, (name.catalog, name.database, name.table)))


def _quoted(name: str) -> str:
    """A name as it would be written where it could be mistaken otherwise."""
    doubled = name.replace("`", "``")
    return name if _PLAIN_NAME.fullmatch(name) else f"`{doubled}`"


def _summary(project: Project, problems: Sequence[Problem]) -> str:
    count = {s: sum(p.severity is s for p in problems) for s in Severity}
    return (
        f"{len(project.scripts)} scripts, {len(project.tables)} tables, "
        f"{len(project.sources)} sources, {len(project.jobs)} jobs; "
        f"{count[Severity.ERROR]} errors, {count[Severity.WARNING]} warnings, "
        f"{count[Severity.ADVICE]} pieces of advice"
    )

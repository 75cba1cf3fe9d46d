"""Advice on an INSERT's query, from its tree: what makes results unrepeatable, or state large."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlglot import exp

from lakehouse_dagster.sql.beginning import beginning
from lakehouse_dagster.sql.model import Location, Problem, Severity, Statement
from lakehouse_dagster.sql.parsing import nodes_within
from lakehouse_dagster.sql.scanner import scan
from lakehouse_dagster.sql.statements import place_in

_UNREPEATABLE = frozenset(
    {
        "PROCTIME",
        "NOW",
        "CURRENT_TIMESTAMP",
        "CURRENT_ROW_TIMESTAMP",
        "CURRENT_DATE",
        "CURRENT_TIME",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "UNIX_TIMESTAMP",
        "RAND",
        "RAND_INTEGER",
        "UUID",
    }
)
_READS_CLOCK_WITHOUT_ARGUMENTS = frozenset({"UNIX_TIMESTAMP"})


def insert_advice(statement: Statement, insert: exp.Expr) -> tuple[Problem, ...]:
    """Return advice on one INSERT; ``statement`` is the text that ``insert`` was parsed from."""
    return (*_unrepeatable(statement, insert), *_deduplication(statement, insert))


def _unrepeatable(statement: Statement, insert: exp.Expr) -> Iterator[Problem]:
    seen: set[str] = set()
    # As of when a lookup joins is no value that is written.
    for node in nodes_within(insert, exp.Version):
        name = _clock_or_chance(node)
        if name is not None and name not in seen:
            seen.add(name)
            yield _advice(
                statement,
                name,
                f"{name} gives another answer each time: what is computed again, by a restart or "
                "a correction, will not equal what was written.",
                "Use a time or an id that the data itself has.",
            )


def _clock_or_chance(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        with_arguments = bool(node.expressions)
    elif isinstance(node, exp.Func):
        kind: Any = type(node)
        name = _function_name(kind)
        with_arguments = bool(node.args.get("this"))
    elif isinstance(node, exp.Column) and not node.table and not node.this.args.get("quoted"):
        name, with_arguments = node.name.upper(), False
    else:
        return None
    if name not in _UNREPEATABLE or (with_arguments and name in _READS_CLOCK_WITHOUT_ARGUMENTS):
        return None
    return name


@cache
def _function_name(kind: Any) -> str:
    names = kind.sql_names()
    return names[0].upper() if names else ""


def _deduplication(statement: Statement, insert: exp.Expr) -> Iterator[Problem]:
    for select in nodes_within(insert):
        if not isinstance(select, exp.Select):
            continue
        numbered = {
            projection.alias: projection.this
            for projection in select.expressions
            if isinstance(projection, exp.Alias)
            and isinstance(projection.this, exp.Window)
            and isinstance(projection.this.this, exp.RowNumber)
        }
        outer = select.find_ancestor(exp.Select)
        if not numbered or outer is None or not _keeps_first_only(outer, set(numbered)):
            continue
        order = next(iter(numbered.values())).args.get("order")
        first = order.expressions[0] if order is not None and order.expressions else None
        newest = bool(first is not None and first.args.get("desc"))
        engine = "'deduplicate', the default, with a 'sequence.field'" if newest else "'first-row'"
        yield _advice(
            statement,
            "ROW_NUMBER",
            "The query removes duplicates by ROW_NUMBER … = 1: Flink keeps every key in state for "
            "it.",
            f"A Paimon table with that primary key and 'merge-engine' {engine} does the same "
            "without state.",
        )


def _keeps_first_only(outer: exp.Select, numbers: set[str]) -> bool:
    where = outer.args.get("where")
    if where is None:
        return False
    for condition in where.find_all(exp.EQ, exp.LTE, exp.LT):
        column, bound = condition.this, condition.expression
        limit = "2" if isinstance(condition, exp.LT) else "1"
        if (
            isinstance(column, exp.Column)
            and column.name in numbers
            and isinstance(bound, exp.Literal)
            and bound.name == limit
        ):
            return True
    return False


def _advice(statement: Statement, word: str, message: str, remedy: str) -> Problem:
    return Problem(_place(statement, word), Severity.ADVICE, message, remedy, beginning(statement))


def _place(statement: Statement, word: str) -> Location:
    """Where a word first stands in the statement."""
    for token in scan(statement.text):
        if token.is_word(word):
            return place_in(statement, token.offset)
    return statement.location
